"""What an experiment will do, as data: positions, rates, durations, and the order of the runs.

Nothing here touches the network or the clock; `runner` carries a plan out, `runs` holds what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UDP_PORT: Final = 4000
PAYLOAD_BYTES: Final = 128
PROBE_PATH: Final = "/api/ping"
PROBE_INTERVAL_S: Final = 0.2
DELIVERED_SHARE: Final = 0.9
"""A run whose actual rate is below this share of its target says something about the sender, not the receiver."""

LARGEST_BURST: Final = 256
"""The ring between two veth ends holds 256 packets; a larger burst would be lost there before any position saw it."""

_LARGEST_RATE_PPS: Final = 2_000_000
_LONGEST_RUN_S: Final = 600.0
_MOST_REPETITIONS: Final = 100


class ExperimentError(Exception):
    """What went wrong (`message`) and what to do about it (`hint`), each one line."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint


class Position(StrEnum):
    """Where the unwanted packets end: in the driver's XDP hook, in netfilter's input hook, or in the reader's hands."""

    USERSPACE = "userspace"
    NFT_INPUT = "nft-input"
    XDP = "xdp"


SEED_ORDER: Final = (Position.USERSPACE, Position.NFT_INPUT, Position.XDP)
"""The first repetition's order; each further repetition begins one position later and wraps around."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One measurement to make: `order` and `repetition` count from 1."""

    order: int
    repetition: int
    position: Position
    target_pps: int
    burst: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole experiment. Times in seconds, rates in packets a second.

    `burst` is the number of packets handed to the kernel at once; None means `default_burst` of each rate.
    Raises ExperimentError when a value is out of bounds.
    """

    rates_pps: tuple[int, ...]
    positions: tuple[Position, ...] = SEED_ORDER
    duration_s: float = 10.0
    repetitions: int = 3
    settle_s: float = 2.0
    burst: int | None = None

    def __post_init__(self) -> None:
        _require_distinct("--pps", "rate", self.rates_pps)
        _require_distinct("--positions", "position", self.positions)
        for rate in self.rates_pps:
            _require_between("--pps", rate, 1, _LARGEST_RATE_PPS)
        _require_between("--duration", self.duration_s, 0.2, _LONGEST_RUN_S)
        _require_between("--repetitions", self.repetitions, 1, _MOST_REPETITIONS)
        _require_between("--settle", self.settle_s, 0, 60)
        if self.burst is not None:
            _require_between("--burst", self.burst, 1, LARGEST_BURST)

    def runs(self) -> tuple[PlannedRun, ...]:
        """Every run in the order in which it is made.

        Positions rotate by repetition and rates alternate between ascending and descending, so that neither warming
        up nor anything else that grows with time always falls on the same condition. Within a repetition the rate is
        the outer loop: the positions to be compared at one rate are measured right after each other.
        """
        planned: list[PlannedRun] = []
        for repetition in range(1, self.repetitions + 1):
            for rate in rates_of(self.rates_pps, repetition):
                for position in positions_of(self.positions, repetition):
                    burst = self.burst if self.burst is not None else default_burst(rate)
                    planned.append(PlannedRun(len(planned) + 1, repetition, position, rate, burst))
        return tuple(planned)


def positions_of(positions: Sequence[Position], repetition: int) -> tuple[Position, ...]:
    """The positions in the order of the given repetition (from 1): the seed's first order, turned by one each time."""
    chosen = [position for position in SEED_ORDER if position in positions]
    turn = (repetition - 1) % len(chosen)
    return tuple(chosen[turn:] + chosen[:turn])


def rates_of(rates_pps: Sequence[int], repetition: int) -> tuple[int, ...]:
    """The rates in the order of the given repetition (from 1): ascending when odd, descending when even."""
    return tuple(sorted(rates_pps, reverse=repetition % 2 == 0))


def default_burst(rate_pps: int) -> int:
    """Packets sent at once for a rate: one burst a millisecond, at least one packet, at most 64 (one NAPI poll).

    A millisecond is what a paced sender in user space keeps to; on veth, single packets at tens of thousands a second
    would chiefly measure the wake-ups of the NAPI thread, the same in every position. 64 is the kernel's NAPI weight.
    """
    return max(1, min(64, math.ceil(rate_pps / 1000)))


def _require_between(flag: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise ExperimentError(f"{flag} {value:g} is out of bounds", f"give a value from {low:g} to {high:g}")


def _require_distinct(flag: str, noun: str, values: Sequence[object]) -> None:
    if not values:
        raise ExperimentError(f"{flag} names no {noun}", f"give at least one {noun}")
    if len(set(values)) != len(values):
        raise ExperimentError(f"{flag} names a {noun} twice", f"give each {noun} once")
