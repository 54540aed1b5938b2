"""The unwanted traffic: the process that sends UDP datagrams at a set rate, and the one that receives them.

Both run as `python -m experiments.traffic sender|sink ...` in their own namespace and talk to the runner as described
in `dialogue`. What is done with the packets in between is not known here.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import math
import random
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from experiments.dialogue import Commands, say
from experiments.plan import PAYLOAD_BYTES, UDP_PORT

SENDER_BUFFER_BYTES: Final = 64 << 10
"""Asked of SO_SNDBUF; the kernel doubles it. On veth a packet is unsent until the receiving NAPI thread has taken it:
flow control, as some 170 packets on the way and a burst of 64 fit into the ring of 256 between the two ends. When the
thread is held up (other programs, a virtual machine's host) the sender waits and catches up instead of overrunning
the ring; when the thread cannot keep up for good, the rate is not delivered."""

SINK_BUFFER_BYTES: Final = 16 << 20
"""Asked of SO_RCVBUFFORCE; the kernel doubles it. About 40,000 small datagrams: it covers a descheduled reader. What
is still in it when the sender stops is recorded, so that it cannot pass for capacity."""

_QUIET_S: Final = 0.1
_SHORTEST_SLEEP_S: Final = 0.0001
_PR_SET_TIMERSLACK: Final = 29
_UDP_SEGMENT: Final = 103  # include/uapi/linux/udp.h
_MOST_SEGMENTS: Final = 64  # UDP_MAX_SEGMENTS of include/linux/udp.h; twice as many since Linux 6.9
_SO_MEMINFO: Final = 55  # include/uapi/asm-generic/socket.h
_MEMINFO_RMEM_ALLOC: Final = 0  # include/uapi/linux/sock_diag.h
_MEMINFO_DROPS: Final = 8
_MEMINFO: Final = struct.Struct("=9I")


class BurstSender:
    """Sends bursts of equal datagrams, up to 64 with one system call (UDP_SEGMENT, Linux 4.18).

    The kernel cuts the buffer into separate datagrams, each with its own headers, before the network interface sees
    them. What matters is not the saved system calls but that a burst arrives as one: packets sent singly come 2 us
    apart, and the receiver's NAPI thread, when it is faster than that, goes to sleep and is woken for each of them.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD_BYTES)
        self._send = connected.send
        self._views = [memoryview(bytes(PAYLOAD_BYTES * count)) for count in range(_MOST_SEGMENTS + 1)]

    def send(self, count: int) -> int:
        """Send `count` datagrams; returns how many the kernel took before it refused one, if it did."""
        taken = 0
        while taken < count:
            segments = min(_MOST_SEGMENTS, count - taken)
            try:
                self._send(self._views[segments])
            except OSError:
                break  # ENOBUFS, or ECONNREFUSED when the sink is gone: counted by the caller, not tried again
            taken += segments
        return taken


@dataclass(frozen=True, slots=True)
class Sent:
    """What the sender did: packets the kernel took, refusals, measured seconds, and the worst lateness of a burst."""

    sent: int
    refused: int
    elapsed_s: float
    latest_burst_ms: float


def send_paced(sender: BurstSender, *, rate_pps: int, burst: int, duration_s: float) -> Sent:
    """Send bursts at absolute deadlines on CLOCK_MONOTONIC for `duration_s`, and at most rate x duration packets.

    Time is cut into equal intervals, one a burst, and each burst leaves at a random moment of its interval. A strict
    beat would be in step with the kernel's tick (1, 4 or 10 ms), by which /proc/stat samples who is busy: measured
    here, bursts each 1.000 ms against a tick of 4 ms made a core that worked 13 % of the time appear 1 % busy.

    A late burst is followed by the next ones at their own deadlines, so the mean rate holds as long as the core allows
    it; but no two bursts are closer than half an interval. A sender that was kept from its core for 30 ms would
    otherwise throw all it missed at once onto a link that holds 256 packets, and measure its own overflow.
    What could not be sent by the end of the time is not sent at all; the measured rate then says so.
    """
    planned = round(rate_pps * duration_s)
    interval_s = burst / rate_pps
    sent = refused = bursts = 0
    latest = 0.0
    last = -math.inf
    monotonic, sleep, send, anywhere = time.monotonic, time.sleep, sender.send, random.random
    start = monotonic()
    end = start + duration_s
    while sent + refused < planned:
        deadline = start + (bursts + anywhere()) * interval_s
        earliest = min(end, max(deadline, last + interval_s / 2))
        while (now := monotonic()) < earliest:
            # Catching up leaves waits that are shorter than it takes to sleep and wake up.
            if now < deadline or earliest - now > _SHORTEST_SLEEP_S:
                sleep(earliest - now)
        if now >= end:
            break
        last = now
        latest = max(latest, now - deadline)
        due = min(burst, planned - sent - refused)
        taken = send(due)
        sent += taken
        refused += due - taken
        bursts += 1
    with contextlib.suppress(ValueError):
        sleep(end - monotonic())
    return Sent(sent, refused, monotonic() - start, latest * 1000)


def run_sender(arguments: argparse.Namespace) -> None:
    """Wait for `start` commands; answer each with what was sent."""
    commands = Commands(arguments.lifetime)
    # Without this the kernel may be 50 us late with every sleep, to save wake-ups.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDER_BUFFER_BYTES)
        connected.connect((arguments.address, UDP_PORT))
        sender = BurstSender(connected)
        gc.disable()
        say(event="ready")
        while True:
            order = commands.next()
            result = send_paced(
                sender,
                rate_pps=int(order["rate_pps"]),
                burst=int(order["burst"]),
                duration_s=float(order["duration_s"]),
            )
            say(event="sent", **asdict(result))


@dataclass(frozen=True, slots=True)
class SinkReading:
    """Totals of the sink's socket: datagrams read, datagrams the full buffer refused, bytes waiting in the buffer."""

    received: int
    refused_by_buffer: int
    waiting_bytes: int


def open_sink(address: str, port: int = UDP_PORT) -> socket.socket:
    """The receiving socket: blocking, with a large buffer, waking up each 100 ms when nothing arrives."""
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sink.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), SINK_BUFFER_BYTES)
        # A kernel timeout keeps recv one system call; Python's settimeout would add a poll to each.
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 0, int(_QUIET_S * 1e6)))
        sink.bind((address, port))
    except BaseException:
        sink.close()
        raise
    return sink


