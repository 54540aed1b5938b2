"""Sender and sink on loopback sockets: what is said to be sent was sent, and what arrives is counted once."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from experiments.traffic import BurstSender, open_sink, read_sink, read_until_quiet, send_paced


@pytest.fixture
def sink() -> Iterator[socket.socket]:
    with open_sink("127.0.0.1", port=0) as opened:
        yield opened


@pytest.fixture
def sender(sink: socket.socket) -> Iterator[BurstSender]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected:
        connected.connect(sink.getsockname())
        yield BurstSender(connected)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 130, 256])
def test_burst_arrives_as_that_many_datagrams(sink: socket.socket, sender: BurstSender, count: int) -> None:
    assert sender.send(count) == count
    assert [len(sink.recv(2048)) for _ in range(count)] == [128] * count
    assert read_until_quiet(sink) == 0


def test_sink_counts_every_datagram_and_leaves_nothing_waiting(sink: socket.socket, sender: BurstSender) -> None:
    assert sender.send(200) == 200
    assert read_sink(sink, 0).waiting_bytes > 200 * 128
    assert read_until_quiet(sink) == 200
    reading = read_sink(sink, 200)
    assert (reading.received, reading.refused_by_buffer, reading.waiting_bytes) == (200, 0, 0)


def test_datagrams_that_a_full_buffer_refuses_are_counted(sink: socket.socket, sender: BurstSender) -> None:
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert sender.send(256) == 256
    received = read_until_quiet(sink)
    assert 0 < received < 256
    assert read_sink(sink, received).refused_by_buffer == 256 - received


def test_paced_sending_keeps_count_and_time(sink: socket.socket, sender: BurstSender) -> None:
    result = send_paced(sender, rate_pps=2_000, burst=7, duration_s=0.5)
    assert 0 < result.sent <= 1_000
    assert result.refused == 0
    assert 0.5 <= result.elapsed_s < 5
    assert read_until_quiet(sink) == result.sent


def test_sender_that_cannot_keep_up_stops_on_time_and_says_less(sink: socket.socket, sender: BurstSender) -> None:
    result = send_paced(sender, rate_pps=2_000_000_000, burst=64, duration_s=0.2)
    assert result.sent < 400_000_000
    assert 0.2 <= result.elapsed_s < 5


def test_sender_that_was_held_up_does_not_throw_all_it_missed_at_once() -> None:
    """A stand-in for the socket, because only the times count, and because it has to stall."""
    moments: list[float] = []

    class StallsOnce(BurstSender):
        def __init__(self) -> None:
            pass

        def send(self, count: int) -> int:
            moments.append(time.monotonic())
            if len(moments) == 1:
                time.sleep(0.1)
            return count

    result = send_paced(StallsOnce(), rate_pps=1_000, burst=4, duration_s=0.6)
    assert result.sent == 4 * len(moments)
    assert min(later - earlier for earlier, later in itertools.pairwise(moments)) >= 0.5 * 0.004
    assert result.latest_burst_ms > 80


def test_refused_datagrams_are_counted_as_refused_not_sent(sender: BurstSender, sink: socket.socket) -> None:
    # A datagram to a closed port brings back ICMP, and the next send fails with ECONNREFUSED.
    sink.close()
    result = send_paced(sender, rate_pps=1_000, burst=1, duration_s=0.2)
    assert result.refused > 0
    assert result.sent > 0
    assert result.sent + result.refused <= 200


def test_sink_wakes_up_by_itself_when_it_is_quiet(sink: socket.socket) -> None:
    seconds, microseconds = struct.unpack("@ll", sink.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
    assert 0 < seconds * 1_000_000 + microseconds <= 100_000
    assert read_until_quiet(sink) == 0
