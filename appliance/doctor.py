"""Whether this machine has what the appliance needs: checks as data, each with what to do. Nothing is changed, and
nothing is attached to a real interface.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from appliance import interfaces
from appliance.settings import ApplianceError
from xdp import libbpf
from xdp.filter import is_bpffs
from xdp.policy import XdpError
from xdp.prefilter import Prefilter

OLDEST_KERNEL = (5, 19)
"""io_uring's multishot accept and provided buffer rings, which the server is built on, came with 5.19."""
LEAST_FREE_MIB = 100
IO_URING_SETUP = 425  # the same number on every architecture (asm-generic/unistd.h)
ARCHITECTURES = {"x86_64", "aarch64"}


class Outcome(StrEnum):
    """WARN: it works, with something less. FAIL: a layer cannot work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what was found and, unless all is well, what to do about it."""

    name: str
    outcome: Outcome
    detail: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "outcome": self.outcome.value, "detail": self.detail, "remedy": self.remedy}


def examine(interface: str | None, state_directory: Path) -> list[Check]:
    """All checks, in the order in which they matter. `interface` None looks at that of the default route."""
    checks: list[Callable[[], Check]] = [
        root,
        architecture,
        kernel,
        btf,
        bpffs,
        bpf_library,
        bpf_program,
        nftables,
        io_uring,
        clang,
        lambda: disk(state_directory),
        lambda: native_xdp(interface),
    ]
    return [check() for check in checks]


def root() -> Check:
    if os.geteuid() == 0:
        return Check("root", Outcome.OK, "yes")
    return Check("root", Outcome.FAIL, f"user id {os.geteuid()}", "run with sudo")


def architecture() -> Check:
    machine, bits = platform.machine(), 8 * struct.calcsize("P")
    if machine in ARCHITECTURES and bits == 64:
        return Check("architecture", Outcome.OK, machine)
    found = f"{machine}, {bits}-bit Python"
    return Check("architecture", Outcome.FAIL, found, "use a 64-bit system on x86_64 or aarch64")


def kernel() -> Check:
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers >= OLDEST_KERNEL:
        return Check("kernel", Outcome.OK, release)
    oldest = ".".join(map(str, OLDEST_KERNEL))
    return Check("kernel", Outcome.FAIL, release, f"use Linux {oldest} or later")


def btf() -> Check:
    if Path("/sys/kernel/btf/vmlinux").exists():
        return Check("BTF", Outcome.OK, "/sys/kernel/btf/vmlinux")
    remedy = "use a kernel with CONFIG_DEBUG_INFO_BTF for tracing; the filter does without"
    return Check("BTF", Outcome.WARN, "this kernel has none", remedy)


def bpffs() -> Check:
    if is_bpffs():
        return Check("bpffs", Outcome.OK, "mounted at /sys/fs/bpf")
    if "bpf" in Path("/proc/filesystems").read_text().split():
        return Check("bpffs", Outcome.OK, "not mounted; `up` mounts it")
    return Check("bpffs", Outcome.FAIL, "unknown to this kernel", "use a kernel with CONFIG_BPF_SYSCALL")


def bpf_library() -> Check:
    try:
        return Check("libbpf", Outcome.OK, libbpf.version())
    except XdpError as error:
        return Check("libbpf", Outcome.FAIL, error.message, error.hint)


def bpf_program() -> Check:
    """Loads the filter as `up` would (object, verifier, maps) without attaching it anywhere."""
    try:
        Prefilter.load().close()
    except (XdpError, OSError) as error:
        hint = error.hint if isinstance(error, XdpError) else "run as root, on a kernel with BPF"
        message = error.message if isinstance(error, XdpError) else str(error)
        return Check("filter", Outcome.FAIL, message, hint)
    return Check("filter", Outcome.OK, "loads")


def nftables() -> Check:
    program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
    if program is None:
        return Check("nftables", Outcome.FAIL, "no nft command", "install the package nftables")
    return Check("nftables", Outcome.OK, program)


def io_uring() -> Check:
    """Sets a ring of one entry up and closes it."""
    parameters = ctypes.create_string_buffer(120)  # struct io_uring_params
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(ctypes.c_long(IO_URING_SETUP), ctypes.c_uint(1), parameters)
    if descriptor >= 0:
        os.close(descriptor)
        return Check("io_uring", Outcome.OK, "works")
    remedy = "sysctl kernel.io_uring_disabled=0, or use a kernel with CONFIG_IO_URING"
    return Check("io_uring", Outcome.FAIL, os.strerror(ctypes.get_errno()), remedy)


def clang() -> Check:
    program = shutil.which("clang")
    if program is None:
        return Check("clang", Outcome.WARN, "not installed", "install clang to pack sites that have scripts in C")
    return Check("clang", Outcome.OK, program)


def disk(state_directory: Path) -> Check:
    existing = next(path for path in (state_directory, *state_directory.resolve().parents) if path.exists())
    free_mib = shutil.disk_usage(existing).free >> 20
    detail = f"{free_mib:,} MiB free for {state_directory}"
    if free_mib >= LEAST_FREE_MIB:
        return Check("disk", Outcome.OK, detail)
    return Check("disk", Outcome.WARN, detail, f"make {LEAST_FREE_MIB} MiB free for logs")


def native_xdp(interface: str | None) -> Check:
    """What the driver says of itself: to try it out could interrupt the link."""
    try:
        name = interface or interfaces.default_interface()
        capable = interfaces.driver_can_do_xdp(name)
    except ApplianceError as error:
        return Check("native XDP", Outcome.WARN, error.message, error.hint)
    except OSError:
        return Check("native XDP", Outcome.FAIL, f"no interface {interface}", "see: ip link")
    if capable:
        return Check("native XDP", Outcome.OK, f"the driver of {name} has it")
    if capable is None:
        return Check("native XDP", Outcome.WARN, f"this kernel cannot tell for {name}", "`up` tries it and says")
    remedy = "nothing to do: the filter attaches generically, at a higher cost per packet"
    return Check("native XDP", Outcome.WARN, f"the driver of {name} has none", remedy)
