#!/usr/bin/env bash
# Compiles one kernel program: bpf.sh SOURCE.bpf.c OBJECT.bpf.o
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

# The BPF target has no headers of its own: asm/types.h is the machine's. Paths are kept out of the debug information,
# so that equal sources give equal objects wherever they were compiled.
step "compiling $1" "$(basename "$2").log" clang -O2 -g -Wall -Wextra -Werror -target bpf \
    -I"/usr/include/$(uname -m)-linux-gnu" -ffile-prefix-map="$PWD"=. -c "$1" -o "$2"
