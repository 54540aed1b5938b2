"""The report's plots: runs and conditions in, one inline SVG each out. What the numbers mean is said in the template.

Text and lines take their colours from the page (CSS variables), so a plot follows the reader's light or dark setting.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import matplotlib

matplotlib.use("svg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from experiments.analysis import Condition, edge_core_percent, percent
from experiments.plan import DELIVERED_SHARE, SEED_ORDER, Position
from experiments.runs import Run

Value = Callable[[Run], float]

# Three hues that keep apart in the common forms of colour blindness and stand out on white and on near-black alike.
POSITION_COLOURS: Final = {Position.XDP: "#1296a8", Position.NFT_INPUT: "#d08a1d", Position.USERSPACE: "#c4507a"}
POSITION_MARKERS: Final = {Position.XDP: "o", Position.NFT_INPUT: "s", Position.USERSPACE: "D"}
LOST: Final = "#d33c2f"

# Stand-ins that no plot uses otherwise; each is replaced by a variable of the page.
_INK, _RULE, _PAPER = "#010203", "#040506", "#070809"
_WIDTH_IN = 6.6
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _RULE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_HEIGHT_OF_ROW_IN = 0.34
_THOUSANDS = FuncFormatter(lambda number, _: f"{number:,.10g}")


def receiver_cost(runs: Sequence[Run]) -> str:
    """Receiver CPU in ns a packet: each repetition a dot, the median a bar; over the rate when there are several."""
    return _by_position_or_rate(
        "cost", runs, lambda run: run.receiver_cpu_ns_per_packet, "receiver CPU per packet sent (ns)"
    )


def edge_core(runs: Sequence[Run]) -> str:
    """Share of time that the edge's core worked, drawn like `receiver_cost`."""
    return _by_position_or_rate("edge", runs, edge_core_percent, "edge core, time not idle (%)")


def per_core(runs: Sequence[Run], conditions: Sequence[Condition]) -> str:
    """Each core's occupied time as a bar (median of the conclusive runs), a row for each condition and core."""
    cores = len(runs[0].cpu_occupied_percent_per_core) if runs else 0
    shown = list(range(cores)) if cores <= 4 else sorted({runs[0].edge_core, runs[0].client_core})
    conditions = [condition for condition in conditions if condition.conclusive]
    with _plot("cores", rows=len(conditions) * max(1, len(shown)) * 0.75) as (axes, svg):
        for row, condition in enumerate(conditions):
            members = _members(runs, condition)
            for place, core in enumerate(shown):
                values = sorted(run.cpu_occupied_percent_per_core[core] for run in members)
                y = row + (place - (len(shown) - 1) / 2) * 0.8 / len(shown)
                role = _role(runs[0], core)
                axes.barh(
                    y,
                    median(values),
                    height=0.7 / len(shown),
                    color=POSITION_COLOURS[condition.position],
                    alpha=1.0 if core == runs[0].edge_core else 0.45,
                )
                axes.plot(values, [y] * len(values), "|", color=_INK, markersize=6, markeredgewidth=1.1)
                axes.text(101, y, f"core {core}{role}", va="center", fontsize=9)
        _rows(axes, [_name(condition, conditions) for condition in conditions])
        axes.set_xlim(0, 100)
        axes.set_xlabel("time not idle (%)")
    return svg[0]


def latency(runs: Sequence[Run], conditions: Sequence[Condition]) -> str:
    """p50, p95 and p99 of the HTTPS checks: medians over repetitions as filled marks, each repetition as a tick."""
    kinds: tuple[tuple[str, str, Callable[[Run], float | None]], ...] = (
        ("p50", "o", lambda run: run.http.p50_ms),
        ("p95", "s", lambda run: run.http.p95_ms),
        ("p99", "D", lambda run: run.http.p99_ms),
    )
    conditions = [condition for condition in conditions if condition.p50_ms]
    with _plot("latency", rows=len(conditions) * 1.25) as (axes, svg):
        for row, condition in enumerate(conditions):
            colour = POSITION_COLOURS[condition.position]
            for place, (_, marker, read) in enumerate(kinds):
                values = sorted(v for run in _members(runs, condition) if (v := read(run)) is not None)
                y = row + (place - 1) * 0.24
                axes.plot([values[0], values[-1]], [y, y], color=colour, alpha=0.4, linewidth=3, solid_capstyle="round")
                axes.plot(values, [y] * len(values), "|", color=_INK, markersize=6, markeredgewidth=1.1)
                axes.plot(median(values), y, marker, color=colour)
        for label, marker, _ in kinds:
            axes.plot([], [], marker, color=_INK, label=label)
        _rows(axes, [_name(condition, conditions) for condition in conditions])
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(_THOUSANDS)
        axes.set_xlabel("HTTPS GET on a new connection (ms)")
        _legend(axes, columns=3)
    return svg[0]


def accounting(runs: Sequence[Run]) -> str:
    """Where the packets of each run ended, as shares of what was sent."""
    parts: tuple[tuple[str, Callable[[Run], int], Callable[[Run], str]], ...] = (
        ("dropped by the layer", lambda run: run.dropped, lambda run: POSITION_COLOURS[run.position]),
        ("received in user space", lambda run: run.received_userspace, lambda _: POSITION_COLOURS[Position.USERSPACE]),
        ("lost", lambda run: max(0, run.lost), lambda _: LOST),
    )
    with _plot("accounting", rows=len(runs)) as (axes, svg):
        for row, run in enumerate(runs):
            left = 0.0
            for _, count, colour in parts:
                share = percent(count(run), run.sent)
                axes.barh(row, share, left=left, height=0.72, color=colour(run), linewidth=0)
                left += share
            lost = f", {run.lost:,} lost" if run.lost else ""
            axes.text(101, row, f"{run.sent:,}{lost}", va="center", fontsize=9)
        _rows(axes, [_run_name(run, runs) for run in runs])
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the packets sent (their number at the right)")
    return svg[0]


