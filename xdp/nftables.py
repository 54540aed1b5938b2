"""The same policy as one nftables table of its own, at the input hook. What a rule means is defined in policy.py.

The table speaks of packets that arrive from outside, not of loopback. A VLAN-tagged frame arrives here as a plain IP
packet of its VLAN device, and the rules hold for it alike; without such a device it never arrives. Which packets the
stack keeps from the hook, and what netfilter sees of the others, is said by `verdict_at_input`. Netfilter keeps time
in jiffies: a rule ends here up to 10 ms before its time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from types import TracebackType
from typing import Any, Self

from xdp.counters import Count, Counters
from xdp.errors import XdpError
from xdp.policy import UNWANTED, Mode, Network, Policy, Protocol, Reason, Verdict, boot_time_ns, source_expiries

PREFIX = "zs_"
_JIFFY_MS = 10  # the longest jiffy: netfilter rounds timeouts down to jiffies, and takes 0 for "for good"
_COUNTED = tuple(
    (verdict, reason)
    for reason in (Reason.CLEAN, Reason.MALFORMED, Reason.PORT, Reason.SOURCE, Reason.FRAGMENT)
    for verdict in Verdict
    if verdict is Verdict.PASS or reason in UNWANTED
)
_PORT_SETS = {Protocol.UDP: "udp_ports", Protocol.TCP: "tcp_ports"}
_SOURCE_SETS = {4: ("sources_v4", "ipv4_addr", "ip"), 6: ("sources_v6", "ipv6_addr", "ip6")}


class Hook(StrEnum):
    """Where in the stack the table's chain sits."""

    INPUT = "input"


@dataclass(frozen=True, slots=True)
class Span:
    """Addresses of one family from `first` to `last`, with what is left of their time (None: for good)."""

    family: int
    first: int
    last: int
    left_ms: int | None

    def __str__(self) -> str:
        first, last = (str(_address(self.family, number)) for number in (self.first, self.last))
        addresses = first if first == last else f"{first}-{last}"
        return addresses if self.left_ms is None else f"{addresses} timeout {self.left_ms}ms"


def _address(family: int, number: int) -> Any:
    return ip_address(number.to_bytes(4 if family == 4 else 16))


def source_spans(policy: Policy, now_ns: int) -> list[Span]:
    """The unexpired source rules as spans that do not overlap, which is what an interval set holds, in order."""
    spans: list[Span] = []
    open_spans: list[tuple[int, Span]] = []  # (where the rest of it begins, the prefix as a span), widest first

    def close_until(family: int, first: int) -> None:
        while open_spans and (open_spans[-1][1].family != family or open_spans[-1][1].last < first):
            begins, span = open_spans.pop()
            if begins <= span.last:
                spans.append(Span(span.family, begins, span.last, span.left_ms))
            if open_spans:
                outer = open_spans[-1][1]
                open_spans[-1] = (span.last + 1, outer)

    for prefix, expires_at_ns in source_expiries(policy).items():
        if expires_at_ns is not None and expires_at_ns <= now_ns:
            continue
        span = _span(prefix, None if expires_at_ns is None else expires_at_ns - now_ns)
        close_until(span.family, span.first)
        if open_spans:
            begins, outer = open_spans[-1]
            if begins < span.first:
                spans.append(Span(span.family, begins, span.first - 1, outer.left_ms))
        open_spans.append((span.first, span))
    close_until(0, 0)
    return spans


