"""What a policy file may say, what the guard refuses, and what the rules mean: no kernel in here."""

from __future__ import annotations

import random
from collections.abc import Callable
from ipaddress import IPv4Address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdp.frames import ethernet, framed, ipv4, ipv6, ipv6_fragment_header, transport
from xdp.policy import (
    DropPort,
    DropSource,
    Mode,
    Policy,
    Protocol,
    Reason,
    Verdict,
    XdpError,
    source_expiries,
    verdict,
    verdict_at_input,
)

SECOND = 10**9
TWO_PORTS = "drop udp port 4000\ndrop tcp port 25"


def udp4(source: str = "192.0.2.7", port: int = 4000, **more: object) -> bytes:
    build: Callable[..., bytes] = ipv4
    return framed(build(source, "192.0.2.1", 17, transport(source, "192.0.2.1", 17, port), **more))


def udp6(source: str = "2001:db8::7", port: int = 4000, **more: object) -> bytes:
    build: Callable[..., bytes] = ipv6
    return framed(build(source, "2001:db8::1", 17, transport(source, "2001:db8::1", 17, port), **more))


def parse(text: str, now_ns: int = 0) -> Policy:
    return Policy.parse(text.splitlines(), origin="rules", now_ns=now_ns)


def test_every_form_of_rule_is_read() -> None:
    text = """
    # what the neighbours send
    drop udp port 4000          # the experiment's
    drop tcp port 25
    drop from 192.0.2.7
    drop from 198.51.100.0/24 for 1500ms
    drop from 2001:db8::/32 for 2h
    """
    assert parse(text, now_ns=SECOND).rules == (
        DropPort(Protocol.UDP, 4000),
        DropPort(Protocol.TCP, 25),
        DropSource(ip_network("192.0.2.7/32")),
        DropSource(ip_network("198.51.100.0/24"), SECOND + 1_500_000_000),
        DropSource(ip_network("2001:db8::/32"), 7201 * SECOND),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("drop", "cannot make sense of `drop`"),
        ("allow udp port 1", "cannot make sense of `allow udp port 1`"),
        ("drop udp 4000", "cannot make sense of `drop udp 4000`"),
        ("drop sctp port 4000", "cannot make sense of `drop sctp port 4000`"),
        ("drop udp port 0", "0 is no port"),
        ("drop udp port 65536", "65536 is no port"),
        ("drop udp port -1", "`-1` is no port"),
        ("drop udp port ssh", "`ssh` is no port"),
        ("drop udp port ٤", "`٤` is no port"),
        ("drop from 192.0.2.0/33", "`192.0.2.0/33` is no address or prefix"),
        ("drop from example.org", "`example.org` is no address or prefix"),
        ("drop from 192.0.2.1/24", "`192.0.2.1/24` has bits set behind the prefix"),
        # Python 3.13 writes such an address with dots, Python 3.11 without.
        ("drop from ::ffff:192.0.2.0/120", f"{ip_network('::ffff:192.0.2.0/120')} is an IPv4 prefix in IPv6 writing"),
        ("drop from 192.0.2.0/24 for 60", "`60` is no duration"),
        ("drop from 192.0.2.0/24 for 0s", "`0s` is no duration"),
        ("drop from 192.0.2.0/24 for", "cannot make sense of `drop from 192.0.2.0/24 for`"),
    ],
)
def test_malformed_line_is_refused_with_its_place(line: str, message: str) -> None:
    with pytest.raises(XdpError) as refusal:
        parse(f"# first\n\n{line} # third\n")
    assert refusal.value.message == f"rules:3: {message}"
    assert refusal.value.hint
    assert "\n" not in str(refusal.value)


