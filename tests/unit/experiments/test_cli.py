"""What the command refuses, and what it makes of recorded runs without measuring anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.cli import main
from experiments.plan import Plan
from experiments.runs import Run, RunFile

MakeRun = Callable[..., Run]


@pytest.fixture
def results(tmp_path: Path, make_run: MakeRun) -> Path:
    """Nine sound runs but one, which was not delivered."""
    directory = tmp_path / "20261201-031500-lab"
    directory.mkdir()
    cost = {"userspace": 3000.0, "nft-input": 1200.0, "xdp": 600.0}
    with RunFile(directory) as file:
        for planned in Plan((50_000,)).runs():
            drops = planned.position.value != "userspace"
            is_short = planned.order == 9
            file.append(
                make_run(
                    order=planned.order,
                    repetition=planned.repetition,
                    position=planned.position,
                    dropped=500_000 if drops else 0,
                    received_userspace=0 if drops else 500_000,
                    receiver_cpu_ns_per_packet=cost[planned.position] + planned.repetition,
                    delivered=not is_short,
                    actual_pps=20_000.0 if is_short else 50_000.0,
                )
            )
    return directory


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "zs-experiment: the following arguments are required: COMMAND; see zs-experiment --help"),
        (["run"], "zs-experiment: the following arguments are required: --pps; see zs-experiment run --help"),
        (
            ["run", "--pps", "fast"],
            "zs-experiment: --pps fast is not a list of numbers; write it as 50000 or 10000,50000",
        ),
        (
            ["run", "--pps", "50,000"],
            "zs-experiment: --pps 50,000: a comma stands between two rates; write 50,000 as 50000 or 50_000",
        ),
        (
            ["run", "--pps", "5", "--positions", "tc"],
            "zs-experiment: --positions tc names an unknown position; use userspace, nft-input, xdp",
        ),
        (
            ["run", "--pps", "0"],
            "zs-experiment: --pps 0 is out of bounds; give a value from 1 to 2e+06",
        ),
        (
            ["report", "/nonexistent"],
            "zs-experiment: cannot read /nonexistent/runs.jsonl: No such file or directory; "
            "name a directory that zs-experiment run has written",
        ),
    ],
)
def test_bad_input_is_one_line_and_status_2(argv: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [line]


def test_report_prints_the_table_and_writes_the_page(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(results)]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith(("userspace", "nft-input", "xdp"))]
    assert [row[:4] for row in rows] == [
        ["userspace", "50,000", "3/3", "3,002"],
        ["nft-input", "50,000", "2/3", "1,202"],
        ["xdp", "50,000", "3/3", "602"],
    ]
    assert "! Run 9 (nft-input, 50,000 pps, repetition 3) was not delivered: 20,000 pps is 40 %" in out
    assert out.rstrip().endswith(f"Report: {results / 'report.html'}")


def test_json_is_the_only_thing_on_stdout(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(results), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["report"] == str(results / "report.html")
    assert [c["position"] for c in summary["conditions"]] == ["userspace", "nft-input", "xdp"]
    assert summary["conditions"][2]["receiver_ns_per_packet"]["median"] == 602.0


def test_report_can_be_rebuilt_from_a_damaged_file(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (results / "runs.jsonl").open("a") as file:
        file.write('{"schema": 1, "run_id": "half')
    assert main(["report", str(results)]) == 0
    assert "! runs.jsonl:10 was left out: not JSON" in capsys.readouterr().out


def test_file_without_a_usable_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs.jsonl").write_text("{}\n")
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no run (runs.jsonl:1 was left out: schema None" in capsys.readouterr().err


class _Page(HTMLParser):
    """Collects what a browser would fetch, the ids, and checks that what is opened is closed."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href") and not str(value).startswith("#"):
                self.fetched.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_is_one_sound_self_contained_page(results: Path) -> None:
    assert main(["report", str(results)]) == 0
    text = (results / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert page.seen.count("svg") == 6
    assert not {"script", "link", "iframe", "img"} & set(page.seen)
    # Every run is in the table, the one that does not count struck out.
    assert text.count('<tr class="out">') == 1
    assert "What the lab can and cannot show" in text


def test_report_without_a_conclusive_run_says_so(tmp_path: Path, make_run: MakeRun) -> None:
    with RunFile(tmp_path) as file:
        file.append(make_run(delivered=False, actual_pps=10.0, http_p50_ms=None, http_p95_ms=None, http_successes=0))
    assert main(["report", str(tmp_path)]) == 0
    assert "No conclusion can be drawn" in (tmp_path / "report.html").read_text()


def test_report_over_several_rates_and_hostile_names(tmp_path: Path, make_run: MakeRun) -> None:
    with RunFile(tmp_path) as file:
        for order, rate in enumerate((500, 5_000, 50_000), start=1):
            file.append(
                make_run(
                    order=order,
                    target_pps=rate,
                    actual_pps=float(rate),
                    http_failures={"<script>alert(1)</script>": 1},
                    http_successes=3,
                )
            )
    assert main(["report", str(tmp_path)]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
