"""The table's text: what it holds for a policy. Whether the kernel does the same is tested in the lab."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdp.nftables import Table, render, source_spans
from xdp.policy import DropPort, DropSource, Mode, Policy, Protocol, XdpError

MS = 10**6
prefixes = st.builds(
    lambda number, bits: ip_network((number >> 32 - bits << 32 - bits, bits)),
    st.integers(0, 2**32 - 1).map(lambda number: number & 0xC3000003),
    st.integers(1, 32),
)
endings = st.none() | st.integers(0, 5).map(lambda n: n * 100 * MS)


@given(st.lists(st.builds(DropSource, prefixes, endings), max_size=12), st.randoms(use_true_random=False))
def test_spans_hold_what_any_active_rule_asks(rules: list[DropSource], rng: random.Random) -> None:
    now_ns = 150 * MS
    spans = source_spans(Policy(Mode.PROTECT, tuple(rules)), now_ns)
    for earlier, later in pairwise(spans):
        assert earlier.last < later.first
    edges = [int(rule.prefix[at]) + step for rule in rules for at in (0, -1) for step in (-1, 0, 1)]
    for number in {edge % 2**32 for edge in edges} | {rng.getrandbits(32)}:
        at_ms = rng.choice([150, 250, 350, 450, 550])
        span = next((span for span in spans if span.first <= number <= span.last), None)
        held = span is not None and (span.left_ms is None or 150 + span.left_ms > at_ms)
        assert held == any(rule.covers(IPv4Address(number)) and rule.is_active(at_ms * MS) for rule in rules)


def test_timeout_is_rounded_up_and_never_to_nothing() -> None:
    rules = (DropSource(ip_network("192.0.2.0/24"), 1), DropSource(ip_network("198.51.100.0/24"), 60_000 * MS + 1))
    text = render(Policy(Mode.PROTECT, rules), now_ns=0)
    assert "192.0.2.0-192.0.2.255 timeout 10ms, 198.51.100.0-198.51.100.255 timeout 60001ms" in text


def test_expired_rules_are_left_out() -> None:
    assert "192.0.2" not in render(Policy(Mode.PROTECT, (DropSource(ip_network("192.0.2.0/24"), 5),)), now_ns=5)


def test_monitor_mode_drops_nothing() -> None:
    policy = Policy(Mode.MONITOR, (DropPort(Protocol.UDP, 4000), DropSource(ip_network("192.0.2.0/24"))))
    rules = [line for line in render(policy).splitlines() if line.startswith("add rule")]
    assert not any(line.endswith(" drop") for line in rules)
    assert "add rule inet zs_prefilter input udp dport @udp_ports counter name pass_port accept" in rules
    assert any(line.endswith(" drop") for line in render(policy.in_mode(Mode.PROTECT)).splitlines())


@pytest.mark.parametrize("name", ["prefilter", "zs_a; flush ruleset", "zs_a b", ""])
def test_only_names_of_ours_are_taken(name: str) -> None:
    with pytest.raises(XdpError, match="no name for a table of ours"):
        Table(Policy(), name=name)
