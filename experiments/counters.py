"""What the kernel counts, read from /proc: CPU time per core and per thread, softirqs, and packets that were lost.

Reading and parsing only. What the differences mean is decided in `runner` (accounting) and `analysis` (statistics).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """The first eight columns of a cpu line of /proc/stat in seconds (guest time is already part of user and nice)."""

    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    irq: float
    softirq: float
    steal: float

    @property
    def total(self) -> float:
        return self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq + self.steal

    @property
    def all_idle(self) -> float:
        """Idle, and idle while a task waits for a disk: in both the core does nothing."""
        return self.idle + self.iowait


def parse_stat(text: str) -> tuple[CpuTimes, dict[int, CpuTimes]]:
    """/proc/stat -> (all CPUs together, each CPU by number). Source: proc_stat(5)."""
    together: CpuTimes | None = None
    cores: dict[int, CpuTimes] = {}
    for line in text.splitlines():
        name, *columns = line.split()
        if not name.startswith("cpu"):
            break
        times = CpuTimes(*(int(column) / _TICKS_PER_SECOND for column in columns[:8]))
        if name == "cpu":
            together = times
        else:
            cores[int(name[3:])] = times
    if together is None:
        raise ValueError("/proc/stat has no cpu line")
    return together, cores


def busy_percent(before: CpuTimes, after: CpuTimes) -> float:
    """The seed's formula: (delta total - delta idle) / delta total x 100; 0 when no time has passed."""
    total = after.total - before.total
    return 100.0 * (total - (after.all_idle - before.all_idle)) / total if total > 0 else 0.0


def parse_softirqs(text: str, kind: str) -> dict[int, int]:
    """/proc/softirqs -> count per CPU of one kind, such as NET_RX."""
    head, *lines = text.splitlines()
    cpus = [int(name.removeprefix("CPU")) for name in head.split()]
    for line in lines:
        name, *counts = line.split()
        if name == f"{kind}:":
            return dict(zip(cpus, map(int, counts), strict=False))
    raise ValueError(f"/proc/softirqs has no {kind}")


def parse_snmp(text: str, protocol: str) -> dict[str, int]:
    """/proc/net/snmp -> the named counters of one protocol, such as Udp."""
    lines = [line.split() for line in text.splitlines() if line.startswith(f"{protocol}:")]
    if len(lines) != 2:
        raise ValueError(f"/proc/net/snmp has no {protocol}")
    names, values = lines
    return dict(zip(names[1:], map(int, values[1:]), strict=True))


@dataclass(frozen=True, slots=True)
class LinkDrops:
    """Packets that an interface gave up, by direction."""

    receive: int
    transmit: int


def parse_net_dev(text: str) -> dict[str, LinkDrops]:
    """/proc/net/dev -> drops by interface (the fourth column of each direction)."""
    links: dict[str, LinkDrops] = {}
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(":")
        columns = [int(column) for column in numbers.split()]
        links[name.strip()] = LinkDrops(receive=columns[3], transmit=columns[11])
    return links


def parse_softnet_drops(text: str) -> int:
    """/proc/net/softnet_stat -> packets dropped at full per-CPU backlogs, all CPUs (second column, hexadecimal)."""
    return sum(int(line.split()[1], 16) for line in text.splitlines() if line)


def parse_udp_waiting(text: str, port: int) -> int:
    """/proc/net/udp -> bytes of socket memory that wait to be read from the sockets of a local port (rx_queue)."""
    waiting = 0
    for line in text.splitlines()[1:]:
        columns = line.split()
        if int(columns[1].rpartition(":")[2], 16) == port:
            waiting += int(columns[4].rpartition(":")[2], 16)
    return waiting


