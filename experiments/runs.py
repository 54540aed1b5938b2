"""The record of one run and the file of all runs: JSON lines, appended as each run ends, read back for the analysis.

What was measured is written here before anything is concluded from it; no statistics live in this file.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from experiments.environment import Environment
from experiments.plan import DELIVERED_SHARE, ExperimentError, Position

SCHEMA: Final = 1
"""Raised whenever a field changes its meaning or goes away; adding a field does not raise it."""

RUNS_FILE: Final = "runs.jsonl"


@dataclass(frozen=True, slots=True)
class HttpChecks:
    """The HTTPS checks of a run. Percentiles are nearest-rank over the successful checks, None if there were none.

    `latencies_ms` (in order of their start) and `failures` (reason -> count) are what the rest is computed from.
    """

    checks: int
    successes: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    latencies_ms: tuple[float, ...]
    failures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    """One run as measured, schema 1. Counts are datagrams of the load unless said otherwise.

    sent = dropped + received_userspace + lost always holds, because `lost` is the difference; `adds_up` says whether
    it is one that can be (not negative). `lost_where` splits it over the counters that were seen to grow; the rest is
    under "unknown", with its sign.
    """

    schema: int
    run_id: str
    """`<results id>/<order>`."""
    order: int
    planned_runs: int
    repetition: int
    position: Position
    attach_mode: str
    """How the XDP program was attached in this run: native or generic."""
    target_pps: int
    actual_pps: float
    """Datagrams sent over the measured time of sending."""
    delivered: bool
    """actual_pps is at least 90 % of target_pps; if not, the run takes no part in conclusions."""
    burst: int
    sent: int
    refused_by_sender_kernel: int
    """Datagrams that the sender's kernel did not take; not part of `sent`."""
    dropped: int
    """As the dropping layer (XDP map or nftables rule) counted; 0 in user space, which drops nothing."""
    received_userspace: int
    lost: int
    lost_where: Mapping[str, int]
    adds_up: bool
    waiting_bytes_at_stop: int
    """Socket memory of datagrams not read when the sender stopped; they were read later, outside the CPU window."""
    cpu_busy_percent: float
    """All CPUs: (delta total - delta idle) / delta total x 100 from /proc/stat, as in the seed."""
    cpu_busy_percent_per_core: tuple[float, ...]
    cpu_occupied_percent_per_core: tuple[float, ...]
    """100 x (1 - delta idle / elapsed): the idle clock is exact where the busy kinds are sampled at ticks."""
    steal_percent: float
    net_rx_softirqs: int
    net_rx_softirqs_per_core: tuple[int, ...]
    receiver_cpu_ns_per_packet: float
    """(NAPI thread + sink + softirq time of the edge core) / sent."""
    receiver_cpu_ns: Mapping[str, int]
    """CPU of the window by receiver part: napi, sink, softirq (in 10 ms steps), and server (not in the sum above)."""
    edge_core_others_percent: float
    """Part of the edge core's time that went to anything but NAPI thread, sink and server."""
    edge_core: int
    client_core: int
    http: HttpChecks
    duration_s: float
    """Measured time of sending."""
    window_s: float
    """Time between the two readings of the CPU counters."""
    settle_s: float
    latest_burst_ms: float
    """The worst lateness of a burst behind its deadline."""
    started_at: str
    """UTC, ISO 8601."""
    environment: Environment

    @property
    def is_conclusive(self) -> bool:
        """Whether conclusions may rest on this run: its load was delivered and its packets add up."""
        return self.delivered and self.adds_up

    def to_line(self) -> str:
        """The run as one line of JSON, without the line end."""
        return json.dumps(asdict(self), allow_nan=False)


def is_delivered(actual_pps: float, target_pps: int) -> bool:
    """The seed's rule: a run counts when at least 90 % of the target rate was really sent."""
    return actual_pps >= DELIVERED_SHARE * target_pps


class RunFile:
    """The open `runs.jsonl` of one experiment; `append` returns when the line is on the disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / RUNS_FILE

    def __enter__(self) -> Self:
        self._file: TextIOWrapper = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def append(self, run: Run) -> None:
        self._file.write(run.to_line() + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@dataclass(frozen=True, slots=True)
class LoadedRuns:
    """The runs of a file, and one sentence for each line that could not be used."""

    runs: tuple[Run, ...]
    damage: tuple[str, ...]


def load_runs(directory: Path) -> LoadedRuns:
    """Read `runs.jsonl` of a results directory. Damaged lines (a killed run's half line) are reported, not fatal.

    Raises ExperimentError when there is no such file.
    """
    path = directory / RUNS_FILE
    try:
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    except OSError as error:
        raise ExperimentError(
            f"cannot read {path}: {error.strerror}", "name a directory that zs-experiment run has written"
        ) from error
    runs: list[Run] = []
    damage: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            runs.append(run_from_line(line))
        except ValueError as error:
            damage.append(f"{path.name}:{number} was left out: {error}")
    return LoadedRuns(tuple(runs), tuple(damage))


def run_from_line(line: str) -> Run:
    """One JSON line -> Run; fields that this version does not know are ignored. Raises ValueError that says why."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"schema {record.get('schema')!r}, and this version reads {SCHEMA}")
    run = _build(Run, record, "run")
    assert isinstance(run, Run)
    return run


def _build(kind: Any, value: object, where: str) -> object:
    """A JSON value -> the annotated type; the few forms that the records use. Raises ValueError naming the field."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _build(next(a for a in arguments if a is not type(None)), value, where)
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object")
        hints = typing.get_type_hints(kind)
        missing = [field.name for field in fields(kind) if field.name not in value]
        if missing:
            raise ValueError(f"{where} has no {', '.join(missing)}")
        return kind(**{f.name: _build(hints[f.name], value[f.name], f.name) for f in fields(kind)})
    if origin is tuple and isinstance(value, list):
        return tuple(_build(arguments[0], item, where) for item in value)
    if origin is Mapping and isinstance(value, dict):
        return {str(name): _build(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    if kind is Position and value in list(Position):
        return Position(str(value))
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise ValueError(f"{where} is {value!r}, not {getattr(kind, '__name__', kind)}")
