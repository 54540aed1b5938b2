"""Builds frames byte by byte, right or wrong on purpose: the reverse of packet.py, for tests and measurements.

Nothing here sends or judges. Lengths and checksums are those of what is given; spoil the bytes afterwards.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

_TCP, _UDP = 6, 17
_ETHER_TYPES = {4: 0x0800, 6: 0x86DD}


def internet_checksum(data: bytes) -> int:
    """The checksum of RFC 1071 over `data`."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(
    payload: bytes,
    ether_type: int,
    *,
    tags: Sequence[tuple[int, int]] = (),
    destination: bytes = bytes(6),
    source: bytes = bytes(6),
) -> bytes:
    """An Ethernet frame; `tags` are (TPID, VLAN id) from the outside in."""
    types = [tpid for tpid, _ in tags] + [ether_type]
    tagged = b"".join(struct.pack("!HH", vlan, inner) for (_, vlan), inner in zip(tags, types[1:], strict=True))
    return destination + source + struct.pack("!H", types[0]) + tagged + payload


def framed(
    packet: bytes, *, tags: Sequence[tuple[int, int]] = (), destination: bytes = bytes(6), source: bytes = bytes(6)
) -> bytes:
    """The IP packet in a frame of its type."""
    ether_type = _ETHER_TYPES[packet[0] >> 4]
    return ethernet(packet, ether_type, tags=tags, destination=destination, source=source)


def ipv4(
    source: str, destination: str, protocol: int, payload: bytes, *, options: bytes = b"", fragment: int = 0
) -> bytes:
    """An IPv4 packet; `options` in multiples of four bytes, `fragment` is the 16-bit field of flags and offset."""
    words = 5 + len(options) // 4
    addresses = IPv4Address(source).packed + IPv4Address(destination).packed
    total = words * 4 + len(payload)
    header = struct.pack("!BBHHHBBH", 0x40 | words, 0, total, 7, fragment, 64, protocol, 0) + addresses + options
    return header[:10] + struct.pack("!H", internet_checksum(header)) + header[12:] + payload


def ipv6(
    source: str, destination: str, protocol: int, payload: bytes, *, extensions: Sequence[tuple[int, bytes]] = ()
) -> bytes:
    """An IPv6 packet; each extension is its number and its bytes, whose first is overwritten with the next number."""
    numbers = [number for number, _ in extensions] + [protocol]
    bodies = (body for _, body in extensions)
    chain = b"".join(bytes([following]) + body[1:] for body, following in zip(bodies, numbers[1:], strict=True))
    addresses = IPv6Address(source).packed + IPv6Address(destination).packed
    return struct.pack("!IHBB", 6 << 28, len(chain) + len(payload), numbers[0], 64) + addresses + chain + payload


def ipv6_fragment_header(offset_bytes: int, more_follow: bool) -> bytes:
    """The fragment header (RFC 8200 section 4.5), as an extension for `ipv6`."""
    return struct.pack("!BBHI", 0, 0, offset_bytes | more_follow, 7)


def transport(source: str, destination: str, protocol: int, port: int, body: bytes = b"zeroserve") -> bytes:
    """A UDP datagram, a TCP SYN, or for any other protocol an ICMP or ICMPv6 echo, with its checksum."""
    version = ip_address(source).version
    if protocol == _UDP:
        head, at = struct.pack("!HHHH", 5353, port, 8 + len(body), 0), 6
    elif protocol == _TCP:
        head, at = struct.pack("!HHIIHHHH", 5353, port, 1, 0, 0x5002, 1024, 0, 0), 16
    else:
        head, at = struct.pack("!BBHHH", 8 if version == 4 else 128, 0, 0, 1, 1), 2
    pseudo = ip_address(source).packed + ip_address(destination).packed
    pseudo += struct.pack("!II", len(head) + len(body), protocol)
    is_icmp = version == 4 and protocol not in (_TCP, _UDP)  # the one checksum without a pseudo-header (RFC 792)
    checksum = internet_checksum((b"" if is_icmp else pseudo) + head + body) or 0xFFFF
    return head[:at] + struct.pack("!H", checksum) + head[at + 2 :] + body
