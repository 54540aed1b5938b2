"""Only the process that was meant is signalled, and it ends in bounded time even when it does not want to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from appliance.process import ProcessIdentity, stop_all

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
DOCILE = "import time; print(flush=True); time.sleep(60)"


@contextmanager
def _running(program: str) -> Iterator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            identity = ProcessIdentity.of(child.pid)
            assert identity is not None
            yield child, identity
        finally:
            child.kill()


def test_identity_of_a_living_process_is_stable() -> None:
    myself = ProcessIdentity.of(os.getpid())
    assert myself is not None and myself == ProcessIdentity.of(os.getpid())
    assert myself.is_alive()


def test_process_name_with_spaces_and_parentheses_is_read_right() -> None:
    rename = "open('/proc/self/comm', 'w').write('a) Z 1 (b'); import time; print(flush=True); time.sleep(60)"
    with _running(rename) as (child, identity):
        assert identity.is_alive()
        with open("/proc/uptime") as uptime:
            age_s = float(uptime.read().split()[0]) - identity.start_ticks / os.sysconf("SC_CLK_TCK")
        assert 0 <= age_s < 30
        assert identity.pid == child.pid


def test_dead_child_that_is_not_reaped_is_not_alive() -> None:
    with _running(DOCILE) as (child, identity):
        os.kill(child.pid, signal.SIGKILL)
        assert identity.wait(5)
        assert not identity.is_alive()
        assert ProcessIdentity.of(child.pid) is None
        assert identity.signal(signal.SIGTERM) is False


def test_recycled_pid_is_not_signalled() -> None:
    with _running(DOCILE) as (child, identity):
        earlier = ProcessIdentity(child.pid, identity.start_ticks - 1)
        assert not earlier.is_alive()
        assert earlier.stop() is False
        assert earlier.wait(0) is True
        assert child.poll() is None


def test_docile_process_ends_by_sigterm() -> None:
    with _running(DOCILE) as (child, identity):
        assert identity.stop(grace_s=5) is True
        assert child.wait(5) == -signal.SIGTERM
        assert identity.stop() is False


def test_stubborn_process_is_killed_after_its_grace() -> None:
    with _running(STUBBORN) as (child, identity):
        started = time.monotonic()
        assert identity.stop(grace_s=0.3) is True
        assert child.wait(5) == -signal.SIGKILL
        assert time.monotonic() - started >= 0.3


def test_several_are_stopped_side_by_side() -> None:
    with _running(STUBBORN) as (first, _), _running(STUBBORN) as (second, _), _running(DOCILE) as (third, _):
        started = time.monotonic()
        assert stop_all([first.pid, second.pid, third.pid, 2**22 - 1], grace_s=0.5) == 3
        assert time.monotonic() - started < 5
        assert [child.wait(5) for child in (first, second, third)] == [
            -signal.SIGKILL,
            -signal.SIGKILL,
            -signal.SIGTERM,
        ]


@pytest.mark.parametrize("pid", [2**22 - 1])
def test_no_such_process_has_no_identity(pid: int) -> None:
    assert ProcessIdentity.of(pid) is None
