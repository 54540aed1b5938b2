"""Statistics against values computed by hand, and what takes part in conclusions."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.analysis import Spread, analyse, percent, spread, t_quantile
from experiments.plan import Position
from experiments.runs import Run

MakeRun = Callable[..., Run]
USERSPACE, NFT_INPUT, XDP = Position


def test_spread_of_the_seeds_three_cpu_values() -> None:
    over = spread([7.2, 5.0, 5.3])
    assert over is not None
    assert (over.n, over.median, over.smallest, over.largest) == (3, 5.3, 5.0, 7.2)
    assert over.mean == pytest.approx(17.5 / 3)
    # s = sqrt(((7.2-m)^2 + (5.0-m)^2 + (5.3-m)^2) / 2) = 1.19303; 4.303 x s / sqrt(3) = 2.96390
    assert over.interval == pytest.approx((5.833333 - 2.963904, 5.833333 + 2.963904), abs=1e-4)


def test_two_values_have_no_interval_and_none_have_no_spread() -> None:
    assert spread([1.0, 3.0]) == Spread(n=2, median=2.0, smallest=1.0, largest=3.0, mean=2.0, interval=None)
    assert spread([]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_spread_encloses_its_median_and_mean(values: list[float]) -> None:
    over = spread(values)
    assert over is not None
    assert over.median == statistics.median(values)
    assert over.smallest <= over.median <= over.largest
    if over.interval is not None:
        assert over.interval[0] <= over.mean <= over.interval[1]


@pytest.mark.parametrize(("degrees", "table"), [(1, 12.706), (2, 4.303), (30, 2.042), (40, 2.021), (120, 1.980)])
def test_t_quantile_agrees_with_the_printed_tables(degrees: int, table: float) -> None:
    assert t_quantile(degrees) == pytest.approx(table, abs=5e-4)


def test_t_quantile_falls_without_a_step_where_the_table_ends() -> None:
    values = [t_quantile(degrees) for degrees in range(1, 400)]
    assert all(later < earlier for earlier, later in itertools.pairwise(values))
    assert values[-1] == pytest.approx(1.966, abs=1e-3)
    with pytest.raises(ValueError, match="degree"):
        t_quantile(0)


def three_repetitions(make_run: MakeRun, cost: dict[Position, tuple[float, float, float]]) -> list[Run]:
    runs: list[Run] = []
    for repetition in (1, 2, 3):
        for position, costs in cost.items():
            number = len(runs) + 1
            ns = costs[repetition - 1]
            kept = {"received_userspace": 500_000} if position is USERSPACE else {"received_userspace": 0}
            dropped = 0 if position is USERSPACE else 500_000
            runs.append(
                make_run(
                    order=number,
                    repetition=repetition,
                    position=position,
                    dropped=dropped,
                    receiver_cpu_ns_per_packet=ns,
                    **kept,
                )
            )
    return runs


def test_conditions_and_paired_differences_by_hand(make_run: MakeRun) -> None:
    analysis = analyse(
        three_repetitions(
            make_run,
            {USERSPACE: (3000.0, 3100.0, 2900.0), NFT_INPUT: (900.0, 1300.0, 800.0), XDP: (500.0, 520.0, 510.0)},
        )
    )
    assert [(c.position, c.runs, c.conclusive) for c in analysis.conditions] == [
        (USERSPACE, 3, 3),
        (NFT_INPUT, 3, 3),
        (XDP, 3, 3),
    ]
    userspace = analysis.conditions[0].receiver_ns_per_packet
    assert userspace is not None
    assert (userspace.median, userspace.smallest, userspace.largest) == (3000.0, 2900.0, 3100.0)
    differences = {(d.later, d.earlier): d for d in analysis.differences}
    # Paired by repetition: 3000-900, 3100-1300, 2900-800
    pair = differences[USERSPACE, NFT_INPUT].ns_per_packet
    assert (pair.median, pair.smallest, pair.largest) == (2100.0, 1800.0, 2100.0)
    assert differences[NFT_INPUT, XDP].ns_per_packet.median == 400.0
    assert all(difference.always for difference in analysis.differences)
    assert analysis.findings[0] == (
        "At 50,000 pps, dropping at nft-input instead of userspace saved 2,100 ns of receiver CPU a packet "
        "(1,800–2,100), in all 3 repetitions. Chance alone would give one direction in 25 % of such experiments."
    )
    assert analysis.findings[-1] == (
        "At 50,000 pps the HTTPS service answered every check in every conclusive run; the highest p95 of any run was "
        "4.00 ms."
    )


def test_difference_without_a_constant_direction_is_called_none(make_run: MakeRun) -> None:
    runs = three_repetitions(make_run, {NFT_INPUT: (500.0, 600.0, 500.0), XDP: (510.0, 520.0, 505.0)})
    analysis = analyse(runs)
    (difference,) = analysis.differences
    assert not difference.always
    assert analysis.findings[0] == (
        "At 50,000 pps, dropping at xdp instead of nft-input made no difference in a constant direction: from cost 10 "
        "to saved 80 ns of receiver CPU a packet over 3 repetitions."
    )


def test_undelivered_run_is_shown_and_takes_no_part(make_run: MakeRun) -> None:
    runs = [
        make_run(order=1, repetition=1, receiver_cpu_ns_per_packet=3000.0),
        make_run(order=2, repetition=2, receiver_cpu_ns_per_packet=9.0, actual_pps=44_999.0, delivered=False),
    ]
    analysis = analyse(runs)
    (condition,) = analysis.conditions
    assert (condition.runs, condition.conclusive) == (2, 1)
    assert condition.receiver_ns_per_packet is not None
    assert condition.receiver_ns_per_packet.largest == 3000.0
    assert any("Run 2" in w and "was not delivered: 44,999 pps is 89.9 % of its target" in w for w in analysis.warnings)


def test_experiment_without_a_conclusive_run_has_conditions_but_no_findings(make_run: MakeRun) -> None:
    analysis = analyse([make_run(delivered=False, actual_pps=10_000.0)])
    assert analysis.conditions[0].receiver_ns_per_packet is None
    assert analysis.findings == ()
    assert analysis.differences == ()


def test_books_that_do_not_close_are_left_out_and_said(make_run: MakeRun) -> None:
    analysis = analyse([make_run(received_userspace=500_007, lost=-7, adds_up=False)])
    assert analysis.conditions[0].conclusive == 0
    assert any("does not add up: 7 more packets were counted than sent" in warning for warning in analysis.warnings)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"received_userspace": 490_000, "lost": 10_000, "lost_where": {"link": 9_000, "socket_buffer": 1_000}},
            "lost 2.00 % of what was sent, most of it at link",
        ),
        ({"position": XDP, "dropped": 499_997, "received_userspace": 3}, "let 3 packets through to user space"),
        ({"receiver_cpu_ns": {"napi": 0, "sink": 9, "softirq": 0, "server": 9}}, "received without a NAPI thread"),
        ({"waiting_bytes_at_stop": 2_000_000}, "had 2,000,000 bytes of datagrams unread"),
        ({"http_successes": 3, "http_failures": {"timeout": 1}}, "failed 1 of 4 HTTPS checks: 1 x timeout"),
        ({"steal_percent": 2.5}, "The host gave CPU time to other guests in 1 of 1 runs, up to 2.5 % of it"),
        ({"edge_core_others_percent": 12.0}, "Something else used the edge's core in 1 of 1 runs, up to 12 % of it"),
        ({}, "The experiment ended early: 1 of 9 runs were made"),
    ],
)
def test_each_doubt_is_said(make_run: MakeRun, changes: dict[str, object], warning: str) -> None:
    assert any(warning in said for said in analyse([make_run(**changes)]).warnings)


def test_sound_complete_experiment_has_no_warnings(make_run: MakeRun) -> None:
    assert analyse([make_run(planned_runs=1)]).warnings == ()


def test_unreadable_lines_are_warned_about_first(make_run: MakeRun) -> None:
    assert analyse([make_run(planned_runs=1)], ["runs.jsonl:2 was left out: not JSON"]).warnings == (
        "runs.jsonl:2 was left out: not JSON",
    )


def test_rates_are_kept_apart(make_run: MakeRun) -> None:
    runs = [
        make_run(order=1, target_pps=1_000, receiver_cpu_ns_per_packet=10.0),
        make_run(order=2, target_pps=500, receiver_cpu_ns_per_packet=20.0),
    ]
    assert [
        (c.target_pps, c.receiver_ns_per_packet and c.receiver_ns_per_packet.median) for c in analyse(runs).conditions
    ] == [
        (500, 20.0),
        (1_000, 10.0),
    ]


def test_percent_of_nothing_is_nothing() -> None:
    assert percent(0, 0) == 0
    assert math.isclose(percent(1, 8), 12.5)
