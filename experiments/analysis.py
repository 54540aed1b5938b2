"""From runs to statements: medians, spread, intervals and paired differences per position and rate. Pure functions.

Nothing is read or printed here. Runs that are not conclusive (load not delivered, packets that do not add up) are
counted and named, and take part in nothing else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from experiments.plan import SEED_ORDER, Position
from experiments.runs import Run

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (any table; e.g. NIST/SEMATECH 1.3.6.7.2).
# fmt: off
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on
_Z_95 = 1.959964

LOST_PERCENT = 1
"""Above this share of what was sent, the receiver did not really get the load that its CPU is divided by."""

BUSY_WITH_OTHERS_PERCENT = 5
"""Above this share of the edge's core, other programs of the machine disturb caches and latencies noticeably."""

WAITING_BYTES = 1 << 20
"""Unread datagrams above this when the sender stops (some 800; the last burst alone may be 64) are a backlog."""

STOLEN_PERCENT = 1
"""Above this share of all CPU time, the host of a virtual machine disturbs it noticeably."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the values of one quantity lie over `n` repetitions.

    `interval` is the 95 % t interval of the mean for n >= 3, else None. It supposes that repetitions are independent
    and roughly normal; the smallest and largest value need no such thing: they enclose the true median with
    probability 1 - 2^(1-n), which is 75 % for three repetitions.
    """

    n: int
    median: float
    smallest: float
    largest: float
    mean: float
    interval: tuple[float, float] | None

    def in_words(self, digits: int = 0) -> str:
        """`median (smallest–largest)`."""
        return f"{self.median:,.{digits}f} ({self.smallest:,.{digits}f}–{self.largest:,.{digits}f})"

    def interval_in_words(self, digits: int = 0) -> str:
        """`mean ± margin`; a dash where there is no interval."""
        return f"{self.mean:,.{digits}f} ± {self.interval[1] - self.mean:,.{digits}f}" if self.interval else "–"


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of the values; None when there are none."""
    if not values:
        return None
    mean = statistics.fmean(values)
    interval = None
    if len(values) >= 3:
        margin = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
        interval = (mean - margin, mean + margin)
    return Spread(len(values), statistics.median(values), min(values), max(values), mean, interval)


def t_quantile(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t. Above 30 degrees by expansion in 1/degrees (Abramowitz-Stegun 26.7.5)."""
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    z, v = _Z_95, degrees
    return z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)


@dataclass(frozen=True, slots=True)
class Condition:
    """One position at one target rate: how many runs there were, how many are conclusive, and what those say.

    CPU in percent, latencies in ms, `loss_percent` of what was sent. A quantity is None when no run has it.
    """

    position: Position
    target_pps: int
    runs: int
    conclusive: int
    actual_pps: Spread | None
    receiver_ns_per_packet: Spread | None
    edge_core_percent: Spread | None
    cpu_busy_percent: Spread | None
    p50_ms: Spread | None
    p95_ms: Spread | None
    p99_ms: Spread | None
    http_success_percent: Spread | None
    loss_percent: Spread | None


@dataclass(frozen=True, slots=True)
class Difference:
    """`later` minus `earlier`, paired by repetition, at one rate: receiver CPU in ns a packet.

    `always` is true when every pair has the same sign. With n pairs and no true difference, that happens by chance
    with probability 2^(1-n) (two-sided sign test), which is 25 % for three.
    """

    earlier: Position
    later: Position
    target_pps: int
    ns_per_packet: Spread
    always: bool


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything that table and report show, ordered by rate, then from the latest drop position to the earliest."""

    conditions: tuple[Condition, ...]
    differences: tuple[Difference, ...]
    findings: tuple[str, ...]
    warnings: tuple[str, ...]


def analyse(runs: Iterable[Run], damage: Sequence[str] = ()) -> Analysis:
    """Analyse the runs of one experiment; `damage` are sentences about lines of the file that could not be read."""
    everything = sorted(runs, key=lambda run: run.order)
    rates = sorted({run.target_pps for run in everything})
    conditions = [
        _condition(position, rate, members)
        for rate in rates
        for position in SEED_ORDER
        if (members := [run for run in everything if run.position is position and run.target_pps == rate])
    ]
    differences = [d for rate in rates for d in _differences([run for run in everything if run.target_pps == rate])]
    return Analysis(
        conditions=tuple(conditions),
        differences=tuple(differences),
        findings=tuple(_findings(conditions, differences)),
        warnings=(*damage, *_warnings(everything)),
    )


def _condition(position: Position, rate: int, members: Sequence[Run]) -> Condition:
    used = [run for run in members if run.is_conclusive]

    def over(quantity: Callable[[Run], float | None]) -> Spread | None:
        return spread([value for run in used if (value := quantity(run)) is not None])

    return Condition(
        position=position,
        target_pps=rate,
        runs=len(members),
        conclusive=len(used),
        actual_pps=over(lambda run: run.actual_pps),
        receiver_ns_per_packet=over(lambda run: run.receiver_cpu_ns_per_packet),
        edge_core_percent=over(edge_core_percent),
        cpu_busy_percent=over(lambda run: run.cpu_busy_percent),
        p50_ms=over(lambda run: run.http.p50_ms),
        p95_ms=over(lambda run: run.http.p95_ms),
        p99_ms=over(lambda run: run.http.p99_ms),
        http_success_percent=over(lambda run: percent(run.http.successes, run.http.checks)),
        loss_percent=over(lambda run: percent(run.lost, run.sent)),
    )


def edge_core_percent(run: Run) -> float:
    """How much of the time the edge's core was not idle, by the exact idle clock."""
    return run.cpu_occupied_percent_per_core[run.edge_core]


