#!/usr/bin/env bash
# Checks format, types and habits of everything in the repository, and reports all that is wrong, not only the first.
# Changes no file.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=$(tools/toolchain.sh --lint)
export PATH="$cargo:$PATH:$PWD/.venv/bin"
wrong=()

# check NAME COMMAND...
check() {
    local name=$1
    shift
    if "$@"; then
        printf '%-14s clean\n' "$name"
    else
        printf '%-14s FAILED\n' "$name"
        wrong+=("$name")
    fi
}

# A chain of `let` needs Rust 1.88, and Debian 13 has 1.85; the compiler here may be newer and would not say so.
# shellcheck disable=SC2016 # the variables are perl's
no_let_chains() {
    ! git ls-files -z --cached --others --exclude-standard '*.rs' |
        xargs -0 perl -0777 -ne 'while (/\b(?:if|while)\s+let\s[^{;]*?\s&&\s/g) { print "$ARGV: a chain of let\n" }' |
        grep .
}

mapfile -t scripts < <(git ls-files --cached --others --exclude-standard 'tools/*.sh' .ci/run)
mapfile -t c_files < <(git ls-files --cached --others --exclude-standard '*.c' '*.h')

check ruff ruff check --quiet .
check "ruff format" ruff format --check --quiet .
check mypy mypy --no-error-summary
check rustfmt cargo fmt --check
check 'let chains' no_let_chains
# In the release profile, because BoringSSL is then built once for checks, tests and wheel alike.
check clippy cargo clippy --release --locked --all-targets --features python --quiet -- -D warnings
check clang-format clang-format --dry-run -Werror "${c_files[@]}"
check shellcheck shellcheck -x "${scripts[@]}"

((${#wrong[@]} == 0)) || { printf 'lint: failed: %s\n' "${wrong[*]}" >&2 && exit 1; }
