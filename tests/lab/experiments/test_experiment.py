"""Whole experiments, short ones, on real namespaces, packets and TLS: what is recorded, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.lab import CLIENT, EDGE
from experiments.plan import Position
from experiments.runs import LoadedRuns, load_runs

QUICK = ("--duration", "1", "--settle", "0.2")


def command(results: Path, *flags: str) -> list[str]:
    return [sys.executable, "-P", "-m", "experiments", "run", "--results", str(results), *flags]


def run_experiment(results: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(results, *flags), capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def started_experiment(results: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """An experiment under way, in a process group of its own as from a shell; killed if it outlives the test."""
    with subprocess.Popen(
        command(results, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def only_results(parent: Path) -> Path:
    (directory,) = parent.iterdir()
    return directory


def wait_for_runs(parent: Path, process: subprocess.Popen[str], count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for file in parent.glob("*/runs.jsonl"):
            if file.read_bytes().count(b"\n") >= count:
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    pytest.fail(f"no {count} runs came about: {process.communicate(timeout=10)}")


def positions_of(loaded: LoadedRuns) -> list[str]:
    return [run.position.value for run in loaded.runs]


@pytest.mark.parametrize("rate", [2_000, 20_000])
def test_packets_add_up_in_every_position(tmp_path: Path, rate: int) -> None:
    done = run_experiment(tmp_path, "--pps", str(rate), "--repetitions", "1", *QUICK)
    assert done.returncode == 0, done.stderr
    loaded = load_runs(only_results(tmp_path))
    assert loaded.damage == ()
    assert positions_of(loaded) == ["userspace", "nft-input", "xdp"]
    for run in loaded.runs:
        assert run.sent == run.dropped + run.received_userspace + run.lost
        assert run.lost == sum(run.lost_where.values())
        assert 0 <= run.lost <= 0.01 * run.sent
        assert run.adds_up
        assert run.delivered == (run.actual_pps >= 0.9 * rate)
        assert 0 < run.sent <= rate
        assert run.actual_pps == pytest.approx(run.sent / run.duration_s, rel=1e-3)
        if run.position is Position.USERSPACE:
            assert run.received_userspace >= 0.99 * run.sent
            assert run.dropped == 0
        else:
            assert run.received_userspace == 0
            assert run.dropped >= 0.99 * run.sent
        assert (run.http.checks, run.http.successes) == (5, 5), run.http.failures
        assert all(latency > 0 for latency in run.http.latencies_ms)


def test_record_says_what_it_was_measured_on(tmp_path: Path) -> None:
    done = run_experiment(tmp_path, "--pps", "2000", "--positions", "xdp", "--repetitions", "1", *QUICK)
    assert done.returncode == 0, done.stderr
    (run,) = load_runs(only_results(tmp_path)).runs
    assert run.attach_mode == "native"
    assert (run.environment.interface, run.environment.driver, run.environment.mtu) == ("zs-edge0", "veth", 1500)
    assert run.environment.lab
    assert run.environment.kernel == os.uname().release
    assert len(run.cpu_busy_percent_per_core) == os.cpu_count()
    assert 0 < run.cpu_busy_percent <= 100
    # The NAPI thread of the edge took the packets: were it not threaded or not attached, its time would be nothing.
    assert run.receiver_cpu_ns["napi"] > 0
    assert run.receiver_cpu_ns["server"] > 0
    assert run.burst == 2


def test_json_summary_names_the_report_and_progress_goes_to_stderr(tmp_path: Path) -> None:
    done = run_experiment(tmp_path, "--pps", "2000", "--positions", "xdp", "--repetitions", "1", "--json", *QUICK)
    summary = json.loads(done.stdout)
    assert Path(summary["report"]).read_text().startswith("<!doctype html>")
    assert [condition["position"] for condition in summary["conditions"]] == ["xdp"]
    assert "1/1  xdp" in done.stderr


def test_rate_that_cannot_be_sent_is_marked_and_excluded(tmp_path: Path) -> None:
    done = run_experiment(tmp_path, "--pps", "2000000", "--positions", "xdp", "--repetitions", "1", *QUICK)
    assert done.returncode == 0, done.stderr
    (run,) = load_runs(only_results(tmp_path)).runs
    assert not run.delivered
    assert 0 < run.actual_pps < 0.9 * run.target_pps
    assert run.duration_s < 2
    assert "was not delivered" in done.stdout
    assert "0/1" in done.stdout
    assert "No conclusion can be drawn" in (only_results(tmp_path) / "report.html").read_text()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_experiment_keeps_its_finished_runs(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """That nothing is left behind is checked after every test of this folder."""
    with started_experiment(tmp_path, "--pps", "5000", "--duration", "1", "--settle", "0.2") as process:
        wait_for_runs(tmp_path, process, 2)
        # To the whole group, as a terminal does.
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == status, err
    assert f"stopped by {number.name}" in err
    loaded = load_runs(only_results(tmp_path))
    assert loaded.damage == ()
    assert positions_of(loaded)[:2] == ["userspace", "nft-input"]
    assert len(loaded.runs) < 9
    assert f"The experiment ended early: {len(loaded.runs)} of 9 runs were made" in out
    assert (only_results(tmp_path) / "report.html").exists()


def test_interrupt_before_the_first_run_ends_leaves_no_results(tmp_path: Path) -> None:
    with started_experiment(tmp_path, "--pps", "1000", "--duration", "60") as process:
        deadline = time.monotonic() + 30
        while len(EDGE.processes()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert list(tmp_path.iterdir()) == []


def test_next_experiment_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    with started_experiment(tmp_path / "first", "--pps", "2000", "--settle", "0.2", "--duration", "1") as process:
        wait_for_runs(tmp_path / "first", process, 1)
        process.kill()
        process.communicate(timeout=10)
    assert CLIENT.exists(), "a killed experiment was expected to leave its namespaces"
    # Sender and prober end by themselves: they must not go on when nobody measures.
    deadline = time.monotonic() + 5
    while (alive := CLIENT.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []
    assert len(load_runs(only_results(tmp_path / "first")).runs) >= 1
    done = run_experiment(
        tmp_path / "second", "--pps", "2000", "--positions", "nft-input", "--repetitions", "1", *QUICK
    )
    assert done.returncode == 0, done.stderr
    assert positions_of(load_runs(only_results(tmp_path / "second"))) == ["nft-input"]


def test_two_experiments_at_once_are_refused(tmp_path: Path) -> None:
    with started_experiment(tmp_path / "first", "--pps", "1000", "--duration", "1", "--settle", "0.2") as process:
        wait_for_runs(tmp_path / "first", process, 1)
        second = run_experiment(tmp_path / "second", "--pps", "1000", *QUICK)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    assert second.returncode == 2
    assert [line for line in second.stderr.splitlines() if line.startswith("zs-experiment: the lab is in use by")]
    assert list((tmp_path / "second").iterdir()) == []


def test_report_is_rebuilt_from_the_recorded_runs(tmp_path: Path) -> None:
    run_experiment(tmp_path, "--pps", "2000", "--positions", "xdp", "--repetitions", "1", *QUICK)
    report = only_results(tmp_path) / "report.html"
    first = report.read_text()
    report.unlink()
    again: Sequence[str] = [sys.executable, "-P", "-m", "experiments", "report", str(report.parent)]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert report.read_text() == first
    assert done.stdout.splitlines()[-1] == f"Report: {report}"
