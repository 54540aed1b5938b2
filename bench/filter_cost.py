"""What the filter program costs a packet, in the kernel and without any interface (BPF_PROG_TEST_RUN). Needs root.

The time is that of the program alone: no driver, no memory of a packet that was not in the cache.
"""

import argparse
import os
import random
import sys
from dataclasses import dataclass
from ipaddress import IPv4Network
from statistics import median

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from xdp.frames import ethernet, framed, ipv4, ipv6, transport
from xdp.policy import DropPort, DropSource, Mode, Policy, Protocol, XdpError, verdict
from xdp.prefilter import Prefilter

PREFIXES = 10_000
PAYLOAD = bytes(128)


@dataclass(frozen=True, slots=True)
class Case:
    """A frame under a policy."""

    name: str
    policy: Policy
    frame: bytes


def udp_frame(source: str = "192.0.2.7", port: int = 4000) -> bytes:
    return framed(ipv4(source, "192.0.2.1", 17, transport(source, "192.0.2.1", 17, port, PAYLOAD)))


def ipv6_frame(extensions: int = 0) -> bytes:
    source, destination = "2001:db8::7", "2001:db8::1"
    datagram = transport(source, destination, 17, 4000, PAYLOAD)
    return framed(ipv6(source, destination, 17, datagram, extensions=[(60, bytes(8))] * extensions))


def cases() -> list[Case]:
    """From nothing to look up to a trie of ten thousand prefixes, dropped and passed."""
    rng = random.Random(2026)
    networks = {IPv4Network((rng.randrange(10 << 24, 200 << 24) & 0xFFFFFF00, 24)) for _ in range(PREFIXES * 2)}
    sources = tuple(DropSource(network) for network in sorted(networks)[::2][:PREFIXES])
    nothing = Policy(Mode.PROTECT)
    port = Policy(Mode.PROTECT, (DropPort(Protocol.UDP, 4000),))
    many = Policy(Mode.PROTECT, sources)
    blocked = str(sources[PREFIXES // 2].prefix[9])
    in_qinq = ethernet(udp_frame()[14:], 0x0800, tags=[(0x88A8, 2), (0x8100, 3)])
    return [
        Case("no rules, UDP over IPv4", nothing, udp_frame()),
        Case("no rules, UDP over IPv4 in QinQ", nothing, in_qinq),
        Case("no rules, UDP over IPv6", nothing, ipv6_frame()),
        Case("no rules, IPv6 with eight extension headers", nothing, ipv6_frame(8)),
        Case("one port rule, another port", port, udp_frame(port=4001)),
        Case("one port rule, its port", port, udp_frame()),
        Case("one port rule, its port, monitor", port.in_mode(Mode.MONITOR), udp_frame()),
        Case(f"{PREFIXES:,} prefixes, another source", many, udp_frame("203.0.113.9")),
        Case(f"{PREFIXES:,} prefixes, one of them", many, udp_frame(blocked)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each case, in turn")
    parser.add_argument("--repeat", type=int, default=1_000_000, help="packets a measurement")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    nanoseconds: dict[str, list[int]] = {}
    verdicts: dict[str, str] = {}
    try:
        with Prefilter.load() as prefilter:
            for _ in range(arguments.rounds):
                for case in cases():
                    prefilter.apply(case.policy)
                    run = prefilter.test_run(case.frame, repeat=arguments.repeat)
                    nanoseconds.setdefault(case.name, []).append(run.mean_ns)
                    verdicts[case.name] = ": ".join(verdict(case.policy, case.frame, 0))
    except (XdpError, OSError) as error:
        print(f"filter_cost.py: {error}", file=sys.stderr)
        return 2
    show(nanoseconds, verdicts)
    return 0


def show(nanoseconds: dict[str, list[int]], verdicts: dict[str, str]) -> None:
    table = Table(box=SIMPLE, title="The filter program, ns a packet")
    for column in ("packet and policy", "verdict", "median", "lowest", "highest"):
        table.add_column(column, justify="right" if column in ("median", "lowest", "highest") else "left")
    for name, values in nanoseconds.items():
        table.add_row(name, verdicts[name], *(f"{value:,.0f}" for value in (median(values), min(values), max(values))))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