def delivery(runs: Sequence[Run]) -> str:
    """Actual rate as a share of the target, by run; the line is the limit below which a run does not count."""
    with _plot("delivery", rows=5.5) as (axes, svg):
        for position in SEED_ORDER:
            chosen = [run for run in runs if run.position is position]
            axes.plot(
                [run.order for run in chosen],
                [percent(run.actual_pps, run.target_pps) for run in chosen],
                POSITION_MARKERS[position],
                color=POSITION_COLOURS[position],
                label=position.value if chosen else None,
            )
        limit = 100 * DELIVERED_SHARE
        axes.axhline(limit, color=LOST, linewidth=1.2, linestyle="--")
        axes.text(1, limit - 0.6, "below this a run does not count", color=LOST, fontsize=9, va="top")
        axes.grid(axis="y")
        axes.set_ylim(min(85.0, *(percent(run.actual_pps, run.target_pps) - 3 for run in runs)), 103)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("run, in the order made")
        axes.set_ylabel("actual / target rate (%)")
        _legend(axes, columns=3)
    return svg[0]


def _by_position_or_rate(name: str, runs: Sequence[Run], value: Value, label: str) -> str:
    used = [run for run in runs if run.is_conclusive]
    rates = sorted({run.target_pps for run in used})
    draw = _over_rate if len(rates) > 1 else _over_position
    with _plot(name, rows=7 if len(rates) > 1 else 4.4) as (axes, svg):
        draw(axes, used, value, label)
    return svg[0]


def _over_position(axes: Axes, runs: Sequence[Run], value: Value, label: str) -> None:
    positions = [position for position in SEED_ORDER if any(run.position is position for run in runs)]
    for row, position in enumerate(positions):
        members = [run for run in runs if run.position is position]
        values = [value(run) for run in members]
        middle = median(values)
        axes.plot([middle, middle], [row - 0.32, row + 0.32], color=POSITION_COLOURS[position], linewidth=3)
        for run, each in zip(members, values, strict=True):
            offset = (run.repetition - (len(members) + 1) / 2) * 0.13
            axes.plot(each, row + offset, POSITION_MARKERS[position], color=POSITION_COLOURS[position], alpha=0.75)
        axes.annotate(
            f"{middle:,.0f}" if middle >= 100 else f"{middle:.1f}",
            (middle, row - 0.34),
            ha="center",
            va="bottom",
            fontsize=9,
        )
    _rows(axes, [position.value for position in positions])
    axes.set_xlim(left=0)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.set_xlabel(label)


def _over_rate(axes: Axes, runs: Sequence[Run], value: Value, label: str) -> None:
    for position in SEED_ORDER:
        members = [run for run in runs if run.position is position]
        rates = sorted({run.target_pps for run in members})
        medians = []
        for rate in rates:
            values = sorted(value(run) for run in members if run.target_pps == rate)
            medians.append(median(values))
            axes.plot(
                [rate] * len(values), values, POSITION_MARKERS[position], color=POSITION_COLOURS[position], alpha=0.55
            )
        if rates:
            axes.plot(rates, medians, color=POSITION_COLOURS[position], linewidth=2, label=position.value)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    rates = sorted({run.target_pps for run in runs})
    axes.set_xticks(rates, [f"{rate:,}" for rate in rates])
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.set_xlabel("target rate (pps)")
    axes.set_ylabel(label)
    _legend(axes, columns=3)


def _members(runs: Sequence[Run], condition: Condition) -> list[Run]:
    return [
        run
        for run in runs
        if run.is_conclusive and run.position is condition.position and run.target_pps == condition.target_pps
    ]


def _name(condition: Condition, conditions: Sequence[Condition]) -> str:
    several = len({each.target_pps for each in conditions}) > 1
    return f"{condition.position} {condition.target_pps / 1000:g}k" if several else condition.position.value


def _run_name(run: Run, runs: Sequence[Run]) -> str:
    several = len({each.target_pps for each in runs}) > 1
    return f"{run.order}  {run.position}" + (f" {run.target_pps / 1000:g}k" if several else "")


def _role(run: Run, core: int) -> str:
    roles = [name for name, its in (("edge", run.edge_core), ("client", run.client_core)) if its == core]
    return f" ({' + '.join(roles)})" if roles else ""


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")


def _legend(axes: Axes, columns: int) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, handletextpad=0.4, columnspacing=1.4)


@contextmanager
def _plot(name: str, rows: float) -> Iterator[tuple[Axes, list[str]]]:
    """Axes to draw on; afterwards the list holds the SVG. `name` keeps the ids of several plots on a page apart."""
    result: list[str] = []
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(_WIDTH_IN, 0.95 + _HEIGHT_OF_ROW_IN * max(rows, 1)))
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        yield axes, result
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    result.append(_for_page(text.getvalue(), name))


def _for_page(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", svg, count=1)
    svg = re.sub(r'^(<svg [^>]*?)height="[^"]*"', r'\1role="img"', svg, count=1)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font: \1 var(--sans)", svg)
    for stand_in, variable in ((_INK, "--ink"), (_RULE, "--rule"), (_PAPER, "--paper")):
        svg = svg.replace(stand_in, f"var({variable})")
    return svg
