"""The built-in lab: a client and an edge namespace joined by a veth pair, so that everything the appliance and the
instrument do can be done on any machine without touching its network. What runs in the lab is not known here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pyroute2 import Ethtool, IPRoute, NetlinkError

from appliance.namespace import Namespace
from appliance.process import stop_all
from appliance.settings import RUN_DIRECTORY, ApplianceError

LOCK = RUN_DIRECTORY / "lab.lock"

# Whatever merges or splits packets on the way would make "sent" and "seen" count different things. Checksum offload
# stays: it changes no count, and a real card has it too.
COUNT_DISTORTING_OFFLOADS = (
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
    "rx-gro-list",
)


@dataclass(frozen=True, slots=True)
class Host(Namespace):
    """One end of the lab: a namespace with one interface. The MAC is locally administered (IEEE 802, bit 1 of the
    first byte); addresses come from RFC 1918 (10/8) and RFC 4193 (fd00::/8)."""

    interface: str
    mac: str
    ipv4: str
    ipv6: str


CLIENT = Host("zs-client", "zs-client0", "02:7a:73:00:00:01", "10.77.0.1", "fd77::1")
EDGE = Host("zs-edge", "zs-edge0", "02:7a:73:00:00:02", "10.77.0.2", "fd77::2")
IPV4_PREFIX_LENGTH = 24
IPV6_PREFIX_LENGTH = 64
CARRIER_DEADLINE_S = 5.0
IFA_F_NODAD = 0x02  # linux/if_addr.h: usable at once, without duplicate address detection


@dataclass(frozen=True, slots=True)
class NapiThread:
    """The kernel thread that receives the packets of one queue of the edge when NAPI is threaded."""

    pid: int
    name: str

    def pin(self, cpu: int) -> None:
        """Run on `cpu` only. Errors: ApplianceError when there is no such CPU or the thread is gone."""
        try:
            os.sched_setaffinity(self.pid, {cpu})
        except OSError as error:
            raise ApplianceError(f"cannot pin {self.name} to CPU {cpu}: {error.strerror}") from error

    def cpu_ns(self) -> int:
        """CPU time so far, in ns (Documentation/scheduler/sched-stats.rst: first field of /proc/<pid>/schedstat)."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])