def read_until_quiet(sink: socket.socket) -> int:
    """Receive datagrams one by one until none has come for 100 ms; returns how many.

    This loop is what the user-space position costs in Python: one recv_into and one addition a datagram, nothing else.
    """
    receive = sink.recv_into
    buffer = bytearray(2048)
    received = 0
    try:
        while True:
            receive(buffer)
            received += 1
    except BlockingIOError:
        return received


def read_sink(sink: socket.socket, received: int) -> SinkReading:
    """The totals now. SO_MEMINFO reads the counter that SO_RXQ_OVFL would attach to a later datagram, if one came."""
    memory = _MEMINFO.unpack(sink.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
    return SinkReading(received, memory[_MEMINFO_DROPS], memory[_MEMINFO_RMEM_ALLOC])


def run_sink(arguments: argparse.Namespace) -> None:
    """Receive for ever; when it is quiet, answer `read` commands with the totals."""
    commands = Commands(arguments.lifetime)
    received = 0
    with open_sink(arguments.address) as sink:
        gc.disable()
        say(event="ready", buffer_bytes=sink.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        while True:
            received += read_until_quiet(sink)
            while commands.pending() is not None:
                say(event="totals", **asdict(read_sink(sink, received)))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="experiments.traffic")
    parser.add_argument("role", choices=("sender", "sink"))
    parser.add_argument("--address", required=True)
    parser.add_argument("--lifetime", type=float, required=True, metavar="SECONDS")
    arguments = parser.parse_args(argv)
    try:
        (run_sender if arguments.role == "sender" else run_sink)(arguments)
    except OSError as error:
        print(f"{arguments.role}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
