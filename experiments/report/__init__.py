"""`report.html`: one self-contained file with plots, tables and what they can and cannot show.

The numbers come from `analysis`, the plots from `charts`, the words from `report.html.j2`; here they are put together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

import jinja2

from experiments.analysis import BUSY_WITH_OTHERS_PERCENT, Analysis, edge_core_percent
from experiments.environment import Environment
from experiments.plan import DELIVERED_SHARE, PAYLOAD_BYTES, PROBE_INTERVAL_S, PROBE_PATH, UDP_PORT
from experiments.report import charts
from experiments.runs import RUNS_FILE, Run

REPORT_FILE: Final = "report.html"


def write_report(directory: Path, runs: Sequence[Run], analysis: Analysis) -> Path:
    """Write the report into the results directory, whole or not at all; returns its path. Raises OSError.

    `runs` must not be empty.
    """
    path = directory / REPORT_FILE
    unfinished = path.with_suffix(".html.part")
    unfinished.write_text(render(directory.name, runs, analysis), encoding="utf-8")
    os.replace(unfinished, path)
    return path


def render(title: str, runs: Sequence[Run], analysis: Analysis) -> str:
    """The report as HTML text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ordered = sorted(runs, key=lambda run: run.order)
    return environment.get_template("report.html.j2").render(
        title=title,
        first=ordered[0],
        runs=ordered,
        analysis=analysis,
        several_rates=len({run.target_pps for run in ordered}) > 1,
        repetitions=max(run.repetition for run in ordered),
        positions=list(dict.fromkeys(condition.position.value for condition in analysis.conditions)),
        environment=environment_rows(ordered),
        plots=_plots(ordered, analysis),
        colours={position.value: colour for position, colour in charts.POSITION_COLOURS.items()},
        number=lambda value, digits=0: f"{value:,.{digits}f}",
        edge_core_percent=edge_core_percent,
        port=UDP_PORT,
        payload=PAYLOAD_BYTES,
        path=PROBE_PATH,
        probe_interval_ms=round(PROBE_INTERVAL_S * 1000),
        delivered_percent=round(DELIVERED_SHARE * 100),
        runs_file=RUNS_FILE,
        busy_with_others_percent=BUSY_WITH_OTHERS_PERCENT,
    )


def _plots(runs: Sequence[Run], analysis: Analysis) -> dict[str, str]:
    plots = {"delivery": charts.delivery(runs), "accounting": charts.accounting(runs)}
    if any(run.is_conclusive for run in runs):
        plots |= {
            "cost": charts.receiver_cost(runs),
            "edge": charts.edge_core(runs),
            "cores": charts.per_core(runs, analysis.conditions),
        }
    if any(condition.p50_ms for condition in analysis.conditions):
        plots["latency"] = charts.latency(runs, analysis.conditions)
    return plots


def environment_rows(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Name and value of each fact about the environment; what changed between runs is shown as a range or a list."""
    rows: list[tuple[str, str]] = []
    for field in fields(Environment):
        values = [getattr(run.environment, field.name) for run in runs]
        known = list(dict.fromkeys(value for value in values if value is not None))
        if field.name == "temperature_c" and len(known) > 1:
            text = f"{min(known):.1f}–{max(known):.1f}"
        else:
            text = ", ".join(_word(value) for value in known) or "not available"
        rows.append((field.name.replace("_c", " (°C)").replace("_", " "), text))
    return rows


def _word(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
