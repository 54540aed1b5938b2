"""The benchmark divides what belongs together, and gives drift to all servers alike."""

from comparison import Spread, compare
from load import Measurement
from servers import order_of_runs


def measurement(server: str, pair: int, *, requests: int, cpu_ms: int, payload: str = "small") -> Measurement:
    return Measurement(server, payload, pair, requests, 2.0, 900.0, 1500.0, cpu_ms * 1_000_000)


def test_each_round_goes_there_and_back() -> None:
    assert list(order_of_runs(["a", "b"], 2)) == [
        *[(0, "a"), (0, "b"), (1, "b"), (1, "a")],
        *[(2, "a"), (2, "b"), (3, "b"), (3, "a")],
    ]


def test_cost_is_cpu_over_requests_served() -> None:
    one = measurement("nginx", 0, requests=10_000, cpu_ms=150)
    assert one.cpu_us_per_request == 15.0
    assert one.requests_per_second == 5_000.0


def test_ratios_are_taken_within_a_pair() -> None:
    # The machine was half as fast in the second pair; the ratio within each does not notice.
    runs = [
        measurement("zeroserve", 0, requests=1_000, cpu_ms=10),
        measurement("nginx", 0, requests=1_000, cpu_ms=15),
        measurement("nginx", 1, requests=500, cpu_ms=16),
        measurement("zeroserve", 1, requests=1_000, cpu_ms=20),
    ]
    (comparison,) = compare(runs)
    assert (comparison.peer, comparison.pairs) == ("nginx", 2)
    assert comparison.cpu_ratio == Spread(1.55, 1.5, 1.6)
    assert comparison.throughput_ratio == Spread(1.5, 1.0, 2.0)


def test_payloads_are_compared_apart_and_only_where_zeroserve_ran() -> None:
    runs = [
        measurement("zeroserve", 0, requests=1_000, cpu_ms=10, payload="large"),
        measurement("nginx", 0, requests=1_000, cpu_ms=20, payload="large"),
        measurement("nginx", 0, requests=1_000, cpu_ms=15, payload="small"),
    ]
    assert [(one.payload, one.peer) for one in compare(runs)] == [("large", "nginx")]
