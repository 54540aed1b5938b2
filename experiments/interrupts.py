"""Ctrl-C and SIGTERM, taken only where an experiment waits: nothing is ever half set up or half cleaned up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The experiment was asked to end. Not an Exception, so that no handler for errors swallows it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.exit_code = 128 + signal_number


class Interrupts:
    """While `held`, signals are only remembered; inside `welcome` they (also an earlier one) raise Interrupted once."""

    def __init__(self) -> None:
        self._pending: int | None = None
        self._raised = False
        self._is_welcome = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Handle the signals until the block ends; then restore what handled them before. Main thread only."""
        before = {number: signal.signal(number, self._take) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def welcome(self) -> Iterator[None]:
        """A place where being interrupted is harmless. Raises Interrupted."""
        self._is_welcome = True
        try:
            self._raise_pending()
            yield
        finally:
            self._is_welcome = False

    def sleep(self, seconds: float) -> None:
        """Sleep; raises Interrupted."""
        with self.welcome():
            time.sleep(seconds)

    def _take(self, number: int, _: FrameType | None) -> None:
        self._pending = number
        if self._is_welcome:
            self._raise_pending()

    def _raise_pending(self) -> None:
        if self._pending is not None and not self._raised:
            # A second Ctrl-C must not disturb the clean-up that the first one began.
            self._raised = True
            raise Interrupted(self._pending)
