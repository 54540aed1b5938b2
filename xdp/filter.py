"""The attached filter: put it on an interface, apply a policy, read its counters, take it off again.

It owns the attachment and the pins; what the program does is in prefilter.bpf.c, what rules mean in policy.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import struct
import subprocess
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from xdp import layout
from xdp.counters import Counters
from xdp.errors import XdpError
from xdp.layout import Sample
from xdp.libbpf import Link, XdpFlags, attached_to
from xdp.policy import Mode, Policy
from xdp.prefilter import Prefilter

BPFFS = Path("/sys/fs/bpf")
PIN_ROOT = BPFFS / "zs"
_LINK = "link"
_SIOCGIFHWADDR = 0x8927
_ETHERNET_TYPES = {1, 772}  # ARPHRD_ETHER, ARPHRD_LOOPBACK


class AttachMode(StrEnum):
    """Where the program runs: in the driver before there is a socket buffer, or in the stack's entry after it."""

    NATIVE = "native"
    GENERIC = "generic"


_FLAGS = {AttachMode.NATIVE: XdpFlags.NATIVE, AttachMode.GENERIC: XdpFlags.GENERIC}


class Filter:
    """The filter on one interface. Leaving its `with` block detaches it; `close` leaves a pinned one in place.

    Interfaces are those of the network namespace that the calling thread is in. `native_refusal` says why the driver's
    hook is not used where it was tried.
    """

    def __init__(
        self,
        prefilter: Prefilter,
        link: Link,
        interface: str,
        attach_mode: AttachMode,
        pin: Path | None,
        native_refusal: str | None = None,
    ) -> None:
        self.prefilter = prefilter
        self.interface = interface
        self.attach_mode = attach_mode
        self.pin = pin
        self.native_refusal = native_refusal
        self._link = link

    @classmethod
    def attach(
        cls, interface: str, *, mode: Mode = Mode.MONITOR, attach: AttachMode | None = None, pin: Path | None = None
    ) -> Self:
        """Loads the program and attaches it, natively where the driver can and generically otherwise.

        `attach` insists on one of the two. `pin`, a directory that does not exist yet under `PIN_ROOT`, lets the
        attachment outlive the process. Raises `XdpError`.
        """
        ifindex = _ethernet_index(interface)
        if pin is not None and pin.exists():
            raise XdpError(f"something is pinned at {pin} already", "reopen it, or remove it with `zs-appliance down`")
        prefilter = Prefilter.load()
        try:
            prefilter.apply(Policy(mode))
            link, attach_mode, refusal = _attach(prefilter, ifindex, interface, attach)
        except BaseException:
            prefilter.close()
            raise
        attached = cls(prefilter, link, interface, attach_mode, pin, refusal)
        try:
            attached._pin()
        except BaseException:
            attached.detach()
            raise
        return attached

    @classmethod
    def reopen(cls, pin: Path) -> Self:
        """The filter that was pinned at `pin`, perhaps by a process that is gone; raises `XdpError`."""
        try:
            link = Link.pinned(pin / _LINK)
        except OSError as error:
            raise XdpError(f"no filter is pinned at {pin} ({error.strerror})", "attach one") from None
        try:
            interface, attach_mode = _find_attachment(link)
            prefilter = Prefilter.pinned(pin, link.program())
        except OSError as error:
            link.close()
            raise XdpError(
                f"the filter pinned at {pin} is not whole ({error.strerror})", "remove it with `zs-appliance down`"
            ) from None
        return cls(prefilter, link, interface, attach_mode, pin)

    def apply(self, policy: Policy) -> None:
        """Puts `policy` in force, mode and rules at once, without reattaching; see `Prefilter.apply`."""
        self.prefilter.apply(policy)

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return self.prefilter.mode

    def counters(self) -> Counters:
        """What was counted since the program was loaded, summed over the CPUs."""
        return self.prefilter.counters()

    def samples(self, wait_ms: int = 0) -> list[Sample]:
        """The sampled packets that nobody has read yet, after waiting at most `wait_ms` for the first."""
        return self.prefilter.samples(wait_ms)

    def is_attached(self) -> bool:
        """Whether the interface still runs this program (it may have been removed, or someone may have detached it)."""
        return self._link.target()[0] != 0

    def detach(self) -> None:
        """Takes the program off the interface and removes the pins. Doing it twice does no harm."""
        if self._link.fd >= 0:
            with suppress(OSError):  # the interface is gone, and the attachment with it
                self._link.detach()
        if self.pin is not None:
            _unpin(self.pin)
        self.close()

    def close(self) -> None:
        """Lets go. A pinned filter stays attached, another is detached by the kernel."""
        self._link.close()
        self.prefilter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.detach()

    def _pin(self) -> None:
        if self.pin is None:
            return
        try:
            self.pin.mkdir(parents=True)
            self.prefilter.pin(self.pin)
            self._link.pin(self.pin / _LINK)
        except OSError as error:
            raise XdpError(
                f"cannot pin the filter at {self.pin} ({error.strerror})",
                f"name a directory under {PIN_ROOT}, on a bpffs",
            ) from None


