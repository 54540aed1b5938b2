"""Signals interrupt an experiment only where it waits, and only once."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from experiments.interrupts import Interrupted, Interrupts


def send_later(number: signal.Signals, delay_s: float = 0.05) -> None:
    threading.Timer(delay_s, os.kill, (os.getpid(), number)).start()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_ends_a_wait_at_once(number: signal.Signals, code: int) -> None:
    interrupts = Interrupts()
    begun = time.monotonic()
    with interrupts.held(), pytest.raises(Interrupted) as interrupted:
        send_later(number)
        interrupts.sleep(10)
    assert interrupted.value.exit_code == code
    assert time.monotonic() - begun < 5


def test_signal_during_work_waits_for_the_next_place_to_wait() -> None:
    interrupts = Interrupts()
    finished = False
    with interrupts.held(), pytest.raises(Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)
        finished = True
        interrupts.sleep(0)
    assert finished


def test_second_signal_does_not_disturb_the_clean_up() -> None:
    interrupts = Interrupts()
    with interrupts.held():
        with pytest.raises(Interrupted):
            send_later(signal.SIGINT)
            interrupts.sleep(10)
        os.kill(os.getpid(), signal.SIGINT)
        interrupts.sleep(0)


def test_handlers_are_put_back() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with Interrupts().held():
        assert signal.getsignal(signal.SIGINT) != before[signal.SIGINT]
    assert {number: signal.getsignal(number) for number in before} == before


def test_interruption_is_not_an_ordinary_error() -> None:
    assert not issubclass(Interrupted, Exception)