class Lab:
    """The two namespaces while they exist. Made by `create` or found by `adopt`; a context manager that removes
    everything, children started in the lab included, on success, error and Ctrl-C.

    There is one lab on a machine (its names are fixed, so that `down` finds them); a lock held for the life of the
    object, and released by the kernel when the process dies however it dies, says whether it is in use.
    """

    def __init__(self, lock: int) -> None:
        self.client = CLIENT
        self.edge = EDGE
        self._lock: int | None = lock

    @classmethod
    def create(cls, *, purpose: str = "lab", kept: bool = False) -> Self:
        """Build the lab; what a killed owner left of an earlier one is removed first.

        `kept` marks a lab that is meant to outlive its owner (a running appliance's): `create` then refuses to replace
        it, and only `remove_leftovers(kept=True)` and `adopt` touch it. Errors: ApplianceError when not root, or the
        lab is in use.
        """
        if os.geteuid() != 0:
            raise ApplianceError("the lab needs root to make network namespaces", "run with sudo")
        lock = _acquire()
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock)
            if _is_kept(lock):
                raise ApplianceError("the lab belongs to a running appliance", "zs-appliance down")
            _remove_everything()
            _write_owner(lock, purpose, kept)
            undo.callback(_forget_owner, lock)
            undo.callback(_remove_everything)
            _build()
            undo.pop_all()
        return cls(lock)

    @classmethod
    def adopt(cls) -> Self | None:
        """Take over the lab that a dead owner left; None when there is none. Errors: ApplianceError when it is in
        use."""
        lock = _acquire()
        if not (_is_kept(lock) and CLIENT.exists() and EDGE.exists()):
            os.close(lock)
            return None
        _write_owner(lock, "adopted", kept=True)
        return cls(lock)

    def close(self) -> None:
        """End the children, remove links and namespaces, free the name. Doing it twice does nothing."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            _remove_everything()
            _forget_owner(lock)
        finally:
            os.close(lock)

    def leave(self) -> None:
        """Let go of a kept lab without removing it; `adopt` finds it again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_threaded_napi(self, on: bool) -> list[NapiThread]:
        """Receive on the edge in kernel threads of its own (or not); the threads there are now: one, as the interface
        has one queue. Source: Documentation/networking/napi.rst, "Threaded NAPI".

        Attach the XDP program first: veth has NAPI only while one is attached natively, and the kernel refuses the
        setting without. Errors: ApplianceError then.
        """
        setting = Path(f"/sys/class/net/{EDGE.interface}/threaded")

        def write() -> None:
            setting.write_text("1" if on else "0")

        try:
            EDGE.run_with_sysfs(write)
        except OSError as error:
            has_no_napi = error.errno == errno.EOPNOTSUPP
            message = f"cannot set threaded NAPI on {EDGE.interface}: {error}"
            hint = "attach an XDP program natively first" if has_no_napi else "the lab needs its own view of /sys"
            raise ApplianceError(message, hint) from error
        return self.napi_threads()

    def napi_threads(self) -> list[NapiThread]:
        """The edge's NAPI kernel threads, `napi/zs-edge0-N`, by pid. Empty without threaded NAPI or native XDP."""
        prefix = f"napi/{EDGE.interface}-"
        # Until Linux 5.17 the name is cut to 15 bytes, which is longer than the prefix.
        threads = (NapiThread(pid, name) for pid, name in _kernel_threads() if name.startswith(prefix))
        return sorted(threads, key=lambda thread: thread.pid)

    @staticmethod
    def remove_leftovers(*, kept: bool = False) -> list[str]:
        """Remove what a killed owner left, and say what. A kept lab is left alone unless `kept`. Errors:
        ApplianceError when a living process owns the lab."""
        lock = _acquire()
        try:
            if _is_kept(lock) and not kept:
                return []
            removed = _remove_everything()
            _forget_owner(lock)
            return removed
        finally:
            os.close(lock)


def _acquire() -> int:
    """The lock of the lab as a descriptor, which children do not inherit. Errors: ApplianceError naming the holder."""
    try:
        RUN_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ApplianceError(f"cannot open {LOCK}: {error.strerror}", "run as root") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _read_owner(lock)
        os.close(lock)
        who = f"process {owner.get('pid', '?')} ({owner.get('purpose', 'lab')})"
        raise ApplianceError(f"the lab is in use by {who}", "wait for it to end, or zs-appliance down") from error
    return lock


def _write_owner(lock: int, purpose: str, kept: bool) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps({"pid": os.getpid(), "purpose": purpose, "kept": kept}).encode(), 0)


def _read_owner(lock: int) -> dict[str, object]:
    try:
        owner = json.loads(os.pread(lock, 4096, 0))
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_kept(lock: int) -> bool:
    return bool(_read_owner(lock).get("kept")) and (EDGE.exists() or CLIENT.exists())


def _forget_owner(lock: int) -> None:
    # The file itself stays: to unlink a lock file lets two processes hold "the" lock on two files.
    os.ftruncate(lock, 0)


def _build() -> None:
    for host in (CLIENT, EDGE):
        host.create()
    try:
        CLIENT.run(_join)
        for host, peer in ((CLIENT, EDGE), (EDGE, CLIENT)):
            _configure(host, peer)
        for host in (CLIENT, EDGE):
            host.run(functools.partial(_await_carrier, host.interface))
    except (NetlinkError, OSError) as error:
        raise ApplianceError(f"cannot build the lab: {error}", "zs-appliance doctor") from error