def percent(part: float, whole: float) -> float:
    """part / whole x 100; 0 of nothing is 0."""
    return 100.0 * part / whole if whole else 0.0


def _differences(runs: Sequence[Run]) -> list[Difference]:
    found: list[Difference] = []
    for later, earlier in (
        (SEED_ORDER[0], SEED_ORDER[1]),
        (SEED_ORDER[1], SEED_ORDER[2]),
        (SEED_ORDER[0], SEED_ORDER[2]),
    ):
        first = {run.repetition: run for run in runs if run.position is earlier and run.is_conclusive}
        second = {run.repetition: run for run in runs if run.position is later and run.is_conclusive}
        pairs = [
            second[repetition].receiver_cpu_ns_per_packet - first[repetition].receiver_cpu_ns_per_packet
            for repetition in sorted(first.keys() & second.keys())
        ]
        over = spread(pairs)
        if over is not None:
            always = all(value > 0 for value in pairs) or all(value < 0 for value in pairs)
            found.append(Difference(earlier, later, runs[0].target_pps, over, always))
    return found


def _findings(conditions: Sequence[Condition], differences: Sequence[Difference]) -> Iterable[str]:
    for difference in differences:
        yield _difference_in_words(difference)
    for rate in sorted({condition.target_pps for condition in conditions}):
        seen = [c for c in conditions if c.target_pps == rate and c.conclusive]
        success = [c.http_success_percent.smallest for c in seen if c.http_success_percent]
        slowest = [c.p95_ms.largest for c in seen if c.p95_ms]
        if success and slowest:
            answered = "every check" if min(success) == 100 else f"at least {_tight(min(success))} % of the checks"
            yield (
                f"At {rate:,} pps the HTTPS service answered {answered} in every conclusive run; the highest p95 of "
                f"any run was {max(slowest):,.2f} ms."
            )


def _difference_in_words(difference: Difference) -> str:
    over = difference.ns_per_packet
    subject = f"At {difference.target_pps:,} pps, dropping at {difference.earlier} instead of {difference.later}"
    if over.n == 1:
        return f"{subject} {_saved(over.median)} {abs(over.median):,.0f} ns of receiver CPU a packet, in the only pair."
    if not difference.always:
        return (
            f"{subject} made no difference in a constant direction: from {_saved(over.smallest)} "
            f"{abs(over.smallest):,.0f} to {_saved(over.largest)} {abs(over.largest):,.0f} ns of receiver CPU a packet "
            f"over {over.n} repetitions."
        )
    least, most = sorted((abs(over.smallest), abs(over.largest)))
    chance = 100 * 2 ** (1 - over.n)
    caution = f" Chance alone would give one direction in {chance:g} % of such experiments." if chance > 5 else ""
    return (
        f"{subject} {_saved(over.median)} {abs(over.median):,.0f} ns of receiver CPU a packet "
        f"({least:,.0f}–{most:,.0f}), in all {over.n} repetitions.{caution}"
    )


def _saved(ns: float) -> str:
    return "saved" if ns >= 0 else "cost"


def _tight(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _warnings(runs: Sequence[Run]) -> Iterable[str]:
    for run in runs:
        name = f"Run {run.order} ({run.position}, {run.target_pps:,} pps, repetition {run.repetition})"
        if not run.delivered:
            share = math.floor(10 * percent(run.actual_pps, run.target_pps)) / 10  # 89.99 % must not read 90 %
            yield (
                f"{name} was not delivered: {run.actual_pps:,.0f} pps is {share:g} % of its target. It says where "
                "sender and link end, and is left out."
            )
        if not run.adds_up:
            yield f"{name} does not add up: {-run.lost:,} more packets were counted than sent. It is left out."
        if percent(run.lost, run.sent) > LOST_PERCENT:
            places = {place: count for place, count in run.lost_where.items() if count > 0}
            where = f", most of it at {max(places, key=places.__getitem__).replace('_', ' ')}" if places else ""
            yield (
                f"{name} lost {percent(run.lost, run.sent):.2f} % of what was sent{where}: its CPU is not that of the "
                "whole load."
            )
        if run.position is not Position.USERSPACE and run.received_userspace:
            yield f"{name} let {run.received_userspace:,} packets through to user space."
        if run.sent and not run.receiver_cpu_ns.get("napi"):
            yield f"{name} was received without a NAPI thread, on the sender's core: its receiver CPU is not whole."
        if run.waiting_bytes_at_stop > WAITING_BYTES:
            yield (
                f"{name} had {run.waiting_bytes_at_stop:,} bytes of datagrams unread when the sender stopped: part of "
                "its work fell outside the CPU window."
            )
        if run.http.successes < run.http.checks:
            reasons = ", ".join(f"{count} x {reason}" for reason, count in run.http.failures.items())
            yield f"{name} failed {run.http.checks - run.http.successes} of {run.http.checks} HTTPS checks: {reasons}."
    yield from _disturbances(runs)
    if runs and len(runs) < runs[0].planned_runs:
        yield f"The experiment ended early: {len(runs)} of {runs[0].planned_runs} runs were made."


def _disturbances(runs: Sequence[Run]) -> Iterable[str]:
    others = [run.edge_core_others_percent for run in runs]
    if shared := [share for share in others if share > BUSY_WITH_OTHERS_PERCENT]:
        yield (
            f"Something else used the edge's core in {len(shared)} of {len(runs)} runs, up to {max(shared):.0f} % of "
            "it: costs and latencies are higher than on a quiet machine."
        )
    if stolen := [run.steal_percent for run in runs if run.steal_percent > STOLEN_PERCENT]:
        yield (
            f"The host gave CPU time to other guests in {len(stolen)} of {len(runs)} runs, up to "
            f"{_tight(max(stolen))} % of it."
        )