def _span(prefix: Network, left_ns: int | None) -> Span:
    left_ms = None if left_ns is None else max(_JIFFY_MS, -(-left_ns // 10**6))
    return Span(prefix.version, int(prefix.network_address), int(prefix.broadcast_address), left_ms)


def render(policy: Policy, *, name: str = "zs_prefilter", hook: Hook = Hook.INPUT, now_ns: int | None = None) -> str:
    """The commands for `nft -f` that put the policy in force in one transaction. Counters of an older table go on."""
    now = boot_time_ns() if now_ns is None else now_ns
    table = f"inet {name}"
    lines = [f"add table {table}"]
    lines += [f"add counter {table} {_counter(*outcome)}" for outcome in _COUNTED]
    for protocol, set_name in _PORT_SETS.items():
        lines += [f"add set {table} {set_name} {{ type inet_service; }}", f"flush set {table} {set_name}"]
        lines += _elements(table, set_name, [str(port) for port in sorted(policy.ports(protocol))])
    spans = source_spans(policy, now)
    for family, (set_name, key_type, _) in _SOURCE_SETS.items():
        lines += [f"add set {table} {set_name} {{ type {key_type}; flags interval, timeout; }}"]
        lines += [f"flush set {table} {set_name}"]
        lines += _elements(table, set_name, [str(span) for span in spans if span.family == family])
    chains = _chains(policy.mode)
    for chain in chains:
        base = f" {{ type filter hook {hook} priority filter - 10; policy accept; }}" if chain == hook else ""
        lines += [f"add chain {table} {chain}{base}", f"flush chain {table} {chain}"]
    for chain, rules in chains.items():
        lines += [f"add rule {table} {chain} {rule}" for rule in rules]
    return "\n".join(lines) + "\n"


def _elements(table: str, set_name: str, elements: list[str]) -> Iterator[str]:
    if elements:
        yield f"add element {table} {set_name} {{ {', '.join(elements)} }}"


def _chains(mode: Mode) -> dict[str, list[str]]:
    """The rules, chain by chain. A comparison that cannot read its field does not match: so "anything" finds out."""
    port, source, malformed = (_outcome(mode, reason) for reason in (Reason.PORT, Reason.SOURCE, Reason.MALFORMED))
    return {
        "input": [
            "meta iiftype loopback accept",
            "meta nfproto ipv6 exthdr frag exists jump fragments",
            f"udp dport @udp_ports {port}",
            f"tcp dport @tcp_ports {port}",
            "meta l4proto { tcp, udp } th dport 0-65535 goto sources",
            "meta l4proto != { tcp, udp } goto sources",
            malformed,
        ],
        "fragments": [
            f"frag nexthdr ipv6-frag {malformed}",
            "frag frag-off != 0 goto sources",
        ],
        "sources": [
            f"ip saddr @sources_v4 {source}",
            f"ip6 saddr @sources_v6 {source}",
            f"meta nfproto ipv6 frag frag-off != 0 {_outcome(mode, Reason.FRAGMENT)}",
            _outcome(mode, Reason.CLEAN),
        ],
    }


def _counter(verdict: Verdict, reason: Reason) -> str:
    return f"{verdict}_{reason}"


def _outcome(mode: Mode, reason: Reason) -> str:
    is_dropped = mode is Mode.PROTECT and reason in UNWANTED
    verdict = Verdict.DROP if is_dropped else Verdict.PASS
    return f"counter name {_counter(verdict, reason)} {'drop' if is_dropped else 'accept'}"


class Table:
    """The policy in force as an nftables table: entering the `with` block applies it, leaving deletes the table.

    It works in the network namespace of the calling thread.
    """

    def __init__(self, policy: Policy, *, name: str = "zs_prefilter", hook: Hook = Hook.INPUT) -> None:
        if not name.startswith(PREFIX) or not name.isidentifier():
            raise XdpError(f"`{name}` is no name for a table of ours", f"begin it with {PREFIX}")
        self.policy = policy
        self.name = name
        self.hook = hook

    def __enter__(self) -> Self:
        self.apply()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.delete()

    def apply(self, policy: Policy | None = None) -> None:
        """Puts the policy (or another) in force in one transaction, reads it back and compares; raises `XdpError`."""
        wanted = self.policy if policy is None else policy
        now_ns = boot_time_ns()
        _nft(["-f", "-"], render(wanted, name=self.name, hook=self.hook, now_ns=now_ns))
        self.policy = wanted
        self._compare(now_ns)

    def exists(self) -> bool:
        """Whether a table of this name is there."""
        return self.name in _tables()

    def delete(self) -> None:
        """Removes the table with all in it. Doing it twice does no harm."""
        _delete(self.name)

    def counters(self) -> Counters:
        """What the table counted since it was put up; bytes are those of IP packets, without the Ethernet header."""
        listing = _nft_json(["list", "counters", "table", "inet", self.name])
        named = {item["counter"]["name"]: item["counter"] for item in listing if "counter" in item}
        return Counters(
            {
                outcome: Count(named[_counter(*outcome)]["packets"], named[_counter(*outcome)]["bytes"])
                for outcome in _COUNTED
            }
        )

    def _compare(self, applied_at_ns: int) -> None:
        listing = _nft_json(["list", "table", "inet", self.name])
        held = {item["set"]["name"]: item["set"].get("elem", []) for item in listing if "set" in item}
        ports = {protocol: {int(port) for port in held[set_name]} for protocol, set_name in _PORT_SETS.items()}
        spans = {
            _read_span(family, element) for family, (set_name, *_) in _SOURCE_SETS.items() for element in held[set_name]
        }
        passed_ms = (boot_time_ns() - applied_at_ns) // 10**6 + 1
        wanted = {
            (span.family, span.first, span.last): span.left_ms for span in source_spans(self.policy, applied_at_ns)
        }
        lasting = {key for key, left_ms in wanted.items() if left_ms is None or left_ms > passed_ms}
        rules = sum("rule" in item for item in listing)
        if (
            any(ports[protocol] != self.policy.ports(protocol) for protocol in ports)
            or not lasting <= spans <= wanted.keys()
            or rules != sum(map(len, _chains(self.policy.mode).values()))
        ):
            raise XdpError(f"the table {self.name} holds other rules than it was given", "see `nft list ruleset`")


def _read_span(family: int, element: Any) -> tuple[int, int, int]:
    """(family, first, last) of one element as nft lists it."""
    value = element["elem"]["val"] if isinstance(element, dict) and "elem" in element else element
    if isinstance(value, dict) and "range" in value:
        first, last = (int(ip_address(text)) for text in value["range"])
    elif isinstance(value, dict):
        network = ip_network(f"{value['prefix']['addr']}/{value['prefix']['len']}")
        first, last = int(network.network_address), int(network.broadcast_address)
    else:
        first = last = int(ip_address(value))
    return family, first, last


def remove_leftovers() -> list[str]:
    """Deletes every inet table whose name begins with `zs_`, whoever made it; returns their names."""
    names = [name for name in _tables() if name.startswith(PREFIX)]
    for name in names:
        _delete(name)
    return names


def _tables() -> list[str]:
    listing = _nft_json(["list", "tables", "inet"])
    return [item["table"]["name"] for item in listing if "table" in item]


def _delete(name: str) -> None:
    # Adding first makes deleting succeed whether or not it is there; the transaction leaves no trace.
    _nft(["-f", "-"], f"add table inet {name}\ndelete table inet {name}\n")


def _nft_json(arguments: list[str]) -> list[dict[str, Any]]:
    listing: list[dict[str, Any]] = json.loads(_nft(["-j", *arguments]))["nftables"]
    return listing


def _nft(arguments: list[str], commands: str = "") -> str:
    program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
    if program is None:
        raise XdpError("the command nft is missing", "install the package nftables")
    done = subprocess.run([program, *arguments], input=commands, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise XdpError(f"nft refused the table ({complaint})", "run as root, on a kernel with nf_tables")
    return done.stdout
