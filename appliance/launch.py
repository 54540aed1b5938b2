"""Starting the control process and following it until the appliance is up; taking the appliance down whoever is left to
do it. What the layers are is not known here, and nothing is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance import control
from appliance.process import ProcessIdentity
from appliance.record import Record
from appliance.settings import ApplianceError, Settings
from appliance.supervisor import clear_leftovers

DOWN_TIMEOUT_S = 45.0
END_S = 5.0


def running_status() -> dict[str, Any] | None:
    """Status from the control process; None when there is none."""
    answer = control.ask("status")
    return None if answer is None else dict(answer["status"])


def bring_up(settings: Settings, on_layer: Callable[[dict[str, str]], None]) -> tuple[dict[str, Any], bool]:
    """Have the appliance up with these settings: (its status, whether it was up already).

    `on_layer` gets each layer's state as it comes up. Errors: ApplianceError when it is up with other settings, or what
    stopped it from coming up; everything is undone then. Ctrl-C undoes it too.
    """
    status = running_status()
    if status is not None:
        if Settings.from_json(status["settings"]) != settings:
            raise ApplianceError("the appliance is up with other settings", "zs-appliance down first")
        return status, True
    process = _start_control(settings)
    try:
        return _follow(process, on_layer, settings), False
    except BaseException:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            _await_end(process)
        raise


def take_down() -> list[str]:
    """Have nothing up: through the control process when there is one, and then whatever is left. What was found.

    Errors: ApplianceError when something cannot be removed.
    """
    removed = []
    control_process = _control_process()
    try:
        if control.ask("down", timeout_s=DOWN_TIMEOUT_S) is not None:
            removed.append("the appliance")
    except ApplianceError as error:
        removed.append(f"a control process that would not ({error.message})")
    if control_process is not None and not control_process.wait(END_S):
        control_process.stop(END_S)
    removed += clear_leftovers()
    with contextlib.suppress(FileNotFoundError):
        control.SOCKET.unlink()
    return removed


def site_is_unattended() -> Record | None:
    """The record of a site that is still served though its control process is gone; None when there is none."""
    left = Record.load()
    return left if left is not None and left.server is not None and left.server.is_alive() else None


def _control_process() -> ProcessIdentity | None:
    try:
        left = Record.load()
    except ApplianceError:
        return None  # damaged: `clear_leftovers` removes it
    return left.control if left is not None and left.control.pid != os.getpid() else None


def _start_control(settings: Settings) -> subprocess.Popen[str]:
    """The control process in a session of its own, its log in the state directory."""
    log = settings.state_directory / "control.log"
    try:
        settings.state_directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "appliance.control"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                start_new_session=True,
                text=True,
            )
    except OSError as error:
        message = f"cannot write in {settings.state_directory}: {error.strerror}"
        raise ApplianceError(message, "run as root, or give --state-dir") from error
    with contextlib.suppress(BrokenPipeError), process.stdin or contextlib.nullcontext() as pipe:
        if pipe is not None:
            pipe.write(json.dumps(settings.as_json()))
    return process


def _follow(
    process: subprocess.Popen[str], on_layer: Callable[[dict[str, str]], None], settings: Settings
) -> dict[str, Any]:
    if process.stdout is None:
        raise ApplianceError("the control process has no output to follow")
    with process.stdout as events:
        for line in events:
            event = json.loads(line)
            match event.pop("event"):
                case "layer":
                    on_layer(event)
                case "ready":
                    # Not our child to wait for any more; Popen would warn when it is collected.
                    process.returncode = 0
                    return dict(event["status"])
                case "failed":
                    _await_end(process)
                    raise ApplianceError(event["message"], event["hint"])
    _await_end(process)
    last = _last_line(settings.state_directory / "control.log")
    raise ApplianceError(f"the control process ended: {last}", "zs-appliance down")


def _await_end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(timeout=DOWN_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ApplianceError(f"the control process {process.pid} does not end", "zs-appliance down") from error


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), f"see {log}")
