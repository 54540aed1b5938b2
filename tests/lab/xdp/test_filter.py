"""The life of a filter: attach, switch, sample, detach, and what a killed process leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from xdp import nftables
from xdp.counters import Count
from xdp.filter import BPFFS, AttachMode, Filter, is_bpffs, mount_bpffs, remove_leftovers
from xdp.frames import framed, ipv4, transport
from xdp.layout import SAMPLE_EVERY
from xdp.policy import DropPort, DropSource, Mode, Policy, Protocol, Reason, Rule, Verdict, XdpError
from xdp.prefilter import Prefilter

from .conftest import Pair

DROP_4000 = (DropPort(Protocol.UDP, 4000),)


@pytest.fixture
def prefilter() -> Iterator[Prefilter]:
    with Prefilter.load() as loaded:
        yield loaded


@pytest.fixture
def pins() -> Iterator[Path]:
    """A place for pins that no other filter uses, emptied after the test."""
    mount_bpffs()
    root = BPFFS / f"zs-t-{os.getpid()}"
    yield root
    remove_leftovers(root)


@pytest.fixture
def on_one_cpu() -> Iterator[None]:
    """Every CPU counts to sixty-four on its own."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


def udp_frame(port: int, source: str = "192.0.2.7") -> bytes:
    return framed(ipv4(source, "192.0.2.1", 17, transport(source, "192.0.2.1", 17, port)))


def test_native_is_tried_first_and_works_on_a_veth(pair: Pair) -> None:
    with pair.inside(), Filter.attach(pair.receiver_link) as attached:
        assert (attached.attach_mode, attached.native_refusal) == (AttachMode.NATIVE, None)
        assert "prog/xdp id" in link_state(pair.receiver_link)
        assert attached.mode is Mode.MONITOR


def test_generic_is_used_when_forced(pair: Pair) -> None:
    with pair.inside(), Filter.attach(pair.receiver_link, attach=AttachMode.GENERIC) as attached:
        assert attached.attach_mode is AttachMode.GENERIC
        assert "xdpgeneric" in link_state(pair.receiver_link)


def test_generic_is_the_fallback_where_the_driver_has_no_hook(pair: Pair) -> None:
    with pair.inside():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        with pytest.raises(XdpError, match="cannot attach to lo in native mode"):
            Filter.attach("lo", attach=AttachMode.NATIVE)
        with Filter.attach("lo") as attached:
            assert attached.attach_mode is AttachMode.GENERIC
            assert attached.native_refusal == "operation not supported"


def link_state(interface: str) -> str:
    return subprocess.run(["ip", "link", "show", interface], capture_output=True, text=True, check=True).stdout


def test_policy_is_switched_without_reattaching(pair: Pair) -> None:
    with pair.inside(), Filter.attach(pair.receiver_link) as attached:
        before = link_state(pair.receiver_link)
        for number, mode in enumerate((Mode.PROTECT, Mode.MONITOR, Mode.PROTECT), 2):
            attached.apply(Policy(mode, DROP_4000))
            assert attached.mode is mode
            assert attached.prefilter.policies_applied == number
        assert link_state(pair.receiver_link) == before


def test_occupied_interface_is_refused_in_one_line(pair: Pair) -> None:
    with pair.inside(), Filter.attach(pair.receiver_link), pytest.raises(XdpError) as refusal:
        Filter.attach(pair.receiver_link)
    assert refusal.value.message == f"{pair.receiver_link} runs another XDP program"


def test_unknown_interface_is_refused() -> None:
    with pytest.raises(XdpError, match="there is no interface zst-none"):
        Filter.attach("zst-none")


def test_detached_filter_lets_packets_through(pair: Pair) -> None:
    with pair.udp_socket(4, 4000) as receiving, pair.inside():
        with Filter.attach(pair.receiver_link) as attached:
            attached.apply(Policy(Mode.PROTECT, DROP_4000))
            pair.send_udp("10.78.0.9", 4000, b"while attached")
            deadline = time.monotonic() + 2
            while attached.counters().dropped == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert attached.counters().dropped == 1
        pair.send_udp("10.78.0.9", 4000, b"after")
        assert receiving.recv(64) == b"after"
        assert "xdp" not in link_state(pair.receiver_link)


