"""The `zs-experiment` command: flags in; a plan carried out, or recorded runs analysed again; table and report out."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from appliance.settings import ApplianceError
from experiments.analysis import Analysis, analyse
from experiments.interrupts import Interrupted, Interrupts
from experiments.plan import SEED_ORDER, ExperimentError, Plan, Position
from experiments.runner import carry_out
from experiments.runs import RUNS_FILE, load_runs
from experiments.terminal import progress, show_result
from xdp.errors import XdpError
from zeroserve.settings import ZeroserveError

_TABLE_COLUMNS = 118
"""Where the output is no terminal there is no width to fit into."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ExperimentError(message, f"see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 when something was refused, 128 + signal when interrupted."""
    try:
        arguments = _parser().parse_args(argv)
        return _run(arguments) if arguments.command == "run" else _report(arguments.directory, arguments.json)
    except (ExperimentError, ApplianceError, XdpError, ZeroserveError) as error:
        print(f"zs-experiment: {error.message}; {error.hint}", file=sys.stderr)
    except OSError as error:
        print(f"zs-experiment: {error}; check the path, the disk and your rights", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="zs-experiment",
        description="Measure what dropping unwanted packets costs at each position of the network stack.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure in the built-in lab (root)", allow_abbrev=False)
    run.add_argument("--pps", type=_rates, required=True, metavar="N[,N...]", help="target rates in packets a second")
    run.add_argument(
        "--positions",
        type=_positions,
        default=SEED_ORDER,
        metavar="P[,P...]",
        help=f"of {', '.join(Position)} (default: all); their order is the protocol's",
    )
    run.add_argument("--duration", type=float, default=10.0, metavar="S", help="seconds of load a run (default 10)")
    run.add_argument("--repetitions", type=int, default=3, metavar="N", help="of every condition (default 3)")
    run.add_argument("--settle", type=float, default=2.0, metavar="S", help="seconds before each run (default 2)")
    run.add_argument(
        "--burst", type=int, metavar="N", help="packets sent at once (default: those of a millisecond, at most 64)"
    )
    run.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="where to put results (default results)"
    )
    report = commands.add_parser("report", help="analyse recorded runs again", allow_abbrev=False)
    report.add_argument("directory", type=Path, metavar="DIR", help="a results directory, such as results/<id>")
    for command in (run, report):
        command.add_argument("--json", action="store_true", help="print the summary as JSON on stdout, not a table")
    return parser


def _rates(text: str) -> tuple[int, ...]:
    if any(part.startswith("0") for part in text.split(",")[1:]):
        raise ExperimentError(f"--pps {text}: a comma stands between two rates", "write 50,000 as 50000 or 50_000")
    try:
        return tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise ExperimentError(f"--pps {text} is not a list of numbers", "write it as 50000 or 10000,50000") from None


def _positions(text: str) -> tuple[Position, ...]:
    try:
        return tuple(Position(part) for part in text.split(","))
    except ValueError:
        raise ExperimentError(f"--positions {text} names an unknown position", f"use {', '.join(Position)}") from None


def _run(arguments: argparse.Namespace) -> int:
    plan = Plan(
        rates_pps=arguments.pps,
        positions=arguments.positions,
        duration_s=arguments.duration,
        repetitions=arguments.repetitions,
        settle_s=arguments.settle,
        burst=arguments.burst,
    )
    if os.geteuid() != 0:
        raise ExperimentError("the lab needs root to make namespaces and attach programs", "run with sudo")
    results = _new_results_directory(arguments.results)
    messages = Console(stderr=True)
    interrupts = Interrupts()
    # Held around everything, so that no signal falls between the clean-up and the report.
    with interrupts.held():
        try:
            with progress(plan, messages) as observer:
                carry_out(plan, results, interrupts, observer)
            status = 0
        except Interrupted as interrupted:
            messages.print(f"stopped by {interrupted}; everything is cleaned up, finished runs are kept")
            status = interrupted.exit_code
        finally:
            has_runs = _keep_only_results(results)
        if has_runs:
            _report(results, arguments.json)
        elif status:
            shutil.rmtree(results, ignore_errors=True)
    return status


def _report(directory: Path, as_json: bool) -> int:
    """Analyse the file of a results directory, write its report, and print the summary."""
    loaded = load_runs(directory)
    if not loaded.runs:
        detail = f" ({loaded.damage[0]})" if loaded.damage else ""
        raise ExperimentError(f"{directory / RUNS_FILE} holds no run{detail}", "run the experiment again")
    analysis = analyse(loaded.runs, loaded.damage)
    # Imported here: drawing needs a second to load, and a mistyped flag should not wait for it.
    from experiments.report import write_report

    report = write_report(directory, loaded.runs, analysis)
    if as_json:
        print(json.dumps(_summary(directory, report, analysis)))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=_TABLE_COLUMNS)
        show_result(console, analysis)
        console.print(f"\nReport: {report}", highlight=False, soft_wrap=True)
    return 0


def _summary(directory: Path, report: Path, analysis: Analysis) -> dict[str, object]:
    return {"results": str(directory), "report": str(report), **asdict(analysis)}


def _new_results_directory(parent: Path) -> Path:
    """A directory named after the moment, such as 20261201-031500-lab."""
    directory = parent / datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S-lab")
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise ExperimentError(f"{directory} exists already", "wait a second, or give another --results") from None
    return directory


def _keep_only_results(results: Path) -> bool:
    """Remove files without content, and the directory if nothing remains; whether there are runs in it."""
    for file in list(results.iterdir()):
        if file.stat().st_size == 0:
            file.unlink()
    if not any(results.iterdir()):
        results.rmdir()
    return (results / RUNS_FILE).exists()