def test_policy_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "policy.txt"
    path.write_text(TWO_PORTS)
    assert Policy.load(path) == parse(TWO_PORTS)
    path.write_text(TWO_PORTS + "\ndrop everything")
    with pytest.raises(XdpError, match=rf"^{path}:3: "):
        Policy.load(path)
    path.write_bytes(b"drop udp port \xff")
    with pytest.raises(XdpError, match="cannot read the policy"):
        Policy.load(path)
    with pytest.raises(XdpError, match="cannot read the policy"):
        Policy.load(tmp_path / "absent")


def test_rules_are_kept_once() -> None:
    assert parse(TWO_PORTS + "\n" + TWO_PORTS).rules == parse(TWO_PORTS).rules


PROTECTED = frozenset({22, 443, 8443})


@pytest.mark.parametrize("port", sorted(PROTECTED))
def test_guard_refuses_protected_ports(port: int) -> None:
    policy = parse(f"drop tcp port {port}")
    with pytest.raises(XdpError, match=f"`drop tcp port {port}` would cut off SSH or HTTPS"):
        policy.guarded(PROTECTED)
    assert policy.guarded(PROTECTED, force=True) is policy


@pytest.mark.parametrize(
    "line", ["drop udp port 443", "drop tcp port 80", "drop from 10.0.0.0/8", "drop from fd00::/16"]
)
def test_guard_lets_other_rules_be(line: str) -> None:
    assert parse(line).guarded(PROTECTED) == parse(line)


@pytest.mark.parametrize("prefix", ["0.0.0.0/0", "128.0.0.0/1", "10.0.0.0/7", "::/0", "2000::/3", "2000::/15"])
def test_guard_refuses_prefixes_that_cut_everyone_off(prefix: str) -> None:
    policy = parse(f"drop from {prefix}")
    with pytest.raises(XdpError, match="covers so many sources"):
        policy.guarded(PROTECTED)
    assert policy.guarded(PROTECTED, force=True) is policy


def test_guard_refuses_narrow_prefixes_that_cut_everyone_off_together() -> None:
    half = [f"drop from {first}.0.0.0/8" for first in range(128)]
    overlapping = [*half[:-1], "drop from 0.0.0.0/8", "drop from 5.5.0.0/16"]
    assert Policy.parse(overlapping).guarded(PROTECTED)
    with pytest.raises(XdpError, match="drop 50% of all IPv4 sources"):
        Policy.parse(half).guarded(PROTECTED)
    of_ipv6 = [f"drop from {0x2000 + number:x}::/16" for number in range(0x1000)]
    with pytest.raises(XdpError, match="drop 50% of all IPv6 sources"):
        Policy.parse(of_ipv6).guarded(PROTECTED)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (udp4(), Reason.PORT),
        (udp4(port=4001), Reason.CLEAN),
        (udp6(), Reason.PORT),
        (udp4("198.51.100.1", 4000), Reason.PORT),
        (udp4("198.51.100.1", 4001), Reason.SOURCE),
        (udp4(fragment=0x2000), Reason.PORT),
        (udp4(fragment=0x2001), Reason.FRAGMENT),
        (udp4("198.51.100.1", fragment=0x0001), Reason.SOURCE),
        (udp4(options=b"\x01" * 40), Reason.PORT),
        (udp6(extensions=[(44, ipv6_fragment_header(0, True))]), Reason.PORT),
        (udp6(extensions=[(44, ipv6_fragment_header(8, False))]), Reason.FRAGMENT),
        (udp6(extensions=[(0, bytes(8)), (60, bytes(8)), (43, bytes(8)), (51, b"\0\x01" + bytes(10))]), Reason.PORT),
        (udp6(extensions=[(60, bytes(8))] * 8), Reason.PORT),
        (udp6(extensions=[(60, bytes(8))] * 9), Reason.MALFORMED),
        (udp4()[:40], Reason.MALFORMED),
        (udp4()[:14], Reason.MALFORMED),
        (b"", Reason.MALFORMED),
        (ethernet(udp4()[14:], 0x0800, tags=[(0x88A8, 1), (0x8100, 2)]), Reason.PORT),
        (ethernet(udp4()[14:], 0x0800, tags=[(0x8100, 1)] * 3), Reason.MALFORMED),
        (ethernet(b"", 0x0806), Reason.NOT_IP),
    ],
)
def test_each_kind_of_packet_has_its_reason(frame: bytes, reason: Reason) -> None:
    policy = parse("drop udp port 4000\ndrop from 198.51.100.0/24")
    unwanted = reason in (Reason.PORT, Reason.SOURCE, Reason.MALFORMED)
    assert verdict(policy, frame, 0) == (Verdict.DROP if unwanted else Verdict.PASS, reason)
    assert verdict(policy.in_mode(Mode.MONITOR), frame, 0) == (Verdict.PASS, reason)