def _join() -> None:
    """In the client: make the pair, one queue each (so one NAPI), and put one end into the edge."""
    ends = [{"ifname": h.interface, "address": h.mac, "num_rx_queues": 1, "num_tx_queues": 1} for h in (CLIENT, EDGE)]
    with IPRoute() as route:
        route.link("add", kind="veth", **ends[0], peer={**ends[1], "net_ns_fd": EDGE.name})


def _configure(host: Host, peer: Host) -> None:
    def inside() -> None:
        _quiet_ipv6(host.interface)
        _turn_off_offloads(host.interface)
        with IPRoute() as route:
            route.link("set", index=_index(route, "lo"), state="up")
            link = _index(route, host.interface)
            route.link("set", index=link, state="up")
            route.addr("add", index=link, address=host.ipv4, prefixlen=IPV4_PREFIX_LENGTH)
            route.neigh("replace", ifindex=link, dst=peer.ipv4, lladdr=peer.mac, state="permanent")
            if has_ipv6():
                route.addr("add", index=link, address=host.ipv6, prefixlen=IPV6_PREFIX_LENGTH, flags=IFA_F_NODAD)
                route.neigh("replace", ifindex=link, dst=peer.ipv6, lladdr=peer.mac, state="permanent")

    host.run(inside)


def _await_carrier(interface: str) -> None:
    """The kernel opens a link's queue a moment after its peer comes up, from a work queue of its own
    (net/core/link_watch.c); what is sent before that vanishes."""
    deadline = time.monotonic() + CARRIER_DEADLINE_S
    with IPRoute() as route:
        index = _index(route, interface)
        while route.get_links(index)[0].get("operstate") != "UP":
            if time.monotonic() > deadline:
                raise ApplianceError(
                    f"{interface} did not come up within {CARRIER_DEADLINE_S:g} s", "zs-appliance doctor"
                )
            time.sleep(0.005)


def has_ipv6() -> bool:
    """Whether this kernel speaks IPv6 (it does not when booted with ipv6.disable=1); if not, nor does the lab."""
    return Path("/proc/sys/net/ipv6").is_dir()


def _quiet_ipv6(interface: str) -> None:
    """No duplicate address detection (addresses work at once), no router solicitations, no link-local address."""
    if has_ipv6():
        settings = Path("/proc/sys/net/ipv6/conf", interface)
        for name, value in {"accept_dad": 0, "accept_ra": 0, "router_solicitations": 0, "addr_gen_mode": 1}.items():
            (settings / name).write_text(str(value))


def _turn_off_offloads(interface: str) -> None:
    with Ethtool() as ethtool:
        current = ethtool.get_features(interface)
        for name in COUNT_DISTORTING_OFFLOADS:
            if (feature := current.features.get(name)) is not None and feature.available:
                feature.enable = False
        ethtool.set_features(interface, current)


def _index(route: IPRoute, interface: str) -> int:
    return int(route.link_lookup(ifname=interface)[0])


def _remove_everything() -> list[str]:
    """Children, then the pair (one end takes the other along), then the names. What was removed, as words."""
    removed = []
    for host in (CLIENT, EDGE):
        if stopped := stop_all(host.processes()):
            removed.append(f"{stopped} process(es) in {host.name}")
        if host.exists() and host.run(functools.partial(_delete_link, host.interface)):
            removed.append(f"link {host.interface}")
    for host in (CLIENT, EDGE):
        if host.remove():
            removed.append(f"namespace {host.name}")
    return removed


def _delete_link(interface: str) -> bool:
    with IPRoute() as route:
        found = route.link_lookup(ifname=interface)
        for index in found:
            route.link("del", index=index)
    return bool(found)


def _kernel_threads() -> Iterator[tuple[int, str]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # Kernel threads have no command line; reading `comm` first keeps the common case to one file.
                name = Path("/proc", entry, "comm").read_text().rstrip("\n")
                if name.startswith("napi/") and not Path("/proc", entry, "cmdline").read_bytes():
                    yield int(entry), name
