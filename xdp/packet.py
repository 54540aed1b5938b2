"""What a frame carries, read in plain Python: once as the XDP filter sees it, once as nftables' input hook does.

It is the reference that both kernel layers are held against, so it shares no code with them. It decides nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address

MAX_VLAN_TAGS = 2
MAX_EXTENSIONS = 8
_VLAN_TYPES = (0x8100, 0x88A8)
_IPV4_TYPE, _IPV6_TYPE = 0x0800, 0x86DD
_NO_NEXT_HEADER = 59


class Protocol(IntEnum):
    """The IP protocol numbers that have ports here."""

    TCP = 6
    UDP = 17


class Extension(IntEnum):
    """IPv6 extension headers that are stepped over (RFC 8200 section 4, RFC 4302)."""

    HOP_BY_HOP = 0
    ROUTING = 43
    FRAGMENT = 44
    AUTHENTICATION = 51
    DESTINATION = 60


_PORTS = frozenset(Protocol)
_EXTENSIONS = frozenset(Extension)


class Reading(Enum):
    """How far a frame could be read."""

    READ = "read"
    FOREIGN = "not IP"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Headers:
    """What was read. `source` and `protocol` are None in a frame that is foreign or unreadable.

    The ports are None where the protocol has none, and in every fragment but the first, which alone carries them.
    """

    reading: Reading
    source: IPv4Address | IPv6Address | None = None
    protocol: int | None = None
    source_port: int | None = None
    destination_port: int | None = None
    is_later_fragment: bool = False


class _UnreadableError(Exception):
    """The frame ends too early, or its lengths contradict each other."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Where a walk along IPv6 extension headers ended: at a protocol and its bytes, or at a later fragment."""

    protocol: int
    payload: bytes
    is_later_fragment: bool = False


def read_frame(frame: bytes) -> Headers:
    """Reads an Ethernet frame as the XDP filter does. Never raises: what cannot be read is `UNREADABLE`."""
    try:
        _, ether_type, packet = _ethernet(frame)
        if ether_type == _IPV4_TYPE:
            header, payload = _ipv4(packet)
            return _ipv4_headers(header, payload)
        if ether_type == _IPV6_TYPE:
            header, payload = _ipv6(packet)
            return _ipv6_headers(header, payload, _walk_strictly)
        return Headers(Reading.FOREIGN)
    except _UnreadableError:
        return Headers(Reading.UNREADABLE)


def read_at_input(frame: bytes) -> Headers | None:
    """Reads a frame as an inet table's input hook does, or None where the frame does not get there as it is.

    Assumed: the host owns the destination addresses, routes the source, has no VLAN device for any tag, and finds the
    IPv4 and hop-by-hop options well formed. Then the stack itself disposes of frames that are not IP, carry a VLAN
    tag other than the priority tag 0, or have a bad IP header (ip_rcv_core, ip6_rcv_core). It reassembles IPv4
    fragments before the hook (ip_local_deliver) but IPv6 fragments after it, unless connection tracking is loaded.
    """
    try:
        vlan_ids, ether_type, packet = _ethernet(frame)
        if any(vlan_ids) or ether_type not in (_IPV4_TYPE, _IPV6_TYPE):
            return None
        header, payload = _ipv4(packet) if ether_type == _IPV4_TYPE else _ipv6(packet)
        if ether_type == _IPV6_TYPE and header[6] == Extension.HOP_BY_HOP:
            _step(Extension.HOP_BY_HOP, payload)
    except _UnreadableError:
        return None
    if ether_type == _IPV4_TYPE and (_checksum(header) != 0 or int.from_bytes(header[6:8]) & 0x3FFF):
        return None
    try:
        if ether_type == _IPV4_TYPE:
            return _ipv4_headers(header, payload)
        return _ipv6_headers(header, payload, _walk_as_netfilter)
    except _UnreadableError:
        source = IPv4Address(header[12:16]) if ether_type == _IPV4_TYPE else IPv6Address(header[8:24])
        return Headers(Reading.UNREADABLE, source=source)


def _split(data: bytes, count: int) -> tuple[bytes, bytes]:
    if len(data) < count:
        raise _UnreadableError
    return data[:count], data[count:]


def _ethernet(frame: bytes) -> tuple[list[int], int, bytes]:
    """The VLAN identifiers from the outside in, the type of what is inside them, and its bytes."""
    header, rest = _split(frame, 14)
    ether_type, vlan_ids = int.from_bytes(header[12:]), list[int]()
    while ether_type in _VLAN_TYPES:
        if len(vlan_ids) == MAX_VLAN_TAGS:
            raise _UnreadableError
        tag, rest = _split(rest, 4)
        control, ether_type = struct.unpack("!HH", tag)
        vlan_ids.append(control & 0xFFF)
    return vlan_ids, ether_type, rest


