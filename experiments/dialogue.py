"""The conversation between the runner and its measuring processes: one JSON object a line over stdin and stdout.

Both ends are here. What is said (sender, sink, prober) belongs to the processes themselves.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Protocol, Self

from experiments.plan import ExperimentError

Message = dict[str, Any]

_GRACE_S: Final = 2.0


class Namespace(Protocol):
    """Somewhere to start a process: `appliance.lab` gives one for each end of the cable."""

    def popen(
        self, argv: list[str], *, cpu: int | None = None, stdin: int, stdout: int, stderr: int, process_group: int
    ) -> subprocess.Popen[bytes]: ...


class Commands:
    """The process's end: reads commands in a thread of its own, so that a measuring loop never has to look.

    The thread also ends the process when the runner is gone (end of file on stdin), whatever the loop is doing; an
    alarm ends it after `lifetime_s` even if that fails.
    """

    def __init__(self, lifetime_s: float) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(max(1, math.ceil(lifetime_s)))
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # os.read, not sys.stdin: a thread inside a buffered reader would make the interpreter abort at exit.
        for line in _lines(sys.stdin.fileno()):
            self._received.put(json.loads(line))
        os._exit(0)

    def next(self) -> Message:
        """The next command, waiting for it."""
        return self._received.get()

    def pending(self) -> Message | None:
        """The next command if one has arrived."""
        with contextlib.suppress(queue.Empty):
            return self._received.get_nowait()
        return None


def say(**message: object) -> None:
    """Tell the runner something, at once."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Agent:
    """The runner's end of one process: started on entry, gone on exit."""

    def __init__(self, name: str, namespace: Namespace, argv: list[str], *, cpu: int | None) -> None:
        self.name = name
        self._namespace = namespace
        self._argv = argv
        self._cpu = cpu
        self._buffer = b""

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        self._process = self._namespace.popen(
            [sys.executable, "-P", "-m", *self._argv],
            cpu=self._cpu,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors.fileno(),
            # Ctrl-C on a terminal reaches its whole group; only the runner is to hear it, and to end the others.
            process_group=0,
        )
        try:
            self.receive("ready", timeout_s=20.0)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: str, **fields: object) -> None:
        """Send one command; raises ExperimentError if the process is gone."""
        assert self._process.stdin is not None
        line = json.dumps({"command": command, **fields}) + "\n"
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except BrokenPipeError:
            raise self._gone() from None

    def receive(self, event: str, timeout_s: float) -> Message:
        """The next message, which must be of this event; raises ExperimentError when it is late or the process died."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ExperimentError(
                        f"the {self.name} did not answer within {timeout_s:g} s (waiting for {event!r})",
                        "the machine may be overloaded; try a lower --pps",
                    )
                chunk = os.read(self._process.stdout.fileno(), 65536)
                if not chunk:
                    raise self._gone()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Message = json.loads(line)
        if message.get("event") != event:
            raise ExperimentError(
                f"the {self.name} said {message.get('event')!r} instead of {event!r}", "this is a bug; please report it"
            )
        return message

    def _gone(self) -> ExperimentError:
        self._process.wait(_GRACE_S)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"exit status {self._process.returncode}"
        return ExperimentError(f"the {self.name} ended early ({reason})", "see whether something else killed it")

    def close(self) -> None:
        """End the process: it ends by itself when its stdin closes, or else is killed."""
        process = self._process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()


def _lines(descriptor: int) -> Iterator[bytes]:
    buffer = b""
    while chunk := os.read(descriptor, 65536):
        *complete, buffer = (buffer + chunk).split(b"\n")
        yield from complete
