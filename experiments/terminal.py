"""What the experiment shows in a terminal: progress while it runs, and the result table at its end.

Both are views of what `runner` and `analysis` say; nothing is computed here but times to go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from experiments.analysis import Analysis, Condition, Spread
from experiments.plan import Plan, PlannedRun
from experiments.runner import START_S, Observer, expected_run_s, expected_s
from experiments.runs import Run


@contextmanager
def progress(plan: Plan, console: Console) -> Iterator[Observer]:
    """An observer for the plan's runs: a bar on a terminal, otherwise a line for each run that ends."""
    planned_runs = len(plan.runs())
    if not console.is_terminal:
        yield _Lines(console, planned_runs)
        return
    columns = (
        TextColumn("{task.description}", table_column=Column(ratio=3, no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(ratio=2)),
        TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
    )
    # Twice a second is enough to follow, and costs the client's core nothing that could be seen.
    with _TimedProgress(*columns, console=console, refresh_per_second=2, transient=True, expand=True) as bar:
        task = bar.add_task("starting", total=expected_s(plan), left="")
        bar.follow(0.0, START_S)
        yield _Bar(bar, task, plan)


class _Lines:
    def __init__(self, console: Console, planned_runs: int) -> None:
        self._console = console
        self._planned_runs = planned_runs

    def announce(self, step: str) -> None:
        self._console.print(step, highlight=False)

    def begin(self, planned: PlannedRun) -> None:
        pass

    def end(self, run: Run) -> None:
        self._console.print(_run_line(run, self._planned_runs), highlight=False, soft_wrap=True)


class _TimedProgress(Progress):
    """A bar over seconds that moves by itself, but not beyond the expected end of the step under way."""

    _done_s = _limit_s = _since = 0.0

    def follow(self, done_s: float, limit_s: float) -> None:
        """A step begins now: `done_s` of the whole are over, `limit_s` will be when it ends."""
        self._done_s, self._limit_s, self._since = done_s, limit_s, time.monotonic()

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            task.completed = min(self._limit_s, self._done_s + time.monotonic() - self._since)
            left_s = max(0, round((task.total or 0.0) - task.completed))
            task.fields["left"] = f"{left_s // 60}:{left_s % 60:02d} left"
        yield from super().get_renderables()


class _Bar:
    def __init__(self, bar: _TimedProgress, task: TaskID, plan: Plan) -> None:
        self._bar = bar
        self._task = task
        self._plan = plan
        self._planned_runs = len(plan.runs())

    def announce(self, step: str) -> None:
        self._bar.update(self._task, description=step)

    def begin(self, planned: PlannedRun) -> None:
        start_s = START_S + (planned.order - 1) * expected_run_s(self._plan)
        self._bar.follow(start_s, start_s + expected_run_s(self._plan))
        where = f"run {planned.order}/{self._planned_runs}  {planned.position} at {planned.target_pps:,} pps"
        self._bar.update(self._task, description=f"{where}  repetition {planned.repetition}/{self._plan.repetitions}")

    def end(self, run: Run) -> None:
        self._bar.console.print(_run_line(run, self._planned_runs), highlight=False)


def _run_line(run: Run, planned_runs: int) -> str:
    p95 = f"{run.http.p95_ms:.2f} ms" if run.http.p95_ms is not None else "–"
    verdict = "" if run.is_conclusive else "  NOT DELIVERED" if not run.delivered else "  DOES NOT ADD UP"
    return (
        f"{run.order:>{len(str(planned_runs))}}/{planned_runs}  {run.position:<9}  {run.actual_pps:>9,.0f} pps"
        f"  receiver {run.receiver_cpu_ns_per_packet:>6,.0f} ns/packet  HTTPS {run.http.successes}/{run.http.checks}"
        f" p95 {p95}  lost {run.lost:,}{verdict}"
    )


def show_result(console: Console, analysis: Analysis) -> None:
    """Print the table of conditions, then what can be concluded, then what to be careful about."""
    console.print(_table(analysis.conditions, console.width))
    console.print(
        "Median (smallest–largest) of the runs that count; HTTPS ok is the lowest, lost the highest.\n", highlight=False
    )
    for finding in analysis.findings:
        console.print(f"• {finding}", highlight=False)
    for warning in analysis.warnings:
        console.print(f"! {warning}", style="yellow", highlight=False)


def _table(conditions: Sequence[Condition], width: int) -> Table:
    """The conditions as rows; on a narrow terminal without the columns that matter least."""
    columns = [column for column in _COLUMNS if column.is_essential or width >= _FULL_WIDTH]
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for column in columns:
        table.add_column(column.heading, justify="left" if column is _COLUMNS[0] else "right", no_wrap=True)
    for condition in conditions:
        table.add_row(*(column.cell(condition) for column in columns))
    return table


def _median_and_range(over: Spread | None, digits: int) -> str:
    """On two lines, so that the table fits onto a terminal."""
    if over is None:
        return "–"
    if over.n == 1:
        return f"{over.median:,.{digits}f}"
    return f"{over.median:,.{digits}f}\n({over.smallest:,.{digits}f}–{over.largest:,.{digits}f})"


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    cell: Callable[[Condition], str]
    is_essential: bool = True


_FULL_WIDTH = 100
_COLUMNS = (
    _Column("position\n", lambda c: c.position.value),
    _Column("target\npps", lambda c: f"{c.target_pps:,}"),
    _Column("runs\n", lambda c: f"{c.conclusive}/{c.runs}"),
    _Column("receiver CPU\nns/packet", lambda c: _median_and_range(c.receiver_ns_per_packet, 0)),
    _Column("edge core\n% not idle", lambda c: _median_and_range(c.edge_core_percent, 1)),
    _Column("all CPUs\n% busy", lambda c: _median_and_range(c.cpu_busy_percent, 1), is_essential=False),
    _Column("HTTPS p50\nms", lambda c: _median_and_range(c.p50_ms, 2), is_essential=False),
    _Column("HTTPS p95\nms", lambda c: _median_and_range(c.p95_ms, 2)),
    _Column("ok\n%", lambda c: f"{c.http_success_percent.smallest:.4g}" if c.http_success_percent else "–"),
    _Column("lost\n%", lambda c: f"{c.loss_percent.largest:.2g}" if c.loss_percent else "–"),
)