def test_port_rule_holds_for_its_protocol_only() -> None:
    assert verdict(parse("drop tcp port 4000"), udp4(), 0) == (Verdict.PASS, Reason.CLEAN)


def test_source_rule_ends_at_its_time() -> None:
    policy = parse("drop from 192.0.2.0/24 for 60s", now_ns=SECOND)
    assert verdict(policy, udp4(), 61 * SECOND - 1)[1] is Reason.SOURCE
    assert verdict(policy, udp4(), 61 * SECOND)[1] is Reason.CLEAN


@pytest.mark.parametrize(
    ("frame", "at_input"),
    [
        (udp4(), Reason.PORT),
        (udp4(fragment=0x2000), None),
        (udp4(fragment=0x2001), None),
        (udp4()[:40], None),
        (udp4()[:24] + b"\0\0" + udp4()[26:], None),  # the checksum
        (ethernet(udp4()[14:], 0x0800, tags=[(0x8100, 5)]), None),
        (ethernet(udp4()[14:], 0x0800, tags=[(0x8100, 0)]), Reason.PORT),
        (ethernet(b"", 0x0806), None),
        (framed(ipv4("192.0.2.7", "192.0.2.1", 17, b"abc")), Reason.MALFORMED),
        (udp6(extensions=[(44, ipv6_fragment_header(8, False))]), Reason.FRAGMENT),
        (udp6(extensions=[(44, ipv6_fragment_header(0, True))] * 2), Reason.MALFORMED),
        (udp6(extensions=[(60, bytes(8))] * 9), Reason.PORT),
        (udp6(extensions=[(51, b"\0\x01" + bytes(10))]), Reason.CLEAN),
    ],
)
def test_input_hook_sees_what_the_stack_leaves_of_a_packet(frame: bytes, at_input: Reason | None) -> None:
    outcome = verdict_at_input(parse("drop udp port 4000"), frame, 0)
    assert (outcome and outcome[1]) == at_input


prefixes = st.builds(
    lambda number, bits: ip_network((number >> 32 - bits << 32 - bits, bits)),
    st.integers(0, 2**32 - 1).map(lambda number: number & 0xC3000003),  # few enough that prefixes nest
    st.integers(1, 32),
)
endings = st.none() | st.integers(0, 5)


@given(st.lists(st.builds(DropSource, prefixes, endings), max_size=12), st.randoms(use_true_random=False))
def test_longest_match_answers_what_any_active_rule_asks(rules: list[DropSource], rng: random.Random) -> None:
    """What both layers hold (one expiry for the longest match) must say the same as the definition (any rule)."""
    policy = Policy(Mode.PROTECT, tuple(rules))
    expiries = source_expiries(policy)
    edges = [int(rule.prefix[at]) + step for rule in rules for at in (0, -1) for step in (-1, 0, 1)]
    for number in {edge % 2**32 for edge in edges} | {rng.getrandbits(32)}:
        address = IPv4Address(number)
        for now_ns in range(7):
            matches = [prefix for prefix in expiries if address in prefix]
            longest = expiries[max(matches, key=lambda prefix: prefix.prefixlen)] if matches else 0
            held = longest is None or now_ns < longest
            assert held == any(rule.covers(address) and rule.is_active(now_ns) for rule in rules)
