"""The record of a run survives the disk, and a damaged file loses only its damaged lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.plan import ExperimentError, Position
from experiments.runs import Run, RunFile, is_delivered, load_runs, run_from_line

MakeRun = Callable[..., Run]

# As the issue names them; scripts of others read these.
PROMISED = [
    *("schema", "run_id", "repetition", "position", "attach_mode", "target_pps", "actual_pps", "delivered", "sent"),
    *("dropped", "received_userspace", "cpu_busy_percent", "cpu_busy_percent_per_core", "net_rx_softirqs"),
    *("http", "environment"),
]
PROMISED_HTTP = ["checks", "successes", "p50_ms", "p95_ms", "p99_ms", "max_ms"]
PROMISED_ENVIRONMENT = ["model", "kernel", "interface", "driver", "mtu", "governor", "temperature_c", "lab"]


def test_record_has_every_promised_field(make_run: MakeRun) -> None:
    record = json.loads(make_run().to_line())
    assert set(PROMISED) <= record.keys()
    assert set(PROMISED_HTTP) <= record["http"].keys()
    assert set(PROMISED_ENVIRONMENT) == record["environment"].keys()
    assert record["position"] == "userspace"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    position=st.sampled_from(Position),
    actual=st.floats(0, 2e6),
    lost=st.integers(-5, 10**9),
    cores=st.lists(st.floats(0, 100), max_size=8).map(tuple),
    where=st.dictionaries(st.text(max_size=8), st.integers(-5, 10**9), max_size=4),
    p95=st.none() | st.floats(0, 1e4),
    failures=st.dictionaries(st.text(max_size=20), st.integers(0, 50), max_size=3),
)
def test_every_record_comes_back_as_it_was_written(
    make_run: MakeRun,
    position: Position,
    actual: float,
    lost: int,
    cores: tuple[float, ...],
    where: dict[str, int],
    p95: float | None,
    failures: dict[str, int],
) -> None:
    run = make_run(
        position=position,
        actual_pps=actual,
        lost=lost,
        cpu_busy_percent_per_core=cores,
        lost_where=where,
        http_p95_ms=p95,
        http_failures=failures,
    )
    line = run.to_line()
    assert "\n" not in line
    assert run_from_line(line) == run


def test_runs_are_on_disk_line_by_line_and_appended(make_run: MakeRun, tmp_path: Path) -> None:
    first, second = make_run(order=1), make_run(order=2, position=Position.XDP)
    with RunFile(tmp_path) as file:
        file.append(first)
        # While the file is still open: a killed experiment keeps its finished runs.
        assert load_runs(tmp_path).runs == (first,)
    with RunFile(tmp_path) as file:
        file.append(second)
    loaded = load_runs(tmp_path)
    assert loaded.runs == (first, second)
    assert loaded.damage == ()


def test_half_written_last_line_is_reported_and_the_rest_kept(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    (tmp_path / "runs.jsonl").write_text(run.to_line() + "\n" + run.to_line()[:200])
    loaded = load_runs(tmp_path)
    assert loaded.runs == (run,)
    (damage,) = loaded.damage
    assert damage.startswith("runs.jsonl:2 was left out: not JSON")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, 400))
def test_file_cut_anywhere_in_its_last_line_keeps_the_first(make_run: MakeRun, tmp_path: Path, cut: int) -> None:
    line = make_run().to_line()
    (tmp_path / "runs.jsonl").write_text(line + "\n" + line[:-cut])
    loaded = load_runs(tmp_path)
    assert len(loaded.runs) == 1
    assert len(loaded.damage) == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": 99}, "schema 99, and this version reads 1"),
        ({"position": "tc-egress"}, "position is 'tc-egress', not Position"),
        ({"sent": "many"}, "sent is 'many', not int"),
        ({"delivered": 1}, "delivered is 1, not bool"),
        ({"http": []}, "http is not an object"),
        ({"lost_where": {"link": 0.5}}, "lost_where.link is 0.5, not int"),
    ],
)
def test_line_that_is_no_run_says_why(make_run: MakeRun, change: dict[str, object], complaint: str) -> None:
    record = {**json.loads(make_run().to_line()), **change}
    with pytest.raises(ValueError, match=complaint.replace(".", r"\.")):
        run_from_line(json.dumps(record))


@pytest.mark.parametrize("missing", [field.name for field in fields(Run) if field.name != "schema"])
def test_line_without_a_field_names_it(make_run: MakeRun, missing: str) -> None:
    record = json.loads(make_run().to_line())
    del record[missing]
    with pytest.raises(ValueError, match=f"run has no {missing}"):
        run_from_line(json.dumps(record))


def test_field_of_a_later_version_is_ignored(make_run: MakeRun) -> None:
    run = make_run()
    assert run_from_line(json.dumps({**json.loads(run.to_line()), "later": 1})) == run


@pytest.mark.parametrize("text", ["[]", "3", "null", "", "\x00\xff"])
def test_line_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        run_from_line(text)


def test_directory_without_runs_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"cannot read .*runs\.jsonl") as refusal:
        load_runs(tmp_path / "nothing")
    assert "zs-experiment run" in refusal.value.hint


@pytest.mark.parametrize(("actual", "delivered"), [(45_000.0, True), (44_999.9, False), (50_000.0, True)])
def test_ninety_percent_of_the_target_is_delivered(actual: float, delivered: bool) -> None:
    assert is_delivered(actual, 50_000) is delivered