def _attach(
    prefilter: Prefilter, ifindex: int, interface: str, wanted: AttachMode | None
) -> tuple[Link, AttachMode, str | None]:
    """(link, mode, why not natively)."""
    refusal: str | None = None
    for mode in [wanted] if wanted else [AttachMode.NATIVE, AttachMode.GENERIC]:
        try:
            return prefilter.program.attach_xdp(ifindex, _FLAGS[mode]), mode, refusal
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.EEXIST):
                raise XdpError(
                    f"{interface} runs another XDP program",
                    "detach that one; `zs-appliance down` removes ours",
                ) from None
            if mode is AttachMode.GENERIC or wanted:
                hint = "leave the attach mode open" if wanted else "check the kernel and your rights"
                raise XdpError(f"cannot attach to {interface} in {mode} mode ({error.strerror})", hint) from None
            refusal = os.strerror(error.errno or 0).lower()
    raise AssertionError("generic mode either attaches or raises")


def _ethernet_index(interface: str) -> int:
    """The index of an Ethernet interface; `XdpError` where there is none, or frames have no such header."""
    try:
        ifindex = socket.if_nametoindex(interface)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16s24x", interface.encode())
            answer = fcntl.ioctl(any_socket, _SIOCGIFHWADDR, request)
    except OSError:
        raise XdpError(f"there is no interface {interface}", "see `ip link` for those there are") from None
    (hardware_type,) = struct.unpack_from("=H", answer, 16)
    if hardware_type not in _ETHERNET_TYPES:
        raise XdpError(f"{interface} carries no Ethernet frames", "name an Ethernet interface")
    return ifindex


def _find_attachment(link: Link) -> tuple[str, AttachMode]:
    ifindex, program_id = link.target()
    try:
        interface = socket.if_indextoname(ifindex)
        attached = attached_to(ifindex)
    except OSError:
        raise OSError(errno.ENODEV, "its interface is gone or in another network namespace") from None
    if program_id == attached.native:
        return interface, AttachMode.NATIVE
    if program_id == attached.generic:
        return interface, AttachMode.GENERIC
    raise OSError(errno.ENODEV, "its interface runs another program")


def _unpin(directory: Path) -> None:
    for name in (_LINK, *layout.SHAPES):
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


def remove_leftovers(root: Path = PIN_ROOT) -> list[Path]:
    """Detaches and removes every filter pinned at or below `root`, whoever pinned it; returns the pins removed."""
    pins = []
    for directory, _, names in os.walk(root, topdown=False):
        pin = Path(directory)
        if names:
            _detach_pinned(pin / _LINK)
            pins.append(pin)
        _unpin(pin)
    return sorted(pins)


def _detach_pinned(path: Path) -> None:
    with suppress(OSError):  # half a pin has no link, and the interface of another may be gone
        link = Link.pinned(path)
        try:
            link.detach()
        finally:
            link.close()


def mount_bpffs(path: Path = BPFFS) -> bool:
    """Makes sure that a bpffs is mounted at `path`; True when it had to be mounted. Raises `XdpError`."""
    if is_bpffs(path):
        return False
    mount = shutil.which("mount") or "/usr/bin/mount"
    done = subprocess.run([mount, "-t", "bpf", "bpf", os.fspath(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise XdpError(f"cannot mount a bpffs at {path} ({done.stderr.strip()})", "run as root, on a kernel with BPF")
    return True


def is_bpffs(path: Path = BPFFS) -> bool:
    """Whether `path` exists and lies on a bpffs."""
    if not path.exists():
        return False
    where = path.resolve()
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    kinds = {Path(fields[1]): fields[2] for fields in mounts}
    return next(kinds[each] for each in (where, *where.parents) if each in kinds) == "bpf"
