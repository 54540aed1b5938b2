"""What to drop, as data, and what each rule means. Both kernel layers are tested against `verdict`; neither defines it.

A frame gets one verdict and one reason, the first that applies:

1. `not_ip`: anything but IPv4 and IPv6, under at most two VLAN tags. Passes: a rule speaks of IP packets only.
2. `malformed`: the headers end too early or contradict each other, as far as the ports; more than two VLAN tags; more
   than eight IPv6 extension headers, or two fragment headers. Unwanted: whoever could not be read could not be judged,
   so letting it pass would be a way round every rule. The stack refuses nearly all of these itself. Checksums are not
   looked at, nor is anything behind the ports.
3. `port`: a rule names the packet's protocol and destination port. The first fragment of a datagram carries the ports
   and is judged by them; without it the others are never delivered.
4. `source`: an unexpired rule covers the source address. Overlapping rules add up: the longest-lived one counts.
5. `fragment`: any fragment but the first. It has no ports, so no port rule can match it. Passes.
6. `clean`: no rule has anything against it. Passes.

In mode `protect` the unwanted are dropped; in mode `monitor` everything passes and is counted under the same reasons.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Self, TypeAlias

from xdp.errors import XdpError
from xdp.packet import Headers, Protocol, Reading, read_at_input, read_frame

__all__ = [
    "UNWANTED",
    "DropPort",
    "DropSource",
    "Mode",
    "Network",
    "Policy",
    "Protocol",
    "Reason",
    "Rule",
    "Verdict",
    "XdpError",
    "boot_time_ns",
    "source_expiries",
    "verdict",
    "verdict_at_input",
]

Network: TypeAlias = IPv4Network | IPv6Network
_NANOSECONDS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_FORMS = "`drop udp port 4000`, `drop tcp port 25`, `drop from 192.0.2.0/24` or `drop from 2001:db8::/32 for 60s`"
_WIDEST_BITS = {4: 8, 6: 16}  # a wider prefix than this is a slip of the pen until it is forced
_ALL_SOURCES: tuple[Network, ...] = (IPv4Network("0.0.0.0/0"), IPv6Network("2000::/3"))  # all that is assigned


class Mode(StrEnum):
    """Whether unwanted packets are dropped or only counted."""

    MONITOR = "monitor"
    PROTECT = "protect"


class Verdict(StrEnum):
    """What became of a packet."""

    PASS = "pass"
    DROP = "drop"


class Reason(StrEnum):
    """Why, as defined above; the order is that of `enum zs_reason` in maps.h."""

    CLEAN = "clean"
    NOT_IP = "not_ip"
    MALFORMED = "malformed"
    PORT = "port"
    SOURCE = "source"
    FRAGMENT = "fragment"


UNWANTED = frozenset({Reason.MALFORMED, Reason.PORT, Reason.SOURCE})


def boot_time_ns() -> int:
    """Now on CLOCK_BOOTTIME, the clock that rules expire by: it never jumps and goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class DropPort:
    """Packets to this destination port are unwanted."""

    protocol: Protocol
    port: int

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise XdpError(f"{self.port} is no port", "give a number from 1 to 65535")

    def __str__(self) -> str:
        return f"drop {self.protocol.name.lower()} port {self.port}"


@dataclass(frozen=True, slots=True)
class DropSource:
    """Packets from this prefix are unwanted until `expires_at_ns` on CLOCK_BOOTTIME (None: for good)."""

    prefix: Network
    expires_at_ns: int | None = None

    def __post_init__(self) -> None:
        if self.expires_at_ns is not None and not 0 <= self.expires_at_ns < 2**64 - 1:
            raise XdpError(f"{self.expires_at_ns} ns is no time on the boot clock", "give it as nanoseconds since boot")
        if isinstance(self.prefix, IPv6Network) and self.prefix.subnet_of(IPv6Network("::ffff:0:0/96")):
            raise XdpError(f"{self.prefix} is an IPv4 prefix in IPv6 writing", "write it as IPv4")

    def is_active(self, now_ns: int) -> bool:
        """Whether the rule still holds at `now_ns`; at the very end it does not."""
        return self.expires_at_ns is None or now_ns < self.expires_at_ns

    def covers(self, source: IPv4Address | IPv6Address) -> bool:
        """Whether the prefix contains the address."""
        return source.version == self.prefix.version and source in self.prefix

    def __str__(self) -> str:
        return f"drop from {self.prefix}"


