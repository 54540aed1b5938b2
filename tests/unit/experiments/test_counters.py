"""What the kernel prints is read as it is meant, and the books of a run close or say so."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.counters import (
    CpuSnapshot,
    CpuTimes,
    CpuWindow,
    LossSnapshot,
    busy_percent,
    parse_net_dev,
    parse_snmp,
    parse_softirqs,
    parse_softnet_drops,
    parse_stat,
    parse_udp_waiting,
    process_cpu_ns,
)
from experiments.runner import Totals, account

STAT_BEFORE = """\
cpu  1000 0 500 8000 100 0 50 10 0 0
cpu0 600 0 300 4000 50 0 40 10 0 0
cpu1 400 0 200 4000 50 0 10 0 0 0
intr 12345 0 0
"""
STAT_AFTER = """\
cpu  1100 0 550 8850 150 0 50 10 0 0
cpu0 690 0 350 4350 50 0 50 10 0 0
cpu1 410 0 200 4500 100 0 0 0 0 0
intr 12399 0 0
"""


def test_busy_percent_of_all_cpus_by_hand() -> None:
    before, _ = parse_stat(STAT_BEFORE)
    after, _ = parse_stat(STAT_AFTER)
    # delta total = 1050 ticks, of which idle 850 and waiting for a disk 50: 150 busy.
    assert busy_percent(before, after) == pytest.approx(100 * 150 / 1050)


def test_no_time_is_no_load() -> None:
    together, _ = parse_stat(STAT_BEFORE)
    assert busy_percent(together, together) == 0


def test_window_between_two_snapshots_by_hand() -> None:
    def snapshot(at_s: float, text: str, net_rx: dict[int, int], sink_ns: int) -> CpuSnapshot:
        together, by_core = parse_stat(text)
        return CpuSnapshot(at_s, together, by_core, net_rx, {"sink": sink_ns})

    window = CpuWindow.between(
        snapshot(100.0, STAT_BEFORE, {0: 10, 1: 20}, 5_000), snapshot(105.0, STAT_AFTER, {0: 17, 1: 23}, 9_000)
    )
    assert window.elapsed_s == 5.0
    # Core 0: idle for 3.5 of 5 s; core 1: idle or waiting for 5.5 of 5 s, which a clock in 10 ms steps can say.
    assert window.occupied_percent_per_core == pytest.approx((30.0, 0.0))
    assert window.busy_percent_per_core[0] == pytest.approx(100 * 150 / 500)
    assert window.softirq_s_per_core[0] == pytest.approx(0.1)
    assert window.net_rx_per_core == (7, 3)
    assert window.process_ns == {"sink": 4_000}


@given(st.lists(st.integers(0, 10**6), min_size=16, max_size=16))
def test_busy_is_a_percentage_whatever_grew(numbers: list[int]) -> None:
    before = CpuTimes(*map(float, numbers[:8]))
    after = CpuTimes(*(float(a + b) for a, b in zip(numbers[:8], numbers[8:], strict=True)))
    assert 0 <= busy_percent(before, after) <= 100.0000001


def test_softirqs_are_read_by_name_and_cpu() -> None:
    text = "            CPU0     CPU3\n  NET_TX:      1        2\n  NET_RX:    300        4\n"
    assert parse_softirqs(text, "NET_RX") == {0: 300, 3: 4}
    with pytest.raises(ValueError, match="NET_ZZ"):
        parse_softirqs(text, "NET_ZZ")


def test_udp_errors_are_read_by_name_not_by_column() -> None:
    text = (
        "Tcp: A B\nTcp: 1 2\n"
        "Udp: InDatagrams NoPorts InErrors RcvbufErrors\nUdp: 9 8 7 6\n"
        "UdpLite: NoPorts\nUdpLite: 5\n"
    )
    assert parse_snmp(text, "Udp") == {"InDatagrams": 9, "NoPorts": 8, "InErrors": 7, "RcvbufErrors": 6}


def test_drops_of_links_are_read_by_direction() -> None:
    text = (
        "Inter-|   Receive                             |  Transmit\n"
        " face |bytes packets errs drop fifo frame c m|bytes packets errs drop fifo colls carrier c\n"
        "    lo:       0       0    0    0    0     0   0   0   0   0    0    0    0     0   0   0\n"
        "zs-edge0:99 9 0 17 0 0 0 0 88 8 0 23 0 0 0 0\n"
    )
    assert parse_net_dev(text)["zs-edge0"].receive == 17
    assert parse_net_dev(text)["zs-edge0"].transmit == 23
    assert parse_net_dev(text)["lo"].receive == 0


def test_backlog_drops_are_hexadecimal_and_summed() -> None:
    assert parse_softnet_drops("0000ffff 0000000a 0 0\n00000001 00000010 0 0\n") == 26


def test_waiting_bytes_are_those_of_the_port() -> None:
    text = (
        "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "  101: 024D4D0A:0FA0 00000000:0000 07 00000000:00000D00 00:00000000 00000000     0        0 4711 2 0 0\n"
        "  102: 024D4D0A:0FA1 00000000:0000 07 00000000:00000100 00:00000000 00000000     0        0 4712 2 0 0\n"
    )
    assert parse_udp_waiting(text, 4000) == 0xD00


def test_this_kernel_speaks_the_same_language() -> None:
    """The real files, read twice around some work: times grow, and the work is found where it was done."""
    before = CpuSnapshot.read({"me": (os.getpid(),)})
    begun = time.process_time_ns()
    while time.process_time_ns() - begun < 50_000_000:
        pass
    window = CpuWindow.between(before, CpuSnapshot.read({"me": (os.getpid(),)}))
    assert window.process_ns["me"] >= 45_000_000
    assert len(window.occupied_percent_per_core) == len(window.net_rx_per_core)
    own = f"/proc/{os.getpid()}"
    assert "lo" in parse_net_dev(Path(own, "net/dev").read_text())
    LossSnapshot.read(client_pid=os.getpid(), client_link="lo", edge_pid=os.getpid(), edge_link="lo")


def test_cpu_of_a_process_includes_its_threads() -> None:
    def work() -> None:
        begun = time.thread_time_ns()
        while time.thread_time_ns() - begun < 30_000_000:
            pass
        done.set()
        leave.wait(5)

    done, leave = threading.Event(), threading.Event()
    before = process_cpu_ns(os.getpid())
    thread = threading.Thread(target=work)
    thread.start()
    done.wait(5)
    try:
        assert process_cpu_ns(os.getpid()) - before >= 28_000_000
    finally:
        leave.set()
        thread.join()


def losses(link: int = 0, backlog: int = 0) -> LossSnapshot:
    return LossSnapshot(link=link, backlog=backlog, no_socket=0, bad_datagram=0)


def test_books_close_with_every_loss_in_its_place() -> None:
    closed = account(1000, Totals(5, 50, 1, losses(link=3)), Totals(605, 420, 9, losses(link=23)))
    assert (closed.dropped, closed.received, closed.lost) == (600, 370, 30)
    assert closed.lost_where == {
        "link": 20,
        "backlog": 0,
        "no_socket": 0,
        "bad_datagram": 0,
        "socket_buffer": 8,
        "unknown": 2,
    }


def test_books_that_do_not_close_are_not_made_to() -> None:
    closed = account(1000, Totals(0, 0, 0, losses()), Totals(0, 1007, 0, losses()))
    assert closed.lost == -7
    assert closed.lost_where["unknown"] == -7


@given(st.tuples(*[st.integers(0, 10**6)] * 6))
def test_sent_is_always_dropped_plus_received_plus_lost(numbers: tuple[int, ...]) -> None:
    sent, dropped, received, refused, link, backlog = numbers
    closed = account(sent, Totals(0, 0, 0, losses()), Totals(dropped, received, refused, losses(link, backlog)))
    assert sent == closed.dropped + closed.received + closed.lost
    assert closed.lost == sum(closed.lost_where.values())
