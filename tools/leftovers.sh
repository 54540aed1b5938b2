#!/usr/bin/env bash
# Prints what zeroserve has in the system right now, one thing a line: network namespaces, links, nftables tables and
# pinned BPF objects whose names begin with "zs", and processes of this clone's commands. Nothing printed: nothing there.
set -euo pipefail
cd "$(dirname "$0")/.."

list() {
    ip netns list 2>/dev/null | awk '$1 ~ /^zs-/ { print "namespace " $1 }'
    ip -o link show | awk -F '[ @:]+' '$2 ~ /^zs/ { print "link " $2 }'
    nft list tables 2>/dev/null | awk '$3 ~ /^zs_/ { print $1, $2, $3 }'
    [[ ! -d /sys/fs/bpf/zs ]] || find /sys/fs/bpf/zs -mindepth 1 -printf 'pinned %p\n'
    # By the full command line: the commands are Python programs, so their process name is the interpreter's.
    pgrep -a -f -- "^$PWD/.venv/bin/python[0-9.]* .*(-m |bin/)(zeroserve|appliance|experiments|zs-appliance|zs-experiment)(\.[a-z]+)?( |\$)" |
        sed 's/^/process /'
}

list || true
