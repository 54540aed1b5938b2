"""A corpus of frames, and a pair of namespaces to send them through. Nothing here says what should become of them."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

import pytest
from pyroute2 import netns

from xdp import frames
from xdp.frames import ethernet, internet_checksum, ipv6_fragment_header
from xdp.policy import DropPort, DropSource, Mode, Policy, Protocol, boot_time_ns

SENDER_MAC, RECEIVER_MAC = bytes.fromhex("02007a730001"), bytes.fromhex("02007a730002")
RECEIVER = {4: "10.78.0.2", 6: "fd78::2"}
FREE = {4: "10.78.0.9", 6: "fd78::9"}
BLOCKED = {4: "198.51.100.77", 6: "2001:db8:1::77"}
EXPIRED = {4: "203.0.113.5", 6: "2001:db8:2::5"}
UNWANTED_PORT, WANTED_PORT = 4000, 4001
HOUR_NS = 3600 * 10**9

PADDING = b"\0\0" + b"\x01\x04\0\0\0\0"  # one PadN option (RFC 8200 section 4.2)
LONG_OPTIONS = b"\0\x01" + b"\x1e\x0c" + bytes(12)  # an unknown option of the kind that is skipped
ROUTING = b"\0\0" + b"\xfd\0" + bytes(4)  # an experimental type with no segments left
AUTHENTICATION = b"\0\x04" + bytes(22)
EXTENSIONS: dict[str, tuple[tuple[int, bytes], ...]] = {
    "plain": (),
    "hop by hop": ((0, PADDING),),
    "long hop by hop": ((0, LONG_OPTIONS),),
    "destination": ((60, LONG_OPTIONS),),
    "routing": ((43, ROUTING),),
    "authentication": ((51, AUTHENTICATION),),
    "all": ((0, PADDING), (60, PADDING), (43, ROUTING), (44, ipv6_fragment_header(0, False)), (51, AUTHENTICATION)),
    "eight": ((0, PADDING), *(((60, PADDING),) * 7)),
    "nine": ((0, PADDING), *(((60, PADDING),) * 8)),
    "atomic fragment": ((44, ipv6_fragment_header(0, False)),),
    "first fragment": ((44, ipv6_fragment_header(0, True)),),
    "later fragment": ((44, ipv6_fragment_header(8, True)),),
    "last fragment behind options": ((60, PADDING), (44, ipv6_fragment_header(1480, False))),
    "far fragment": ((44, ipv6_fragment_header(0x8000, False)),),
    "later fragment before options": ((44, ipv6_fragment_header(64, False)), (60, PADDING)),
    "two fragment headers": ((44, ipv6_fragment_header(0, True)), (44, ipv6_fragment_header(0, True))),
    "two fragment headers, second later": ((44, ipv6_fragment_header(0, True)), (44, ipv6_fragment_header(8, True))),
}
IPV4_FORMS: dict[str, dict[str, object]] = {
    "plain": {},
    "don't fragment": {"fragment": 0x4000},
    "no-operations": {"options": b"\x01" * 8},
    "most options": {"options": b"\x07\x27\x04" + bytes(36) + b"\0"},  # record route, nine empty places
    "first fragment": {"fragment": 0x2000},
    "later fragment": {"fragment": 0x2001},
    "last fragment": {"fragment": 0x00B9},
    "far fragment": {"fragment": 0x1000},
}
TAGS: dict[str, tuple[tuple[int, int], ...]] = {
    "untagged": (),
    "in VLAN 5": ((0x8100, 5),),
    "with a priority tag": ((0x8100, 0),),
    "in QinQ": ((0x88A8, 7), (0x8100, 5)),
    "under three tags": ((0x88A8, 7), (0x8100, 5), (0x8100, 6)),
}
PROTOCOLS = {
    "udp": socket.IPPROTO_UDP,
    "tcp": socket.IPPROTO_TCP,
    "icmp": socket.IPPROTO_ICMP,
    "icmpv6": socket.IPPROTO_ICMPV6,
    "sctp": socket.IPPROTO_SCTP,
}


@dataclass(frozen=True, slots=True)
class Named:
    """A frame and what it is, for the message of a failing test."""

    name: str
    frame: bytes


def ip_packet(source: str, protocol: int, body: bytes, **more: object) -> bytes:
    build: Callable[..., bytes] = frames.ipv4 if ip_address(source).version == 4 else frames.ipv6
    return build(source, RECEIVER[ip_address(source).version], protocol, body, **more)


def transport(source: str, protocol: int, port: int, body: bytes = b"zeroserve") -> bytes:
    return frames.transport(source, RECEIVER[ip_address(source).version], protocol, port, body)


def packet(source: str, protocol: int, port: int, **more: object) -> bytes:
    return ip_packet(source, protocol, transport(source, protocol, port), **more)


def framed(packet: bytes, tags: tuple[tuple[int, int], ...] = ()) -> bytes:
    return frames.framed(packet, tags=tags, destination=RECEIVER_MAC, source=SENDER_MAC)


def typed(payload: bytes, ether_type: int) -> bytes:
    return ethernet(payload, ether_type, destination=RECEIVER_MAC, source=SENDER_MAC)


def well_formed() -> list[Named]:
    """Every header form, for every protocol, wanted and unwanted, from sources free, blocked and formerly blocked."""
    made = []
    ipv6_forms: dict[str, dict[str, object]] = {name: {"extensions": chain} for name, chain in EXTENSIONS.items()}
    for version, forms in ((4, IPV4_FORMS), (6, ipv6_forms)):
        for form, more in forms.items():
            for protocol, number in PROTOCOLS.items():
                for where, source in (("free", FREE), ("blocked", BLOCKED), ("expired", EXPIRED)):
                    for port in (UNWANTED_PORT, WANTED_PORT):
                        frame = framed(packet(source[version], number, port, **more))
                        made.append(Named(f"IPv{version} {form} {protocol} {port} {where}", frame))
    return made


def tagged() -> list[Named]:
    """The plain and the richest packets under each stack of VLAN tags."""
    bases = {
        "IPv4": packet(FREE[4], 17, UNWANTED_PORT),
        "IPv4 with options": packet(FREE[4], 6, UNWANTED_PORT, options=b"\x01" * 40),
        "IPv4 blocked": packet(BLOCKED[4], 17, WANTED_PORT),
        "IPv6": packet(FREE[6], 17, UNWANTED_PORT),
        "IPv6 with all extensions": packet(FREE[6], 17, UNWANTED_PORT, extensions=EXTENSIONS["all"]),
        "IPv6 blocked": packet(BLOCKED[6], 17, WANTED_PORT),
    }
    return [
        Named(f"{base} {stack}", framed(body, tags)) for base, body in bases.items() for stack, tags in TAGS.items()
    ]


def cut_frames() -> list[Named]:
    """Frames that end at every length, although their headers promise more."""
    all_extensions = packet(FREE[6], 17, UNWANTED_PORT, extensions=EXTENSIONS["all"])
    whole = {
        "IPv4": framed(packet(FREE[4], 17, UNWANTED_PORT)),
        "IPv4 in QinQ with options": framed(packet(FREE[4], 6, UNWANTED_PORT, options=b"\x01" * 40), TAGS["in QinQ"]),
        "IPv6": framed(packet(FREE[6], 6, UNWANTED_PORT)),
        "IPv6 in QinQ with all extensions": framed(all_extensions, TAGS["in QinQ"]),
    }
    return [
        Named(f"{name} cut at {length}", frame[:length])
        for name, frame in whole.items()
        for length in range(14, len(frame))
    ]


def cut_packets() -> list[Named]:
    """Packets whose IP header is right about a length at which the headers behind it are not complete.

    Each is followed by Ethernet padding that looks like ports, which must not be read.
    """
    made = []
    padding = struct.pack("!HH", 5353, UNWANTED_PORT) * 16
    for protocol, number in PROTOCOLS.items():
        for source in (FREE[4], FREE[6], BLOCKED[6]):
            for length in range(9):
                short = ip_packet(source, number, transport(source, number, UNWANTED_PORT)[:length])
                made.append(Named(f"{protocol} from {source} of {length} bytes", framed(short + padding)))
    whole = packet(FREE[6], 17, UNWANTED_PORT, extensions=EXTENSIONS["all"])
    for length in range(len(whole) - 40):
        short = whole[:4] + struct.pack("!H", length) + whole[6 : 40 + length]
        made.append(Named(f"IPv6 extensions cut at {length}", framed(short + padding)))
    return made


def contradictions() -> list[Named]:
    """Headers that are whole and wrong, and frames that are not IP."""
    base4, base6 = packet(FREE[4], 17, UNWANTED_PORT), packet(FREE[6], 17, UNWANTED_PORT)
    made = [Named(f"IPv4 first byte {n:#04x}", typed(bytes([n]) + base4[1:], 0x0800)) for n in range(0x30, 0x60)]
    made += [Named(f"IPv6 version {n}", typed(bytes([n << 4]) + base6[1:], 0x86DD)) for n in range(16)]
    for total in (0, 1, 19, 20, 23, 24, 27, 28, len(base4) - 1, len(base4), len(base4) + 1, 65535):
        changed = base4[:2] + struct.pack("!H", total) + base4[4:10] + b"\0\0" + base4[12:]
        summed = changed[:10] + struct.pack("!H", internet_checksum(changed[:20])) + changed[12:]
        made.append(Named(f"IPv4 total length {total}", framed(summed)))
    for length in (0, 3, 4, 7, 8, len(base6) - 41, len(base6) - 39, 65535):
        made.append(Named(f"IPv6 payload length {length}", framed(base6[:4] + struct.pack("!H", length) + base6[6:])))
    made.append(Named("IPv4 with a bad checksum", framed(base4[:10] + b"\x12\x34" + base4[12:])))
    made += [Named(f"type {t:#06x}", typed(base4, t)) for t in (0, 0x05DC, 0x0801, 0x0806, 0x86DC, 0x8847, 0xFFFF)]
    made += [Named(f"IPv6 no next header, {n} bytes", framed(ip_packet(FREE[6], 59, b"x" * n))) for n in (0, 1, 40)]
    made += [Named("IPv6 empty ESP", framed(ip_packet(FREE[6], 50, b"")))]
    return made


def garbage(seed: int, count: int) -> list[Named]:
    """Well-formed frames with bytes of their headers changed, and random bytes behind an IP type."""
    rng = random.Random(seed)
    bases = [named.frame for named in well_formed() + tagged()]
    telling = (0, 1, 4, 6, 17, 43, 44, 51, 60, 255)
    made = []
    for _ in range(count):
        frame = bytearray(rng.choice(bases))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(12, min(len(frame), 90))] = rng.choice((*telling, rng.randrange(256)))
        made.append(Named(f"changed {frame.hex()}", bytes(frame)))
        body = rng.choice((b"\x45", b"\x60", b"")) + rng.randbytes(rng.randrange(120))
        noise = typed(body, rng.choice((0x0800, 0x86DD)))
        made.append(Named(f"noise {noise.hex()}", noise))
    return made


@pytest.fixture(scope="session")
def honest_corpus() -> list[Named]:
    """Frames whose options and addresses the IP stack has nothing against."""
    return well_formed() + tagged() + cut_frames() + cut_packets() + contradictions()


@pytest.fixture(scope="session")
def corpus(honest_corpus: list[Named]) -> list[Named]:
    """All of them, and garbage."""
    return honest_corpus + garbage(seed=2026, count=1500)


@pytest.fixture
def sample_policy() -> Callable[[Mode], Policy]:
    """Ports and sources of both versions, some active, some expired, some nested."""

    def make(mode: Mode) -> Policy:
        now = boot_time_ns()
        sources = (
            ("198.51.100.0/24", None),
            ("198.51.0.0/16", now + HOUR_NS),
            ("203.0.113.0/24", now - 1),
            ("2001:db8:1::/48", now + HOUR_NS),
            ("2001:db8:2::/48", 0),
        )
        rules = [DropSource(ip_network(prefix), ends_at) for prefix, ends_at in sources]
        return Policy(mode, (*(DropPort(protocol, UNWANTED_PORT) for protocol in Protocol), *rules))

    return make


@dataclass(frozen=True, slots=True)
class Pair:
    """Two namespaces joined by a veth. The sender's end has no address and says nothing of its own accord."""

    receiver: str
    receiver_link: str
    raw: socket.socket

    def send(self, frame: bytes) -> None:
        """Sends one frame to the receiver."""
        self.raw.send(frame)

    def send_udp(self, source: str, port: int, body: bytes = b"zeroserve") -> None:
        """Sends a datagram to the receiver, from any source."""
        self.send(framed(ip_packet(source, 17, transport(source, 17, port, body))))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread in the receiver's network namespace."""
        netns.pushns(self.receiver)
        try:
            yield
        finally:
            netns.popns()

    def udp_socket(self, version: int, port: int) -> socket.socket:
        """A socket of the receiver that waits at most two seconds for a datagram."""
        with self.inside():
            made = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
        made.bind((RECEIVER[version], port))
        made.settimeout(2)
        return made


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A pair of namespaces, removed after the test."""
    tail = os.getpid() % 10**6
    sender_mac, receiver_mac = SENDER_MAC.hex(":"), RECEIVER_MAC.hex(":")
    sender, receiver = f"zs-t-a{tail}", f"zs-t-b{tail}"
    ours, theirs = f"zst{tail}a", f"zst{tail}b"
    try:
        _run(f"ip netns add {sender}")
        _run(f"ip netns add {receiver}")
        _run(f"ip netns exec {sender} sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
        # Sources without a route of their own must get as far as the hook.
        _run(f"ip netns exec {receiver} sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0")
        _run(f"ip -n {sender} link add {ours} address {sender_mac} type veth peer name {theirs} netns {receiver}")
        _run(f"ip -n {receiver} link set {theirs} address {receiver_mac}")
        _run(f"ip -n {sender} link set {ours} arp off up")
        _run(f"ip -n {receiver} addr add {RECEIVER[4]}/24 dev {theirs}")
        _run(f"ip -n {receiver} addr add {RECEIVER[6]}/64 dev {theirs} nodad")
        _run(f"ip -n {receiver} link set {theirs} up")
        netns.pushns(sender)
        try:
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        finally:
            netns.popns()
        with raw:
            raw.bind((ours, 0))
            yield Pair(receiver, theirs, raw)
    finally:
        for name in (sender, receiver):
            with suppress(subprocess.CalledProcessError):
                _run(f"ip netns del {name}")


@pytest.fixture
def vlan_frame(pair: Pair) -> Callable[[int], bytes]:
    """Builds datagrams to a port, tagged for VLAN 5, for which the receiver has a device."""
    name = f"{pair.receiver_link}.5"
    try:
        _run(f"ip -n {pair.receiver} link add link {pair.receiver_link} name {name} type vlan id 5")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs VLAN devices (8021q): {error.stderr.decode().strip()}")
    _run(f"ip -n {pair.receiver} link set {name} up")
    return lambda port: framed(packet(FREE[4], 17, port), TAGS["in VLAN 5"])
