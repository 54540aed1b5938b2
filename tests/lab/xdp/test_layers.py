"""The same policy in XDP (native and generic) and in nftables, under the same real frames sent over a veth."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network

import pytest

from xdp import frames
from xdp.counters import Count, Counters
from xdp.filter import AttachMode, Filter
from xdp.nftables import Table
from xdp.policy import (
    DropPort,
    DropSource,
    Mode,
    Policy,
    Protocol,
    Reason,
    Verdict,
    boot_time_ns,
    verdict,
    verdict_at_input,
)

from .conftest import Named, Pair, framed

Outcome = tuple[Verdict, Reason]
CHUNK = 40
LAYERS = ["native", "generic", "nftables"]


@contextmanager
def layer(kind: str, pair: Pair, policy: Policy) -> Iterator[Filter | Table]:
    """The policy in force at the receiver, in one layer."""
    with pair.inside():
        if kind == "nftables":
            with Table(policy) as table:
                yield table
        else:
            with Filter.attach(pair.receiver_link, attach=AttachMode(kind)) as attached:
                attached.apply(policy)
                yield attached


def packets(counters: Counters) -> Counter[Outcome]:
    return Counter({outcome: count.packets for outcome, count in counters.by_outcome.items() if count.packets})


def settled(counted: Filter | Table, before: Counters, expected: Counter[Outcome]) -> Counter[Outcome]:
    """What was counted since `before`, once that is as much as expected or two seconds have passed."""
    deadline = time.monotonic() + 2
    while (found := packets(counted.counters() - before)) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kind", LAYERS)
def test_layer_and_model_agree_on_real_frames(
    pair: Pair, honest_corpus: list[Named], sample_policy: Callable[[Mode], Policy], kind: str, mode: Mode
) -> None:
    policy = sample_policy(mode)
    model = verdict_at_input if kind == "nftables" else verdict
    seen: Counter[Outcome] = Counter()
    with layer(kind, pair, policy) as counted:
        for at in range(0, len(honest_corpus), CHUNK):
            chunk = honest_corpus[at : at + CHUNK]
            outcomes = [model(policy, named.frame, boot_time_ns()) for named in chunk]
            expected = Counter(outcome for outcome in outcomes if outcome is not None)
            before = counted.counters()
            for named in chunk:
                pair.send(named.frame)
            found = settled(counted, before, expected)
            assert found == expected, culprits(counted, pair, chunk, outcomes)
            seen += expected
    kept_away = {Reason.NOT_IP} if kind == "nftables" else set()
    assert {reason for _, reason in seen} == set(Reason) - kept_away


def culprits(counted: Filter | Table, pair: Pair, chunk: list[Named], outcomes: list[Outcome | None]) -> str:
    """Sends the chunk again frame by frame and names those that differ."""
    lines = []
    for named, outcome in zip(chunk, outcomes, strict=True):
        before = counted.counters()
        pair.send(named.frame)
        time.sleep(0.05)
        found = packets(counted.counters() - before)
        if found != Counter([outcome] if outcome else []):
            lines.append(f"{named.name}: expected {outcome}, found {dict(found)} ({named.frame.hex()})")
    return "\n".join(lines) or "only the whole chunk differs"


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("version", [4, 6])
def test_protect_keeps_unwanted_datagrams_from_the_socket_and_monitor_does_not(
    pair: Pair, kind: str, version: int
) -> None:
    source, blocked = {4: ("10.78.0.9", "198.51.100.1"), 6: ("fd78::9", "2001:db8::1")}[version]
    rules = (DropPort(Protocol.UDP, 4000), DropSource(ip_network(blocked)))
    with (
        layer(kind, pair, Policy(Mode.PROTECT, rules)) as counted,
        pair.udp_socket(version, 4000) as unwanted,
        pair.udp_socket(version, 4001) as wanted,
    ):
        send_all(pair, source, blocked)
        assert wanted.recv(64) == b"from a free source"
        assert_empty(wanted, unwanted)
        before = counted.counters()
        counted.apply(Policy(Mode.MONITOR, rules))
        send_all(pair, source, blocked)
        assert unwanted.recv(64) == b"to a closed port"
        assert sorted(wanted.recv(64) for _ in range(2)) == [b"from a blocked source", b"from a free source"]
        assert packets(counted.counters() - before) == {
            (Verdict.PASS, Reason.PORT): 1,
            (Verdict.PASS, Reason.SOURCE): 1,
            (Verdict.PASS, Reason.CLEAN): 1,
        }
        assert before.dropped == 2


def send_all(pair: Pair, source: str, blocked: str) -> None:
    pair.send_udp(source, 4000, b"to a closed port")
    pair.send_udp(blocked, 4001, b"from a blocked source")
    pair.send_udp(source, 4001, b"from a free source")


def assert_empty(*sockets: socket.socket) -> None:
    for each in sockets:
        each.setblocking(False)
        with pytest.raises(BlockingIOError):
            each.recv(64)
        each.settimeout(2)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_datagram_in_fragments_is_dropped_by_its_port(pair: Pair, kind: str) -> None:
    with (
        layer(kind, pair, Policy(Mode.PROTECT, (DropPort(Protocol.UDP, 4000),))) as counted,
        pair.udp_socket(4, 4000) as unwanted,
        pair.udp_socket(4, 4001) as wanted,
    ):
        for frame in fragments(4000) + fragments(4001):
            pair.send(frame)
        assert len(wanted.recv(4096)) == 2000
        assert_empty(unwanted)
        # The stack reassembles before the input hook: nftables sees two datagrams, XDP four fragments.
        expected = {(Verdict.DROP, Reason.PORT): 1, (Verdict.PASS, Reason.CLEAN): 1}
        if kind != "nftables":
            expected[Verdict.PASS, Reason.FRAGMENT] = 2
        assert packets(counted.counters()) == expected


def fragments(port: int) -> list[bytes]:
    """A datagram of 2000 bytes to the receiver in two frames."""
    whole = frames.transport("10.78.0.9", "10.78.0.2", 17, port, bytes(2000))
    parts = ((whole[:1480], 0x2000), (whole[1480:], 1480 // 8))
    return [framed(frames.ipv4("10.78.0.9", "10.78.0.2", 17, part, fragment=field)) for part, field in parts]


@pytest.mark.parametrize("kind", LAYERS)
def test_expired_source_rule_lets_packets_through(pair: Pair, kind: str) -> None:
    ends_at = boot_time_ns() + 1_500_000_000
    rules = (DropSource(ip_network("198.51.100.0/24"), ends_at), DropSource(ip_network("2001:db8::/32"), ends_at))
    with (
        layer(kind, pair, Policy(Mode.PROTECT, rules)),
        pair.udp_socket(4, 4001) as over_ipv4,
        pair.udp_socket(6, 4001) as over_ipv6,
    ):
        for body in (b"too early", b"in time"):
            pair.send_udp("198.51.100.7", 4001, body)
            pair.send_udp("2001:db8::7", 4001, body)
            time.sleep(max(0.0, (ends_at - boot_time_ns()) / 1e9) + 0.05)
        assert over_ipv4.recv(64) == b"in time"
        assert over_ipv6.recv(64) == b"in time"


@pytest.mark.parametrize("kind", LAYERS)
def test_longer_prefix_that_lives_longer_outlives_the_wider_one(pair: Pair, kind: str) -> None:
    ends_at = boot_time_ns() + 1_000_000_000
    rules = (
        DropSource(ip_network("198.51.0.0/16"), ends_at),
        DropSource(ip_network("198.51.100.0/24"), ends_at - 900_000_000),  # shorter-lived: the wider one still counts
        DropSource(ip_network("198.51.100.128/25")),
        DropSource(ip_network("198.51.100.200/32"), ends_at),
    )
    sources = ["198.51.1.1", "198.51.100.1", "198.51.100.129", "198.51.100.200", "198.52.0.1"]
    with layer(kind, pair, Policy(Mode.PROTECT, rules)), pair.udp_socket(4, 4001) as receiving:
        time.sleep(0.3)
        for source in sources:
            pair.send_udp(source, 4001, f"early {source}".encode())
        assert receiving.recv(64) == b"early 198.52.0.1"
        assert_empty(receiving)
        time.sleep(max(0.0, (ends_at - boot_time_ns()) / 1e9) + 0.05)
        for source in sources:
            pair.send_udp(source, 4001, f"late {source}".encode())
        arrived = [receiving.recv(64).decode() for _ in range(3)]
        assert arrived == ["late 198.51.1.1", "late 198.51.100.1", "late 198.52.0.1"]
        assert_empty(receiving)


def test_table_counts_on_when_another_policy_is_applied(pair: Pair) -> None:
    with pair.inside(), Table(Policy(Mode.PROTECT, (DropPort(Protocol.UDP, 4000),))) as table:
        pair.send_udp("10.78.0.9", 4000)
        assert settled(table, Counters(), Counter({(Verdict.DROP, Reason.PORT): 1})) == {(Verdict.DROP, Reason.PORT): 1}
        table.apply(Policy(Mode.PROTECT, (DropPort(Protocol.UDP, 4002),)))
        pair.send_udp("10.78.0.9", 4000)
        pair.send_udp("10.78.0.9", 4002)
        expected = Counter({(Verdict.DROP, Reason.PORT): 2, (Verdict.PASS, Reason.CLEAN): 1})
        assert settled(table, Counters(), expected) == expected
        assert table.counters().of(Verdict.DROP, Reason.PORT) == Count(2, 2 * (20 + 8 + len("zeroserve")))
        assert table.exists()
    with pair.inside():
        assert not table.exists()


def test_table_of_ten_thousand_prefixes_is_held_as_given(pair: Pair) -> None:
    prefixes = [f"{a}.{b}.{c}.0/25" for a in (11, 12) for b in range(50) for c in range(0, 200, 2)]
    rules = tuple(DropSource(ip_network(prefix)) for prefix in prefixes)
    with layer("nftables", pair, Policy(Mode.PROTECT, rules)) as table:
        pair.send_udp("12.49.198.127", 4001)
        pair.send_udp("12.49.198.128", 4001)
        expected = Counter({(Verdict.DROP, Reason.SOURCE): 1, (Verdict.PASS, Reason.CLEAN): 1})
        assert settled(table, Counters(), expected) == expected


@pytest.mark.parametrize("attach", AttachMode)
def test_frames_in_a_vlan_are_judged_alike_in_every_layer(
    pair: Pair, vlan_frame: Callable[[int], bytes], attach: AttachMode
) -> None:
    """XDP sees the tag; nftables sees the packet of the VLAN device, which the rule holds for as well."""
    policy = Policy(Mode.PROTECT, (DropPort(Protocol.UDP, 4000),))
    with layer("nftables", pair, policy) as table:
        pair.send(vlan_frame(4000))
        pair.send(vlan_frame(4001))
        expected = Counter({(Verdict.DROP, Reason.PORT): 1, (Verdict.PASS, Reason.CLEAN): 1})
        assert settled(table, Counters(), expected) == expected
        with layer(attach, pair, policy) as attached:
            pair.send(vlan_frame(4000))
            pair.send(vlan_frame(4001))
            assert settled(attached, Counters(), expected) == expected
            passed_on = Counter({(Verdict.DROP, Reason.PORT): 1, (Verdict.PASS, Reason.CLEAN): 2})
            assert settled(table, Counters(), passed_on) == passed_on
