"""From measurements to ratios and tables. Pure, apart from printing; starts nothing and measures nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from load import Measurement

SUBJECT = "zeroserve"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of some values."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        ordered = sorted(values)
        return cls(median(ordered), ordered[0], ordered[-1])

    def text(self, digits: int) -> str:
        return f"{self.median:,.{digits}f} ({self.lowest:,.{digits}f}–{self.highest:,.{digits}f})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times as much `peer` spends, and how many times as fast zeroserve is, over the pairs of one payload.

    Above 1 is in zeroserve's favour in both.
    """

    payload: str
    peer: str
    pairs: int
    cpu_ratio: Spread
    throughput_ratio: Spread


def compare(measurements: Sequence[Measurement]) -> list[Comparison]:
    """Divide pair by pair: the two runs of a pair are neighbours in time, so what slowed one slowed the other."""
    by_run = {(one.payload, one.pair, one.server): one for one in measurements}
    comparisons = []
    for payload in dict.fromkeys(one.payload for one in measurements):
        for peer in dict.fromkeys(one.server for one in measurements if one.payload == payload):
            pairs = sorted({one.pair for one in measurements if one.payload == payload and one.server == peer})
            ours = [by_run[payload, pair, SUBJECT] for pair in pairs if (payload, pair, SUBJECT) in by_run]
            theirs = [by_run[payload, pair, peer] for pair in pairs]
            if peer == SUBJECT or not ours:
                continue
            joined = list(zip(theirs, ours, strict=True))
            comparisons.append(
                Comparison(
                    payload=payload,
                    peer=peer,
                    pairs=len(joined),
                    cpu_ratio=Spread.of(they.cpu_us_per_request / we.cpu_us_per_request for they, we in joined),
                    throughput_ratio=Spread.of(
                        we.requests_per_second / they.requests_per_second for they, we in joined
                    ),
                )
            )
    return comparisons


def measured_table(measurements: Sequence[Measurement]) -> Table:
    table = Table(title="median (lowest–highest)", title_justify="left", box=SIMPLE)
    for heading in ("file", "server"):
        table.add_column(heading)
    for heading in ("req/s", "p99 ms", "server CPU µs/req"):
        table.add_column(heading, justify="right")
    for payload, server in dict.fromkeys((one.payload, one.server) for one in measurements):
        runs = [one for one in measurements if (one.payload, one.server) == (payload, server)]
        table.add_row(
            payload,
            server,
            Spread.of(one.requests_per_second for one in runs).text(0),
            Spread.of(one.p99_us / 1000 for one in runs).text(2),
            Spread.of(one.cpu_us_per_request for one in runs).text(1),
        )
    return table


def ratio_table(comparisons: Sequence[Comparison]) -> Table:
    table = Table(title="zeroserve = 1, pair by pair; above 1 is in its favour", title_justify="left", box=SIMPLE)
    for heading in ("file", "against"):
        table.add_column(heading)
    for heading in ("pairs", "their CPU / ours", "our req/s / theirs"):
        table.add_column(heading, justify="right")
    for one in comparisons:
        table.add_row(one.payload, one.peer, str(one.pairs), one.cpu_ratio.text(2), one.throughput_ratio.text(2))
    return table


def print_tables(
    console: Console,
    surroundings: dict[str, object],
    measurements: Sequence[Measurement],
    comparisons: Sequence[Comparison],
) -> None:
    """Print where it was measured, what was measured, and the ratios."""
    console.print(
        ", ".join(f"{name} {value}" for name, value in surroundings.items() if name != "servers"), soft_wrap=True
    )
    servers = surroundings["servers"]
    assert isinstance(servers, dict)
    console.print(", ".join(f"{name} {version}".strip() for name, version in servers.items()))
    console.print(measured_table(measurements))
    if comparisons:
        console.print(ratio_table(comparisons))
