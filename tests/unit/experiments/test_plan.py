"""The order of the runs is the seed's, and a plan that cannot be carried out is refused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.plan import SEED_ORDER, ExperimentError, Plan, Position, default_burst, positions_of, rates_of

SEED_RATES = (500, 2_000, 5_000, 10_000, 20_000, 50_000)


def test_positions_rotate_as_in_the_seeds_table() -> None:
    assert [[position.value for position in positions_of(SEED_ORDER, repetition)] for repetition in (1, 2, 3)] == [
        ["userspace", "nft-input", "xdp"],
        ["nft-input", "xdp", "userspace"],
        ["xdp", "userspace", "nft-input"],
    ]


def test_rates_alternate_as_in_the_seeds_table() -> None:
    assert rates_of(SEED_RATES, 1) == (500, 2_000, 5_000, 10_000, 20_000, 50_000)
    assert rates_of(SEED_RATES, 2) == (50_000, 20_000, 10_000, 5_000, 2_000, 500)
    assert rates_of(SEED_RATES, 3) == (500, 2_000, 5_000, 10_000, 20_000, 50_000)


def test_default_plan_makes_nine_runs_in_the_seeds_order() -> None:
    runs = Plan(rates_pps=(50_000,)).runs()
    assert [(run.order, run.repetition, run.position.value) for run in runs] == [
        (1, 1, "userspace"),
        (2, 1, "nft-input"),
        (3, 1, "xdp"),
        (4, 2, "nft-input"),
        (5, 2, "xdp"),
        (6, 2, "userspace"),
        (7, 3, "xdp"),
        (8, 3, "userspace"),
        (9, 3, "nft-input"),
    ]
    assert {run.target_pps for run in runs} == {50_000}


def test_positions_at_one_rate_follow_each_other() -> None:
    runs = Plan(rates_pps=(2_000, 500), repetitions=2).runs()
    assert [run.target_pps for run in runs] == [500] * 3 + [2_000] * 3 + [2_000] * 3 + [500] * 3


def test_order_of_the_flag_does_not_change_the_protocol() -> None:
    given_order = (Position.XDP, Position.NFT_INPUT, Position.USERSPACE)
    assert Plan((50_000,), given_order).runs() == Plan((50_000,)).runs()


def test_two_positions_take_turns() -> None:
    positions = (Position.XDP, Position.USERSPACE)
    assert [run.position for run in Plan((1_000,), positions, repetitions=2).runs()] == [
        Position.USERSPACE,
        Position.XDP,
        Position.XDP,
        Position.USERSPACE,
    ]


@given(
    rates=st.lists(st.integers(1, 2_000_000), min_size=1, max_size=6, unique=True),
    positions=st.lists(st.sampled_from(Position), min_size=1, max_size=3, unique=True),
    repetitions=st.integers(1, 7),
)
def test_every_condition_is_measured_once_a_repetition(
    rates: list[int], positions: list[Position], repetitions: int
) -> None:
    runs = Plan(tuple(rates), tuple(positions), repetitions=repetitions).runs()
    conditions = Counter((run.repetition, run.target_pps, run.position) for run in runs)
    assert set(conditions.values()) == {1}
    assert len(conditions) == len(rates) * len(positions) * repetitions
    assert [run.order for run in runs] == list(range(1, len(runs) + 1))


def test_each_position_is_first_equally_often_over_three_repetitions() -> None:
    runs = Plan((50_000,), repetitions=3).runs()
    for place in range(3):
        assert {run.position for run in runs[place::3]} == set(Position)


@pytest.mark.parametrize(
    ("rate", "burst"), [(1, 1), (500, 1), (1_000, 1), (1_001, 2), (50_000, 50), (64_000, 64), (500_000, 64)]
)
def test_default_burst_is_a_millisecond_of_packets_up_to_one_napi_poll(rate: int, burst: int) -> None:
    assert default_burst(rate) == burst
    assert Plan((rate,)).runs()[0].burst == burst


def test_given_burst_is_used_for_every_rate() -> None:
    assert {run.burst for run in Plan((500, 50_000), burst=8).runs()} == {8}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates_pps": ()}, "--pps names no rate"),
        ({"rates_pps": (0,)}, "--pps 0 is out of bounds"),
        ({"rates_pps": (3_000_000,)}, "--pps 3e+06 is out of bounds"),
        ({"rates_pps": (500, 500)}, "--pps names a rate twice"),
        ({"positions": ()}, "--positions names no position"),
        ({"positions": (Position.XDP, Position.XDP)}, "--positions names a position twice"),
        ({"duration_s": 0.0}, "--duration 0 is out of bounds"),
        ({"duration_s": float("nan")}, "--duration nan is out of bounds"),
        ({"duration_s": 601.0}, "--duration 601 is out of bounds"),
        ({"repetitions": 0}, "--repetitions 0 is out of bounds"),
        ({"settle_s": -1.0}, "--settle -1 is out of bounds"),
        ({"burst": 0}, "--burst 0 is out of bounds"),
        ({"burst": 257}, "--burst 257 is out of bounds"),
    ],
)
def test_impossible_plan_is_refused_with_the_flag(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ExperimentError) as refusal:
        Plan(**{"rates_pps": (50_000,), **changes})  # type: ignore[arg-type]
    assert refusal.value.message == message
    assert refusal.value.hint
