#!/usr/bin/env bash
# Prints the folder of a cargo and rustc that are new enough; installs Debian's when the machine's own are missing or
# too old. It never fetches a toolchain from anywhere else, and leaves rustup's settings as they are.
# With --lint the folder also has rustfmt and clippy.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/say.sh
source tools/say.sh

# The `rust-version` of the engine and of what it depends on.
OLDEST=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' zeroserve/engine/Cargo.toml)

# at_least VERSION: is it as new as $OLDEST?
at_least() {
    [[ -n $1 && $(printf '%s\n%s\n' "$OLDEST" "$1" | sort -V | head -n 1) == "$OLDEST" ]]
}

# usable FOLDER: rustup's cargo is a proxy that may have no toolchain behind it, so both are asked.
usable() {
    local tool
    for tool in cargo rustc; do
        [[ -x $1/$tool ]] && at_least "$("$1/$tool" --version 2>/dev/null | cut -d ' ' -f 2)" || return 1
    done
}

find_folder() {
    local folder
    while read -r folder; do
        ! usable "$folder" || { printf '%s\n' "$folder" && return; }
    done < <(type -P -a cargo | xargs -r -n 1 dirname; printf '%s\n' "$HOME/.cargo/bin" /usr/bin)
    return 1
}

# Debian 13's rustc is new enough; Debian 12 has 1.63 under that name and a current one, kept for browsers, as -web.
# candidate PACKAGE: the version apt would install.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([0-9.]*\).*/\1/p'
}

# suffix: which family of Debian's packages is new enough ("" or "-web").
suffix() {
    if at_least "$(candidate rustc)"; then
        printf ''
    elif at_least "$(candidate rustc-web)"; then
        printf -- '-web'
    else
        die "no Rust of at least $OLDEST here or in this system's packages" "run apt-get update, or install it with rustup"
    fi
}

install_debian() {
    local family
    if [[ -z $(candidate rustc) ]]; then
        step "reading the package lists" apt.log apt-get update
    fi
    family=$(suffix)
    # The -web packages take the place of Debian's older ones, and apt is told to remove nothing.
    [[ -z $family || ! -e /var/lib/dpkg/info/rustc.list ]] ||
        die "Debian's rustc here is older than $OLDEST and in the way of rustc-web" "run: apt-get remove rustc cargo"
    tools/packages.sh --install "rustc$family" "cargo$family"
}

install_lints() {
    local folder=$1 family
    [[ $folder == /usr/bin ]] || die "$folder has no rustfmt or clippy" "run: rustup component add rustfmt clippy"
    family=$(suffix)
    if [[ -z $family ]]; then
        tools/packages.sh --install rustfmt rust-clippy
    else
        tools/packages.sh --install rustfmt-web rust-web-clippy
    fi
}

folder=$(find_folder) || {
    install_debian >&2
    folder=$(find_folder) || die "the Rust that was installed does not run" "see target/log/apt.log"
}
if [[ ${1:-} == --lint ]]; then
    [[ -x $folder/cargo-fmt && -x $folder/cargo-clippy ]] || install_lints "$folder" >&2
fi
printf '%s\n' "$folder"
