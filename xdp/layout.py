"""The shared layout of maps.h in Python: codes, sizes, packing and unpacking. It touches no map."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from xdp.policy import Policy, Protocol, Reason, Verdict

SLOTS = 2
SAMPLE_EVERY = 64
SOURCES_MAX = 1 << 20  # prefixes of one family that one policy may hold
NEVER_NS = 2**64 - 1
VERDICT_CODES = tuple(Verdict)  # a verdict's code is its place here, as in enum zs_verdict
REASON_CODES = tuple(Reason)

INDEX = struct.Struct("=I")
STATE = struct.Struct("=Q")
TOTAL = struct.Struct("=QQ")
SAMPLING = struct.Struct("=QQ")
EXPIRY = struct.Struct("=Q")
_PREFIX = {4: struct.Struct("=I4s"), 6: struct.Struct("=I16s")}
_SAMPLE = struct.Struct("=QII16sHHBBBB")
_PORT_BYTES = 65536 // 8
PORTS_BYTES = 2 * _PORT_BYTES

# map name: (key bytes, value bytes), as an array of maps or a per-CPU array states them
SHAPES = {
    "zs_state": (INDEX.size, STATE.size),
    "zs_totals": (INDEX.size, TOTAL.size),
    "zs_sampling": (INDEX.size, SAMPLING.size),
    "zs_samples": (0, 0),
    "zs_ports": (INDEX.size, 4),
    "zs_sources_v4": (INDEX.size, 4),
    "zs_sources_v6": (INDEX.size, 4),
}


class State(IntFlag):
    """`enum zs_state`; the bits from 32 up count the policies applied."""

    PROTECT = 1 << 0
    SLOT = 1 << 1
    PORTS = 1 << 2
    SOURCES_V4 = 1 << 3
    SOURCES_V6 = 1 << 4


@dataclass(frozen=True, slots=True)
class Sample:
    """One dropped packet of every `SAMPLE_EVERY`, for display. `source` is None when the IP header was unreadable;
    a port is 0 where there is none."""

    boot_ns: int
    ifindex: int
    frame_bytes: int
    source: IPv4Address | IPv6Address | None
    source_port: int
    destination_port: int
    protocol: int
    vlan_tags: int
    reason: Reason


def total_index(verdict: Verdict, reason: Reason) -> bytes:
    """The key of one cell of `zs_totals`."""
    return INDEX.pack(VERDICT_CODES.index(verdict) * len(REASON_CODES) + REASON_CODES.index(reason))


def ports_value(policy: Policy) -> bytes:
    """`struct zs_ports`: a bit for each unwanted destination port, UDP first."""
    return b"".join(_port_bits(policy.ports(protocol)) for protocol in (Protocol.UDP, Protocol.TCP))


def _port_bits(ports: frozenset[int]) -> bytes:
    words = [0] * (_PORT_BYTES // 8)
    for port in ports:
        words[port // 64] |= 1 << port % 64
    return struct.pack(f"={len(words)}Q", *words)


def prefix_key(prefix: IPv4Network | IPv6Network) -> bytes:
    """`struct zs_prefix_v4` or `_v6`."""
    return _PREFIX[prefix.version].pack(prefix.prefixlen, prefix.network_address.packed)


def prefix_key_bytes(family: int) -> int:
    """The size of a prefix key of IP version 4 or 6."""
    return _PREFIX[family].size


def unpack_sample(record: bytes) -> Sample:
    """`struct zs_sample`."""
    boot_ns, ifindex, frame_bytes, address, source_port, destination_port, family, protocol, tags, reason = (
        _SAMPLE.unpack(record)
    )
    source = IPv4Address(address[:4]) if family == 4 else IPv6Address(address) if family == 6 else None
    ports = (source_port, destination_port)
    return Sample(boot_ns, ifindex, frame_bytes, source, *ports, protocol, tags, REASON_CODES[reason])