Rule = DropPort | DropSource


@dataclass(frozen=True, slots=True)
class Policy:
    """A mode and the rules, each once, in the order given (which has no meaning)."""

    mode: Mode = Mode.MONITOR
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", Mode(self.mode))
        object.__setattr__(self, "rules", tuple(dict.fromkeys(self.rules)))

    @classmethod
    def parse(
        cls, lines: Iterable[str], *, mode: Mode = Mode.PROTECT, origin: str = "policy", now_ns: int | None = None
    ) -> Self:
        """Reads one rule a line; `#` begins a comment. `for 60s` (ms, s, m, h, d) counts from `now_ns` (now).

        Raises `XdpError` with `origin` and the line's number.
        """
        now = boot_time_ns() if now_ns is None else now_ns
        rules: list[Rule] = []
        for number, line in enumerate(lines, 1):
            words = line.split("#", 1)[0].split()
            if not words:
                continue
            try:
                rules.append(_parse_rule(words, now))
            except XdpError as error:
                raise XdpError(f"{origin}:{number}: {error.message}", error.hint) from None
        return cls(mode, tuple(rules))

    @classmethod
    def load(cls, path: Path, *, mode: Mode = Mode.PROTECT) -> Self:
        """Reads a policy file; raises `XdpError`."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise XdpError(
                f"cannot read the policy {path} ({error})", "name a UTF-8 text file, a rule a line"
            ) from None
        return cls.parse(text.splitlines(), mode=mode, origin=str(path))

    def in_mode(self, mode: Mode) -> Self:
        """The same rules in another mode."""
        return replace(self, mode=mode)

    def ports(self, protocol: Protocol) -> frozenset[int]:
        """The unwanted destination ports of one protocol."""
        return frozenset(rule.port for rule in self.rules if isinstance(rule, DropPort) and rule.protocol is protocol)

    def source_rules(self) -> Iterator[DropSource]:
        """The rules about source prefixes."""
        return (rule for rule in self.rules if isinstance(rule, DropSource))

    def guarded(self, protected_tcp_ports: frozenset[int], force: bool = False) -> Self:
        """This policy, if it leaves the way in open: the protected ports (SSH, HTTPS), and most of the Internet.

        Raises `XdpError` with the reason for a rule that drops a protected TCP port, a prefix wider than /8 (IPv4) or
        /16 (IPv6), or prefixes that together cover half of all sources; unless `force`.
        """
        if force:
            return self
        for port in sorted(self.ports(Protocol.TCP) & protected_tcp_ports):
            raise XdpError(
                f"the rule `drop tcp port {port}` would cut off SSH or HTTPS", "leave it out, or force it if you must"
            )
        for rule in self.source_rules():
            if rule.prefix.prefixlen < _WIDEST_BITS[rule.prefix.version]:
                raise XdpError(
                    f"the rule `{rule}` covers so many sources that it would cut you off",
                    f"name a prefix of /{_WIDEST_BITS[rule.prefix.version]} or longer, or force it if you must",
                )
        for everything in _ALL_SOURCES:
            covered = _covered_share(self.source_rules(), everything)
            if covered >= 0.5:
                raise XdpError(
                    f"the source rules together drop {covered:.0%} of all IPv{everything.version} sources",
                    "leave some out, or force it if you must",
                )
        return self


def _covered_share(rules: Iterable[DropSource], everything: Network) -> float:
    reached, end = int(everything.network_address), int(everything.broadcast_address) + 1
    covered = 0
    prefixes = (rule.prefix for rule in rules if rule.prefix.version == everything.version)
    for first, last in sorted((int(prefix.network_address), int(prefix.broadcast_address)) for prefix in prefixes):
        covered += max(0, min(last + 1, end) - max(first, reached))
        reached = max(reached, last + 1)
    return covered / everything.num_addresses


def _parse_rule(words: list[str], now_ns: int) -> Rule:
    match words:
        case ["drop", ("udp" | "tcp") as protocol, "port", port]:
            if not re.fullmatch(r"[0-9]{1,5}", port):
                raise XdpError(f"`{port}` is no port", "give a number from 1 to 65535")
            return DropPort(Protocol[protocol.upper()], int(port))
        case ["drop", "from", prefix]:
            return DropSource(_parse_prefix(prefix))
        case ["drop", "from", prefix, "for", duration]:
            return DropSource(_parse_prefix(prefix), now_ns + _parse_duration(duration))
    raise XdpError(f"cannot make sense of `{' '.join(words)}`", f"write {_FORMS}")


def _parse_prefix(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise XdpError(
            f"`{text}` is no address or prefix", "write it as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32"
        ) from None
    raise XdpError(f"`{text}` has bits set behind the prefix", f"write {network}, or a single address without the /")


def _parse_duration(text: str) -> int:
    parts = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", text)
    if not parts or int(parts[1]) == 0:
        raise XdpError(f"`{text}` is no duration", "write it as 500ms, 60s, 10m, 2h or 1d")
    return int(parts[1]) * _NANOSECONDS[parts[2]]


def verdict(policy: Policy, packet: bytes, now_ns: int) -> tuple[Verdict, Reason]:
    """What the policy says of an Ethernet frame that arrives at `now_ns` on CLOCK_BOOTTIME: the reference model."""
    return _outcome(policy, _reason(policy, read_frame(packet), now_ns))


def verdict_at_input(policy: Policy, packet: bytes, now_ns: int) -> tuple[Verdict, Reason] | None:
    """The same for nftables' input hook; None where the frame does not get there as it is (see `read_at_input`).

    The rules mean the same. What differs is what the layer can see: netfilter does not count extension headers, does
    not notice when the last one overruns the packet, and does not look behind an IPv6 authentication header.
    """
    headers = read_at_input(packet)
    return None if headers is None else _outcome(policy, _reason(policy, headers, now_ns))


def _reason(policy: Policy, headers: Headers, now_ns: int) -> Reason:
    if headers.reading is Reading.FOREIGN:
        return Reason.NOT_IP
    if headers.reading is Reading.UNREADABLE:
        return Reason.MALFORMED
    if headers.destination_port is not None and any(
        rule.port == headers.destination_port and rule.protocol == headers.protocol
        for rule in policy.rules
        if isinstance(rule, DropPort)
    ):
        return Reason.PORT
    source = headers.source
    if source is not None and any(rule.covers(source) and rule.is_active(now_ns) for rule in policy.source_rules()):
        return Reason.SOURCE
    return Reason.FRAGMENT if headers.is_later_fragment else Reason.CLEAN


def _outcome(policy: Policy, reason: Reason) -> tuple[Verdict, Reason]:
    is_dropped = policy.mode is Mode.PROTECT and reason in UNWANTED
    return (Verdict.DROP if is_dropped else Verdict.PASS), reason


def source_expiries(policy: Policy) -> Mapping[Network, int | None]:
    """The source rules in the shape that both layers hold: for each prefix the latest end of all rules that cover it.

    With that, the longest match alone answers what "any unexpired rule" asks. A prefix that adds nothing to a wider
    one is left out. In ascending order, a wider prefix before those inside it.
    """
    latest: dict[Network, int | None] = {}
    for rule in policy.source_rules():
        known = latest.get(rule.prefix, rule.expires_at_ns)
        latest[rule.prefix] = None if None in (known, rule.expires_at_ns) else max(known or 0, rule.expires_at_ns or 0)
    result: dict[Network, int | None] = {}
    around: list[Network] = []  # the kept prefixes that cover the current one, widest first
    for prefix in sorted(latest, key=lambda p: (p.version, int(p.network_address), p.prefixlen)):
        while around and not _contains(around[-1], prefix):
            around.pop()
        outer = result[around[-1]] if around else 0
        expires = latest[prefix]
        if outer is None or (expires is not None and expires <= outer):
            continue
        result[prefix] = expires
        around.append(prefix)
    return result


def _contains(outer: Network, inner: Network) -> bool:
    return outer.version == inner.version and outer.prefixlen <= inner.prefixlen and inner.network_address in outer
