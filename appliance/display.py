"""How the appliance's states look to a person: tables and colour on a terminal, plain lines elsewhere. What they mean
was decided by whoever made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

COLOURS = {"up": "green", "ok": "green", "degraded": "yellow", "warn": "yellow", "down": "red", "fail": "red"}


def show_rows(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under headings on a terminal; elsewhere one line a row, columns apart by tabs, no headings.

    The second column is a condition and gets its colour.
    """
    if not console.is_terminal:
        for row in rows:
            print("\t".join(row), file=console.file)
        return
    table = Table(*headings, box=None, pad_edge=False, header_style="dim")
    for name, condition, *rest in rows:
        table.add_row(name, Text(condition, style=COLOURS.get(condition, "")), *(Text(cell) for cell in rest))
    console.print(table)


def layer_line(console: Console, layer: dict[str, str]) -> None:
    """One layer that has just come up."""
    show = Text(f"{layer['name']:<8}")
    show.append(f"{layer['condition']:<9}", style=COLOURS.get(layer["condition"], "") if console.is_terminal else "")
    show.append(layer["detail"])
    console.print(show, soft_wrap=True)


def show_status(console: Console, status: dict[str, Any]) -> None:
    """Where the site is, each layer, and what was dropped."""
    console.print(where(status), soft_wrap=True, highlight=False, markup=False)
    rows = [(layer["name"], layer["condition"], layer["detail"]) for layer in status["layers"]]
    show_rows(console, ("layer", "state", ""), rows)
    dropped = list(_dropped_lines(status["counters"]))
    if dropped:
        console.print(*dropped, sep="\n", soft_wrap=True, highlight=False, markup=False)


def where(status: dict[str, Any]) -> str:
    """One line: where the site is, and from where in the lab."""
    urls = " ".join(status["urls"])
    if status["settings"]["lab"]:
        return f"up at {urls} (try: ip netns exec zs-client curl -k {status['urls'][0]})"
    return f"up at {urls}"


def _dropped_lines(counters: dict[str, Any]) -> Iterator[str]:
    for layer, verdicts in counters.items():
        for verdict, reasons in verdicts.items():
            counted = [f"{reason} {count['packets']:,}" for reason, count in reasons.items() if count["packets"]]
            if counted:
                yield f"{layer} {verdict}: {', '.join(counted)}"
