#!/usr/bin/env bash
# Installs the missing Debian packages of the groups named on the command line. The list is debian-packages.txt;
# what needs no package leaves apt alone, so a machine that has everything needs neither root nor a network.
# With --install it takes package names instead (tools/toolchain.sh asks for Debian's Rust in this way).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

LIST=${ZS_PACKAGE_LIST:-tools/debian-packages.txt} # tests name a list of their own

# of_groups GROUP...: the packages of these groups, one a line.
of_groups() {
    local group name rest
    while read -r group name rest; do
        [[ " $* " != *" $group "* ]] || printf '%s\n' "$name"
    done <"$LIST"
}

# missing PACKAGE...: those of them that are not installed.
missing() {
    local name
    for name in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || printf '%s\n' "$name"
    done
}

install() {
    # Mirrors of foreign packages may be down without harm: only what follows decides.
    apt-get update -o Acquire::http::Timeout=20 -o Acquire::Retries=1 || true
    # --no-remove: Debian's Rust packages conflict with each other and with rustup; nothing of the user's may go.
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --no-remove \
        -o DPkg::Lock::Timeout=120 -o Acquire::http::Timeout=20 "$@"
}

if [[ ${1:-} == --install ]]; then
    shift
    mapfile -t wanted < <(missing "$@")
else
    mapfile -t named < <(of_groups "$@")
    mapfile -t wanted < <(missing "${named[@]}")
fi
((${#wanted[@]} > 0)) || exit 0
(($(id -u) == 0)) || die "Debian packages are missing (${wanted[*]})" "run make as root, or: sudo apt-get install ${wanted[*]}"
step "installing ${#wanted[@]} Debian packages" apt.log install "${wanted[@]}"