def test_policy_is_switched_whole(prefilter: Prefilter) -> None:
    """No packet may meet the rules of one policy in the mode of the other, however often they change places."""
    dropping, passing = Policy(Mode.PROTECT, DROP_4000), Policy(Mode.MONITOR, (DropSource(ip_network("192.0.2.0/24")),))
    prefilter.apply(dropping)
    stopping = threading.Event()

    def judge_packets() -> None:
        while not stopping.is_set():
            prefilter.test_run(udp_frame(4000), repeat=1000)

    judging = threading.Thread(target=judge_packets)
    judging.start()
    try:
        for _ in range(20):
            prefilter.apply(passing)
            prefilter.apply(dropping)
    finally:
        stopping.set()
        judging.join()
    counters = prefilter.counters()
    outcomes = {outcome for outcome, count in counters.by_outcome.items() if count.packets}
    assert outcomes == {(Verdict.DROP, Reason.PORT), (Verdict.PASS, Reason.SOURCE)}


@pytest.mark.parametrize("rules", [(), DROP_4000])
def test_when_apply_returns_the_old_policy_is_gone(prefilter: Prefilter, rules: tuple[Rule, ...]) -> None:
    other = (DropPort(Protocol.UDP, 4001), DropSource(ip_network("198.51.100.0/24")))
    for _ in range(3):
        for current in (rules, other):
            prefilter.apply(Policy(Mode.PROTECT, current))
            dropped = {port for port in (4000, 4001) if prefilter.test_run(udp_frame(port)).returned == 1}
            assert dropped == {rule.port for rule in current if isinstance(rule, DropPort)}
            from_source = prefilter.test_run(udp_frame(4002, "198.51.100.3")).returned == 1
            assert from_source == (current is other)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 640])
