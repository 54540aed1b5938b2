"""The control process: brings the appliance up, keeps its server running, and answers on a Unix socket.

It is not in the way of any packet or request: killed, it leaves filter, tables and server at work, and the next `up`
takes them over. One JSON object a line, each way: `{"command": "status"|"reload"|"down"}` is answered by
`{"ok": true, ...}` or `{"ok": false, "message": ..., "hint": ...}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, NoReturn

import uvloop

from appliance.process import ProcessIdentity
from appliance.settings import RUN_DIRECTORY, ApplianceError, Settings
from appliance.supervisor import Appliance, LayerState

SOCKET = RUN_DIRECTORY / "control.sock"
LOCK = RUN_DIRECTORY / "control.lock"
STANDARD_ERROR = 2
REQUEST_LIMIT_BYTES = 64 << 10
CLIENT_TIMEOUT_S = 10.0
FIRST_RESTART_S, LONGEST_RESTART_S = 0.2, 30.0
STEADY_S = 60.0
"""A server that ran this long before it died is restarted without the wait that earlier deaths built up."""


def ask(command: str, *, timeout_s: float = 10.0) -> dict[str, Any] | None:
    """Send a command to the control process and return its answer; None when no control process is there.

    Errors: ApplianceError with what the control process said, or when it does not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(SOCKET))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except PermissionError as error:
            raise ApplianceError(f"not allowed to use {SOCKET}", "run as root") from error
        try:
            connection.sendall(json.dumps({"command": command}).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
        except (TimeoutError, ConnectionError, ValueError) as error:
            message = f"the control process did not answer `{command}` within {timeout_s:g} s"
            raise ApplianceError(message, "zs-appliance down, which ends it if need be") from error
    if not isinstance(answer, dict) or not answer.get("ok"):
        raise ApplianceError(str(answer.get("message", "refused")), str(answer.get("hint", "")))
    return answer


def main() -> int:
    """Run the control process: settings as JSON on stdin, one event a line on stdout until it is ready or has failed.

    Events: `{"event": "layer", ...}`, `{"event": "ready", "status": ...}`, `{"event": "failed", "message", "hint"}`.
    """
    termination = _Termination()
    try:
        settings = Settings.from_json(json.load(sys.stdin))
        lock = _only_one()
        appliance = Appliance(settings, report=termination.reported)
        appliance.bring_up()
    except ApplianceError as error:
        _emit({"event": "failed", "message": error.message, "hint": error.hint})
        return 2
    except KeyboardInterrupt:
        _emit({"event": "failed", "message": "interrupted while coming up", "hint": "everything was undone"})
        return 130
    try:
        termination.check()
        uvloop.run(_Control(appliance).live())
    except KeyboardInterrupt:  # between coming up and the loop's own handling of signals
        appliance.take_down()
        return 130
    except BaseException:
        # Whatever is wrong with this process, the site is not to suffer for it.
        appliance.let_go()
        raise
    finally:
        os.close(lock)
    return 0


class _Termination:
    """SIGTERM and SIGINT while coming up unwind the stack as Ctrl-C does; the event loop takes them over later.

    The request is remembered too: where a signal is handled inside a callback from C (libbpf's log, for one), the
    exception ends there, and the next layer's report raises it again.
    """

    def __init__(self) -> None:
        self._is_wanted = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)

    def reported(self, state: LayerState) -> None:
        _emit({"event": "layer", **state.as_json()})
        self.check()

    def check(self) -> None:
        if self._is_wanted:
            self._is_wanted = False  # the loop's life begins, or the undoing: neither is to be interrupted by this one
            raise KeyboardInterrupt

    def _interrupt(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._is_wanted = True
        raise KeyboardInterrupt


class _Control:
    """The life of the control process once the appliance is up."""

    def __init__(self, appliance: Appliance) -> None:
        self._appliance = appliance
        self._started = time.time()
        self._ended = asyncio.Event()
        self._is_ending = False
        # One change at a time; status reads without waiting for it.
        self._changing = asyncio.Lock()
        self._commands: dict[str, Callable[[], Coroutine[Any, Any, dict[str, Any]]]] = {
            "status": self._status,
            "reload": self._reload,
            "down": self._down,
        }

    async def live(self) -> None:
        SOCKET.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            listener = await asyncio.start_unix_server(self._serve, str(SOCKET), limit=REQUEST_LIMIT_BYTES)
        finally:
            os.umask(before)
        self._obey_signals()
        watching = asyncio.get_running_loop().create_task(self._watch_server())
        _emit({"event": "ready", "status": (await self._status())["status"]})
        _detach_from_caller()
        try:
            await self._ended.wait()
        finally:
            watching.cancel()
            listener.close()
            SOCKET.unlink(missing_ok=True)

    def _obey_signals(self) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[Any]] = set()

        def start(reaction: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            task = loop.create_task(reaction())
            tasks.add(task)  # the loop itself holds tasks weakly
            task.add_done_callback(tasks.discard)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, start, self._down)
        loop.add_signal_handler(signal.SIGHUP, start, self._reload_on_signal)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await asyncio.wait_for(reader.readline(), CLIENT_TIMEOUT_S):
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await asyncio.wait_for(writer.drain(), CLIENT_TIMEOUT_S)
                if self._is_ending:
                    break
        except (TimeoutError, ConnectionError, ValueError):  # ValueError: a line beyond the limit
            pass
        finally:
            writer.close()
            if self._is_ending:
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                self._ended.set()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = self._commands[request["command"]]
        except (ValueError, KeyError, TypeError):
            return {"ok": False, "message": "not a command", "hint": f"one of {', '.join(self._commands)}"}
        try:
            return {"ok": True, **await command()}
        except ApplianceError as error:
            return {"ok": False, "message": error.message, "hint": error.hint}
        except Exception as error:
            _log(traceback.format_exc())
            return {"ok": False, "message": f"internal error: {error!r}", "hint": "see control.log"}

    async def _status(self) -> dict[str, Any]:
        status = await asyncio.to_thread(self._read_status)
        return {"status": status}

    def _read_status(self) -> dict[str, Any]:
        appliance = self._appliance
        server = appliance.server
        return {
            "control_pid": os.getpid(),
            "started_at": self._started,
            "settings": appliance.settings.as_json(),
            "urls": appliance.urls(),
            "layers": [layer.as_json() for layer in appliance.layers()],
            "server": {"pid": server.pid if server else None, "restarts": appliance.server_restarts},
            "counters": appliance.counters(),
        }

    async def _reload(self) -> dict[str, Any]:
        async with self._changing:
            await asyncio.to_thread(self._appliance.reload)
        return {}

    async def _reload_on_signal(self) -> None:
        try:
            await self._reload()
        except ApplianceError as error:
            _log(f"reload: {error}")

    async def _down(self) -> dict[str, Any]:
        self._is_ending = True
        try:
            async with self._changing:
                await asyncio.to_thread(self._appliance.take_down)
        finally:
            # When a client asked, its connection sets this after the answer is out; on a signal nobody else does.
            asyncio.get_running_loop().call_later(1.0, self._ended.set)
        return {}

    async def _watch_server(self) -> None:
        """Start the server again whenever it ends, waiting longer each time that it ends soon."""
        wait_s = FIRST_RESTART_S
        while not self._is_ending:
            server = self._appliance.server
            started = time.monotonic()
            if server is not None and server.is_alive():
                await _ended(server.identity)
            if self._is_ending:
                return
            if time.monotonic() - started > STEADY_S:
                wait_s = FIRST_RESTART_S
            _log(f"the server ended ({server.last_log_line() if server else 'none'}); starting it in {wait_s:g} s")
            await asyncio.sleep(wait_s)
            wait_s = min(LONGEST_RESTART_S, wait_s * 2)
            async with self._changing:
                if self._is_ending:
                    return
                try:
                    await asyncio.to_thread(self._appliance.restart_server)
                except Exception as error:  # the next round tries again, whatever it was
                    _log(f"restart: {error}")


async def _ended(identity: ProcessIdentity) -> None:
    """Return when the process has ended, child of ours or not: its pidfd becomes readable then (pidfd_open(2))."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        if identity.is_alive():
            await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _only_one() -> int:
    """The lock that makes this the only control process, for as long as the descriptor is open."""
    try:
        RUN_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ApplianceError("another zs-appliance is coming up or going down", "try again in a moment") from error
    except OSError as error:
        raise ApplianceError(f"cannot open {LOCK}: {error.strerror}", "run as root") from error
    return lock


def _detach_from_caller() -> None:
    """The command that started us has what it waited for: stdout must not keep its pipe open."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _emit(event: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whoever waited may be gone
        print(json.dumps(event), flush=True)


def _log(message: str) -> None:
    with contextlib.suppress(OSError):  # a full disk is no reason to stop
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        # Past Python's buffer, in which a line that could not be written would wait and spoil the exit status.
        os.write(STANDARD_ERROR, f"{stamp} zs-appliance: {message.rstrip()}\n".encode())


if __name__ == "__main__":
    raise SystemExit(main())
