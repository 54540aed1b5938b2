"""Processes that outlive the one that started them: known by pid and start time, ended without hitting a stranger.

What the processes do is not known here.
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for all time: a pid is used again, a pid with its start time (clock ticks after boot) is not."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this pid now; None when there is none or it is dead and only waits to be reaped."""
        state_and_start = _state_and_start(pid)
        if state_and_start is None or state_and_start[0] in "ZX":
            return None
        return cls(pid, state_and_start[1])

    def is_alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this process and no other; says whether it was there to be signalled."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor fixes the process; only now does the start time tell which one it is.
            if not self.is_alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; says whether it has. Works for processes that are not our children."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.is_alive():
                return True
            readable, _, _ = select.select([descriptor], [], [], timeout_s)
            return bool(readable)
        finally:
            os.close(descriptor)

    def stop(self, grace_s: float = 5.0) -> bool:
        """SIGTERM, then SIGKILL when `grace_s` have passed. Says whether there was a living process to stop. A
        child is not reaped: that is for whoever started it."""
        if not self.signal(signal.SIGTERM):
            return False
        if not self.wait(grace_s):
            self.signal(signal.SIGKILL)
            self.wait(grace_s)
        return True


def stop_all(pids: list[int], grace_s: float = 2.0) -> int:
    """Stop several processes side by side, within about twice `grace_s`; the number that were alive."""
    found = [identity for pid in pids if (identity := ProcessIdentity.of(pid)) is not None]
    signalled = [identity for identity in found if identity.signal(signal.SIGTERM)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + grace_s
        for identity in signalled:
            if not identity.wait(max(0.0, deadline - time.monotonic())) and number is signal.SIGTERM:
                identity.signal(signal.SIGKILL)
    return len(signalled)


def _state_and_start(pid: int) -> tuple[str, int] | None:
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # proc(5): the name in parentheses may hold anything, so count from the last one: state is field 3, start time 22.
    fields = line[line.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])