def test_one_in_sixty_four_dropped_packets_is_sampled(prefilter: Prefilter, on_one_cpu: None, count: int) -> None:
    prefilter.apply(Policy(Mode.PROTECT, DROP_4000))
    for _ in range(count):
        prefilter.test_run(udp_frame(4000))
        prefilter.test_run(udp_frame(4001))
    samples = prefilter.samples()
    assert len(samples) == -(-count // SAMPLE_EVERY)
    for sample in samples:
        assert (sample.reason, sample.source, sample.protocol) == (Reason.PORT, ip_address("192.0.2.7"), 17)
        assert (sample.source_port, sample.destination_port) == (5353, 4000)
        assert sample.frame_bytes == len(udp_frame(4000))
    assert prefilter.samples() == []
    assert prefilter.counters().samples_lost == 0


def test_samples_that_find_the_ring_full_are_counted_as_lost(prefilter: Prefilter, on_one_cpu: None) -> None:
    prefilter.apply(Policy(Mode.PROTECT, DROP_4000))
    dropped = 64 * 8192
    prefilter.test_run(udp_frame(4000), repeat=dropped)
    lost = prefilter.counters().samples_lost
    assert prefilter.counters().of(Verdict.DROP, Reason.PORT) == Count(dropped, dropped * len(udp_frame(4000)))
    assert lost > 0
    assert len(prefilter.samples()) + lost == dropped // SAMPLE_EVERY


def test_nothing_is_sampled_in_monitor_mode(prefilter: Prefilter) -> None:
    prefilter.apply(Policy(Mode.MONITOR, DROP_4000))
    prefilter.test_run(udp_frame(4000), repeat=1000)
    assert prefilter.samples() == []
    assert prefilter.counters().of(Verdict.PASS, Reason.PORT).packets == 1000


def test_ten_thousand_prefixes_are_all_in_force(prefilter: Prefilter) -> None:
    prefixes = [ip_network(f"{a}.{b}.{c}.0/25") for a in (11, 12) for b in range(50) for c in range(0, 200, 2)]
    assert len(prefixes) == 10_000
    prefilter.apply(Policy(Mode.PROTECT, tuple(DropSource(prefix) for prefix in prefixes)))
    for prefix in prefixes[::97]:
        assert prefilter.test_run(udp_frame(4000, str(prefix[-1]))).returned == 1
        assert prefilter.test_run(udp_frame(4000, str(prefix[-1] + 1))).returned == 2


def test_pinned_filter_outlives_its_process_and_is_reopened(pair: Pair, pins: Path) -> None:
    pin = pins / "edge"
    with pair.inside():
        kill_after(
            f"f = Filter.attach({pair.receiver_link!r}, pin=Path({str(pin)!r})); "
            "f.apply(Policy(Mode.PROTECT, (DropPort(Protocol.UDP, 4000),)))"
        )
        assert "prog/xdp" in link_state(pair.receiver_link)
        with Filter.reopen(pin) as reopened:
            assert (reopened.interface, reopened.attach_mode) == (pair.receiver_link, AttachMode.NATIVE)
            assert (reopened.mode, reopened.is_attached()) == (Mode.PROTECT, True)
            with pytest.raises(XdpError, match="something is pinned"):
                Filter.attach(pair.receiver_link, pin=pin)
            before = reopened.counters()
            pair.send_udp("10.78.0.9", 4000)
            time.sleep(0.1)
            assert (reopened.counters() - before).of(Verdict.DROP, Reason.PORT).packets == 1
        assert not pin.exists()
        assert "xdp" not in link_state(pair.receiver_link)


def test_unpinned_filter_and_pinned_leftovers_of_a_killed_process_can_be_removed(pair: Pair, pins: Path) -> None:
    with pair.inside():
        kill_after(f"f = Filter.attach({pair.receiver_link!r}); f.apply(Policy(Mode.PROTECT))")
        deadline = time.monotonic() + 2
        while "xdp" in link_state(pair.receiver_link) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "xdp" not in link_state(pair.receiver_link)
        kill_after(
            f"f = Filter.attach({pair.receiver_link!r}, pin=Path({str(pins / 'deep' / 'edge')!r})); "
            "t = Table(Policy(), name='zs_left').__enter__()"
        )
        assert nftables.Table(Policy(), name="zs_left").exists()
        assert "prog/xdp" in link_state(pair.receiver_link)
        assert nftables.remove_leftovers() == ["zs_left"]
        assert remove_leftovers(pins) == [pins / "deep" / "edge"]
        assert "xdp" not in link_state(pair.receiver_link)
        assert not pins.exists()
        assert (nftables.remove_leftovers(), remove_leftovers(pins)) == ([], [])


def kill_after(statement: str) -> None:
    """Runs a statement in a process of its own, which is then killed without a chance to clean up."""
    script = "\n".join(
        (
            "import time",
            "from pathlib import Path",
            "from xdp.filter import Filter",
            "from xdp.nftables import Table",
            "from xdp.policy import DropPort, Mode, Policy, Protocol",
            statement,
            "print('done', flush=True)",
            "time.sleep(30)",
        )
    )
    source = str(Path(sys.modules["xdp"].__path__[0]).parent)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "done\n"
        finally:
            process.send_signal(signal.SIGKILL)


def test_filter_whose_interface_is_gone_is_reported_and_removed(pair: Pair, pins: Path) -> None:
    pin = pins / "edge"
    with pair.inside():
        Filter.attach(pair.receiver_link, pin=pin).close()
        subprocess.run(["ip", "link", "del", pair.receiver_link], check=True)
        with pytest.raises(XdpError, match="its interface is gone"):
            Filter.reopen(pin)
    assert remove_leftovers(pins) == [pin]


def test_broken_object_gives_one_clear_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "prefilter.bpf.o"
    broken.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(XdpError) as failure:
        Prefilter.load(broken)
    assert str(failure.value).count("\n") == 0
    assert f"cannot open the BPF object {broken}" in failure.value.message
    assert "libbpf says" in failure.value.message
    assert capfd.readouterr() == ("", "")


def test_missing_object_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(XdpError, match="is missing: build it with `make bpf`"):
        Prefilter.load(tmp_path / "prefilter.bpf.o")


def test_program_that_the_verifier_refuses_gives_its_last_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "endless.bpf.c", tmp_path / "endless.bpf.o"
    source.write_text(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n"
        'SEC("xdp") int zs_prefilter(struct xdp_md *c) { return *(int *)(long)c->data; }\n'
        'char _license[] SEC("license") = "GPL";\n'
    )
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", include, "-c", source, "-o", target], check=True)
    with pytest.raises(XdpError) as failure:
        Prefilter.load(target)
    assert "invalid access to packet" in failure.value.message or "R1 offset is outside" in failure.value.message
    assert str(failure.value).count("\n") == 0
    assert capfd.readouterr() == ("", "")


def test_bpffs_is_recognised(tmp_path: Path) -> None:
    mount_bpffs()
    assert is_bpffs(BPFFS)
    assert not is_bpffs(tmp_path)
    assert not is_bpffs(tmp_path / "absent")