def _ipv4(packet: bytes) -> tuple[bytes, bytes]:
    """The IPv4 header with its options, and the payload without Ethernet padding (RFC 791 section 3.1)."""
    start, _ = _split(packet, 20)
    version, header_bytes = start[0] >> 4, (start[0] & 0xF) * 4
    total_bytes = int.from_bytes(start[2:4])
    if version != 4 or not 20 <= header_bytes <= total_bytes <= len(packet):
        raise _UnreadableError
    return packet[:header_bytes], packet[header_bytes:total_bytes]


def _ipv4_headers(header: bytes, payload: bytes) -> Headers:
    source, protocol = IPv4Address(header[12:16]), header[9]
    if int.from_bytes(header[6:8]) & 0x1FFF:
        return Headers(Reading.READ, source, protocol, is_later_fragment=True)
    return _with_ports(Headers(Reading.READ, source, protocol), payload)


def _ipv6(packet: bytes) -> tuple[bytes, bytes]:
    """The fixed IPv6 header, and the payload without Ethernet padding (RFC 8200 section 3). No jumbograms."""
    header, rest = _split(packet, 40)
    if header[0] >> 4 != 6:
        raise _UnreadableError
    payload, _ = _split(rest, int.from_bytes(header[4:6]))
    return header, payload


def _ipv6_headers(header: bytes, payload: bytes, walk: Callable[[int, bytes], _Chain]) -> Headers:
    chain = walk(header[6], payload)
    headers = Headers(Reading.READ, IPv6Address(header[8:24]), chain.protocol)
    if chain.is_later_fragment:
        return replace(headers, is_later_fragment=True)
    return _with_ports(headers, chain.payload)


def _step(protocol: int, payload: bytes) -> tuple[int, bytes, int]:
    """Steps over one whole extension header: (next protocol, what follows, fragment offset in bytes)."""
    header, _ = _split(payload, 4)
    size = _extension_bytes(protocol, header)
    offset = int.from_bytes(header[2:4]) & 0xFFF8 if protocol == Extension.FRAGMENT else 0
    _, rest = _split(payload, size)
    return header[0], rest, offset


def _extension_bytes(protocol: int, header: bytes) -> int:
    if protocol == Extension.FRAGMENT:
        return 8
    if protocol == Extension.AUTHENTICATION:
        return (header[1] + 2) * 4
    return (header[1] + 1) * 8


def _walk_strictly(protocol: int, payload: bytes) -> _Chain:
    """Every header whole, at most one of them a fragment header (RFC 8200 section 4.1), at most MAX_EXTENSIONS."""
    seen: list[int] = []
    while protocol in _EXTENSIONS:
        if len(seen) == MAX_EXTENSIONS or (protocol == Extension.FRAGMENT and Extension.FRAGMENT in seen):
            raise _UnreadableError
        seen.append(protocol)
        protocol, payload, offset = _step(protocol, payload)
        if offset:
            return _Chain(protocol, b"", is_later_fragment=True)
    return _Chain(protocol, payload)


def _walk_as_netfilter(protocol: int, payload: bytes) -> _Chain:
    """As the table's rules and the kernel's ipv6_find_hdr walk: the last header may overrun the packet.

    On the way to the transport header it stops at an authentication header (IP6_FH_F_AUTH): what that protects is
    judged when it has been checked and comes through the hook again. Two fragment headers are refused when the one
    follows the other at once; with another header in between netfilter's reading is not modelled, since kernels differ.
    """
    following, offset = _first_fragment_header(protocol, payload)
    if following == Extension.FRAGMENT:
        raise _UnreadableError
    if offset:
        return _Chain(Extension.FRAGMENT, b"", is_later_fragment=True)
    while protocol in _EXTENSIONS:
        header, _, rest = _stride(protocol, payload)
        if protocol == Extension.AUTHENTICATION:
            break
        protocol, payload = header[0], rest
    return _Chain(protocol, payload)


def _first_fragment_header(protocol: int, payload: bytes) -> tuple[int | None, int]:
    """(what follows the first fragment header, its offset in bytes); (None, 0) where there is none."""
    try:
        while protocol in _EXTENSIONS:
            header, offset, payload = _stride(protocol, payload)
            if protocol == Extension.FRAGMENT:
                return header[0], offset
            protocol = header[0]
    except _UnreadableError:
        pass
    return None, 0


def _stride(protocol: int, payload: bytes) -> tuple[bytes, int, bytes]:
    """(the start of an extension header, its fragment offset in bytes, what follows it, if anything does)."""
    header, _ = _split(payload, 4 if protocol == Extension.FRAGMENT else 2)
    offset = int.from_bytes(header[2:4]) & 0xFFF8 if protocol == Extension.FRAGMENT else 0
    return header, offset, payload[_extension_bytes(protocol, header) :]


def _with_ports(headers: Headers, payload: bytes) -> Headers:
    if headers.protocol not in _PORTS:
        return headers
    ports, _ = _split(payload, 4)
    source_port, destination_port = struct.unpack("!HH", ports)
    return replace(headers, source_port=source_port, destination_port=destination_port)


def _checksum(header: bytes) -> int:
    """The Internet checksum of an IPv4 header (RFC 1071): 0 when the header's own field is right."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
