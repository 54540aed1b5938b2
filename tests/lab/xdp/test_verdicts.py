"""The program in the kernel against the reference model, frame by frame, without an interface (BPF_PROG_TEST_RUN)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from xdp.counters import Count, Counters
from xdp.policy import Mode, Policy, Reason, Verdict, boot_time_ns, verdict
from xdp.prefilter import Prefilter

from .conftest import Named

XDP_CODES = {Verdict.DROP: 1, Verdict.PASS: 2}


@pytest.fixture
def prefilter() -> Iterator[Prefilter]:
    with Prefilter.load() as loaded:
        yield loaded


@pytest.mark.parametrize("mode", Mode)
def test_kernel_and_model_agree_on_every_frame(
    prefilter: Prefilter, corpus: list[Named], sample_policy: Callable[[Mode], Policy], mode: Mode
) -> None:
    policy = sample_policy(mode)
    prefilter.apply(policy)
    reasons: Counter[Reason] = Counter()
    before = prefilter.counters()
    for named in corpus:
        expected, reason = verdict(policy, named.frame, boot_time_ns())
        run = prefilter.test_run(named.frame)
        after = prefilter.counters()
        assert run.returned == XDP_CODES[expected], f"{named.name}: the model says {expected} ({reason})"
        assert run.frame == named.frame, named.name
        assert changes(after - before) == {(expected, reason): Count(1, len(named.frame))}, named.name
        before = after
        reasons[reason] += 1
    assert all(reasons[reason] >= 20 for reason in Reason), f"the corpus leaves reasons out: {reasons}"


def test_without_rules_only_the_unreadable_is_dropped(prefilter: Prefilter, corpus: list[Named]) -> None:
    prefilter.apply(Policy(Mode.PROTECT))
    for named in corpus:
        prefilter.test_run(named.frame)
    counters = prefilter.counters()
    assert counters.dropped == counters.of(Verdict.DROP, Reason.MALFORMED).packets > 0
    assert counters.of(Verdict.PASS, Reason.CLEAN).packets > 0


def changes(difference: Counters) -> dict[tuple[Verdict, Reason], Count]:
    return {outcome: count for outcome, count in difference.by_outcome.items() if count != Count()}