def process_cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process (or of one kernel thread) in nanoseconds.

    Source: Documentation/scheduler/sched-stats.rst, /proc/<pid>/task/<tid>/schedstat, first field.
    """
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


@dataclass(frozen=True, slots=True)
class CpuSnapshot:
    """CPU time and softirqs at one moment; `at_s` is CLOCK_MONOTONIC, `by_process_ns` has the names given to `read`."""

    at_s: float
    together: CpuTimes
    by_core: Mapping[int, CpuTimes]
    net_rx_by_core: Mapping[int, int]
    by_process_ns: Mapping[str, int]

    @classmethod
    def read(cls, processes: Mapping[str, Iterable[int]]) -> CpuSnapshot:
        """Read everything, the per-core times first: `processes` maps a name to the pids that it stands for."""
        at_s = time.monotonic()
        together, by_core = parse_stat(Path("/proc/stat").read_text())
        return cls(
            at_s=at_s,
            together=together,
            by_core=by_core,
            net_rx_by_core=parse_softirqs(Path("/proc/softirqs").read_text(), "NET_RX"),
            by_process_ns={name: sum(map(process_cpu_ns, pids)) for name, pids in processes.items()},
        )


@dataclass(frozen=True, slots=True)
class CpuWindow:
    """What happened between two snapshots. Percentages are of one core, or of the whole machine for `busy_percent`.

    `occupied_percent_per_core` is 100 x (1 - delta idle / elapsed). The kernel measures idle time with its clock but
    guesses the busy kinds by looking at each tick, so this one does not depend on where the ticks fall; the seed's
    `busy_percent` does a little.
    """

    elapsed_s: float
    busy_percent: float
    busy_percent_per_core: tuple[float, ...]
    occupied_percent_per_core: tuple[float, ...]
    softirq_s_per_core: tuple[float, ...]
    steal_percent: float
    net_rx_per_core: tuple[int, ...]
    process_ns: Mapping[str, int]

    @classmethod
    def between(cls, before: CpuSnapshot, after: CpuSnapshot) -> CpuWindow:
        elapsed_s = after.at_s - before.at_s
        cores = [(before.by_core[core], after.by_core[core]) for core in sorted(after.by_core)]
        total = after.together.total - before.together.total
        steal = after.together.steal - before.together.steal
        return cls(
            elapsed_s=elapsed_s,
            busy_percent=busy_percent(before.together, after.together),
            busy_percent_per_core=tuple(busy_percent(*pair) for pair in cores),
            occupied_percent_per_core=tuple(
                max(0.0, 100.0 * (1 - (then.all_idle - first.all_idle) / elapsed_s)) for first, then in cores
            ),
            softirq_s_per_core=tuple(then.softirq - first.softirq for first, then in cores),
            steal_percent=100.0 * steal / total if total > 0 else 0.0,
            net_rx_per_core=tuple(
                after.net_rx_by_core[core] - before.net_rx_by_core[core] for core in sorted(after.by_core)
            ),
            process_ns={name: ns - before.by_process_ns[name] for name, ns in after.by_process_ns.items()},
        )


@dataclass(frozen=True, slots=True)
class LossSnapshot:
    """Every counter on the way from the sender to the sink that grows when a datagram of the load is lost."""

    link: int
    backlog: int
    no_socket: int
    bad_datagram: int

    @classmethod
    def read(cls, *, client_pid: int, client_link: str, edge_pid: int, edge_link: str) -> LossSnapshot:
        """Read the counters of both ends, each through a process that lives in its network namespace."""
        client, edge = Path(f"/proc/{client_pid}/net"), Path(f"/proc/{edge_pid}/net")
        udp = parse_snmp((edge / "snmp").read_text(), "Udp")
        return cls(
            link=parse_net_dev((client / "dev").read_text())[client_link].transmit
            + parse_net_dev((edge / "dev").read_text())[edge_link].receive,
            backlog=parse_softnet_drops((edge / "softnet_stat").read_text()),
            no_socket=udp["NoPorts"],
            # InErrors counts full buffers too, which the sink's own socket reports.
            bad_datagram=udp["InErrors"] - udp["RcvbufErrors"],
        )

    def losses_until(self, after: LossSnapshot) -> dict[str, int]:
        """Datagrams lost between two snapshots, by place."""
        return {
            "link": after.link - self.link,
            "backlog": after.backlog - self.backlog,
            "no_socket": after.no_socket - self.no_socket,
            "bad_datagram": after.bad_datagram - self.bad_datagram,
        }
