"""The site stays up when something else fails: the control process killed, the server killed, a bad reload."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.lab import EDGE
from appliance.record import RECORD

Get = Callable[..., tuple[int, dict[str, str], str]]


class Visitor:
    """Somebody who asks for the page over and over while the block runs, and remembers what came back."""

    def __init__(self, get: Get) -> None:
        self.answers: list[str] = []
        self._get = get
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._visit)

    def __enter__(self) -> Visitor:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _visit(self) -> None:
        while not self._stop.wait(0.02):
            try:
                self.answers.append(str(self._get()[0]))
            except OSError as error:
                self.answers.append(repr(error))


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _wait_until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def test_killed_control_process_is_succeeded_without_a_lost_request(operator: Any, get: Get) -> None:
    operator.up()
    before = operator.status()
    with Visitor(get) as visitor:
        _kill(before["control_pid"])
        time.sleep(0.3)
        assert operator.run("status", code=1).startswith("unattended: the site is served")
        assert operator.status(code=1)["state"] == "unattended"
        printed = operator.up()
        time.sleep(0.2)
    assert set(visitor.answers) == {"200"} and len(visitor.answers) > 10
    assert f"adopted, pid {before['server']['pid']}" in printed
    after = operator.status()
    assert after["server"]["pid"] == before["server"]["pid"]
    assert after["control_pid"] != before["control_pid"]
    counted = [status["counters"]["filter"]["pass"]["clean"]["packets"] for status in (before, after)]
    assert counted[1] > counted[0] > 0, "the filter that was adopted is the one that counted before"


def test_adopted_server_is_restarted_too(operator: Any, get: Get) -> None:
    operator.up()
    _kill(operator.status()["control_pid"])
    operator.up()
    adopted = operator.status()["server"]["pid"]
    _kill(adopted)
    _wait_until(lambda: operator.status(code=None)["server"]["pid"] != adopted)
    _wait_until(lambda: operator.exit_code() == 0)
    assert get()[0] == 200


def test_down_clears_what_a_killed_control_process_left(operator: Any) -> None:
    operator.up()
    status = operator.status()
    _kill(status["control_pid"])
    printed = operator.run("down")
    assert f"server {status['server']['pid']}" in printed
    assert "namespace zs-edge" in printed
    assert not _runs(status["server"]["pid"])
    assert not EDGE.path.exists()


def test_down_does_not_touch_a_stranger_with_the_pid_of_the_dead_server(operator: Any, tmp_path: Path) -> None:
    operator.up()
    status = operator.status()
    _kill(status["control_pid"])
    fields = json.loads(RECORD.read_text())
    # As if the server's pid had been given to this test since: same pid as we have, other start time.
    fields["server"] = [os.getpid(), fields["server"][1]]
    RECORD.write_text(json.dumps(fields))
    printed = operator.run("down")
    assert f"server {os.getpid()}" not in printed
    assert not _runs(status["server"]["pid"]), "the real one lived in the lab and is found there"


def test_up_after_both_were_killed_starts_a_new_server(operator: Any, get: Get) -> None:
    operator.up()
    status = operator.status()
    _kill(status["control_pid"])
    _kill(status["server"]["pid"])
    operator.up()
    assert operator.status()["server"]["pid"] != status["server"]["pid"]
    assert get()[0] == 200


def test_up_with_other_settings_does_not_disturb_an_unattended_site(operator: Any, get: Get) -> None:
    operator.up()
    _kill(operator.status()["control_pid"])
    assert "with other settings was left up" in operator.up("--https-port", "8443", code=2)
    assert get()[0] == 200


def test_killed_server_is_restarted(operator: Any, get: Get) -> None:
    operator.up()
    first = operator.status()["server"]["pid"]
    _kill(first)
    _wait_until(lambda: operator.exit_code() == 0)
    second = operator.status()["server"]
    assert second["pid"] != first
    assert second["restarts"] == 1
    assert get()[0] == 200


def test_server_that_cannot_start_again_is_tried_until_it_can(operator: Any, get: Get, replace_site: Any) -> None:
    operator.up()
    pid = operator.status()["server"]["pid"]
    operator.site.write_bytes(b"")
    _kill(pid)
    _wait_until(lambda: operator.status(code=1)["server"]["restarts"] >= 2)
    assert operator.layer("server", code=1)["condition"] == "down"
    assert operator.layer("filter", code=1)["condition"] == "up"
    replace_site(operator.site, "<h1>mended</h1>")
    _wait_until(lambda: operator.exit_code() == 0)
    assert get()[2] == "<h1>mended</h1>"


def test_reload_swaps_the_site_and_a_broken_one_changes_nothing(operator: Any, get: Get, replace_site: Any) -> None:
    operator.up()
    pid = operator.status()["server"]["pid"]
    replace_site(operator.site, "<h1>second</h1>")
    operator.run("reload")
    _wait_until(lambda: get()[2] == "<h1>second</h1>")
    operator.site.with_suffix(".bad").write_bytes(b"not a tarball")
    operator.site.with_suffix(".bad").replace(operator.site)
    operator.run("reload")
    log = operator.state / "server.log"
    _wait_until(lambda: "reload refused" in log.read_text())
    assert get()[2] == "<h1>second</h1>"
    assert operator.status()["server"] == {"pid": pid, "restarts": 0}


def test_reload_without_an_appliance_is_refused(operator: Any) -> None:
    assert "the appliance is not up" in operator.run("reload", code=2)


def test_control_socket_refuses_nonsense_and_goes_on(operator: Any) -> None:
    operator.up()
    assert os.stat("/run/zs/control.sock").st_mode & 0o777 == 0o600
    refusal = {"ok": False, "message": "not a command", "hint": "one of status, reload, down"}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect("/run/zs/control.sock")
        answers = connection.makefile("rb")
        for line in (b"{}", b"not json", b'{"command": "explode"}', b"[]", b'{"command": []}', b"\xff"):
            connection.sendall(line + b"\n")
            assert json.loads(answers.readline()) == refusal
        connection.sendall(b'{"command": "status"}\n')
        assert json.loads(answers.readline())["ok"] is True
    with socket.socket(socket.AF_UNIX) as flood:
        flood.settimeout(5)
        flood.connect("/run/zs/control.sock")
        try:
            flood.sendall(b"x" * (1 << 20))
            assert flood.recv(1) == b""
        except ConnectionError:
            pass  # closed before all of it was taken
    assert operator.exit_code() == 0


def test_full_disk_does_not_stop_the_site(operator: Any, get: Get) -> None:
    operator.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(operator.state)], check=True)
    try:
        operator.up()
        operator.run("down")
        for log in operator.state.glob("*.log"):
            log.unlink()
        with (
            pytest.raises(OSError, match="No space left"),
            (operator.state / "filling").open("wb", buffering=0) as file,
        ):
            while True:
                file.write(bytes(4096))
        operator.up()
        _kill(operator.status()["server"]["pid"])
        _wait_until(lambda: operator.exit_code() == 0)
        assert get()[0] == 200
        assert (operator.state / "server.log").stat().st_size == 0, "there was no room, as intended"
    finally:
        operator.run("down")
        subprocess.run(["umount", str(operator.state)], check=True)
