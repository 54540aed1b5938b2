#!/usr/bin/env bash
# Refuses a machine on which the make goals given cannot work: one line that says why and what to do, exit code 2,
# before anything has been tried. Changes nothing.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source=tools/say.sh
source "$here/say.sh"

# Measured on x86-64: target 0.8 GB, .venv 0.4 GB, cargo's registry 0.25 GB; clang, LLVM, Rust and g++ 1.3 GB. Rounded up.
readonly BUILD_MB=2000 PACKAGES_MB=2000

check_root() {
    (($(id -u) == 0)) || die "make $1 needs root (namespaces, BPF, packages)" "run: sudo make $1"
}

check_architecture() {
    local kernel packages
    kernel=$(uname -m)
    case $kernel in
    x86_64 | aarch64) ;;
    *) die "this machine is $kernel" "use a 64-bit x86 or ARM machine (on a Raspberry Pi: the 64-bit image)" ;;
    esac
    # Raspberry Pi OS comes as a 32-bit user space under a 64-bit kernel, too.
    packages=$(dpkg --print-architecture)
    case $packages in
    amd64 | arm64) ;;
    *) die "the user space is $packages under a $kernel kernel" "install the 64-bit image of this system" ;;
    esac
}

check_debian() {
    [[ -x $(type -P apt-get) && -x $(type -P dpkg) ]] ||
        die "there is no apt-get here" "use Debian 12 or 13, or 64-bit Raspberry Pi OS"
    [[ ! -x /usr/bin/python3 ]] || /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "/usr/bin/python3 is older than 3.11" "upgrade this system to Debian 12 or newer"
}

# free_mb PATH: what an ordinary write may still take there.
free_mb() {
    df -Pm "$1" | awk 'NR == 2 { print $4 }'
}

check_disk() {
    [[ -w . ]] || die "$PWD cannot be written to" "clone the project where you may write"
    local build=0 packages=0
    [[ -e target/stamp/wheel ]] || build=$BUILD_MB
    [[ -e target/stamp/packages-build ]] || command -v clang >/dev/null || packages=$PACKAGES_MB
    [[ $(stat -c %d .) != "$(stat -c %d /usr)" ]] || build=$((build + packages))
    (($(free_mb .) >= build)) ||
        die "$PWD has $(free_mb .) MB free and $build MB are needed" "make room or clone elsewhere"
    (($(free_mb /usr) >= packages)) ||
        die "/usr has $(free_mb /usr) MB free and $packages MB are needed for Debian packages" "make room there"
}

# Creating the smallest map asks the kernel itself, which neither a config file nor a version answers.
probe_bpf() {
    /usr/bin/python3 - <<'PYTHON'
import ctypes, os, struct, sys
number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
libc = ctypes.CDLL(None, use_errno=True)
attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1), 120)  # an array of one 4-byte value
sys.exit(0 if libc.syscall(number, 0, attributes, len(attributes)) >= 0 else ctypes.get_errno())
PYTHON
}

check_kernel() {
    [[ -e /proc/sys/kernel/unprivileged_bpf_disabled ]] ||
        die "this kernel has no BPF (CONFIG_BPF_SYSCALL)" "boot the distribution's own kernel"
    [[ ! -x /usr/bin/python3 ]] || probe_bpf ||
        die "the kernel refuses BPF to this process" "leave the container, or give it CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    unshare -n true 2>/dev/null ||
        die "network namespaces cannot be made here" "leave the container, or give it CAP_SYS_ADMIN"
}

for goal in "$@"; do
    case $goal in
    demo | test | bench) check_root "$goal" ;;
    build | lint) ;;
    *) continue ;;
    esac
    check_debian
    check_architecture
    check_disk
    [[ $goal == build || $goal == lint ]] || check_kernel
done
