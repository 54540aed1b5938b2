"""A policy through the whole appliance: in force at both layers, changed by reload, and never against the way in."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.lab import CLIENT, EDGE

Get = Callable[..., tuple[int, dict[str, str], str]]


def _policy(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


ATTEMPTS = 3


def _datagram_arrives(port: int) -> bool:
    """Whether one of `ATTEMPTS` datagrams from the client gets to a socket on the edge."""
    with EDGE.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver, CLIENT.socket(kind=socket.SOCK_DGRAM) as sender:
        receiver.bind((EDGE.ipv4, port))
        receiver.settimeout(0.3)
        for _ in range(ATTEMPTS):
            sender.sendto(b"anybody?", (EDGE.ipv4, port))
            with contextlib.suppress(TimeoutError):
                return receiver.recv(100) == b"anybody?"
    return False


def test_unwanted_port_is_dropped_and_counted_by_the_filter(operator: Any, get: Get, tmp_path: Path) -> None:
    operator.up("--policy", _policy(tmp_path / "policy", "drop udp port 4000"))
    assert not _datagram_arrives(4000)
    assert _datagram_arrives(4001)
    assert get()[0] == 200
    counters = operator.status()["counters"]
    assert counters["filter"]["drop"]["port"]["packets"] == ATTEMPTS
    assert counters["tables"]["drop"]["port"]["packets"] == 0, "what the filter dropped never got there"


def test_reload_changes_the_policy_and_a_bad_one_changes_nothing(operator: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy"
    operator.up("--policy", _policy(path, "drop udp port 4000"))
    _policy(path, "drop udp port 4001")
    operator.run("reload")
    assert _datagram_arrives(4000) and not _datagram_arrives(4001)
    _policy(path, "drop udp port 4000", "drop everything")
    refusal = operator.run("reload", code=2)
    assert f"{path}:2:" in refusal
    assert _datagram_arrives(4000) and not _datagram_arrives(4001)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("drop tcp port 22", "would cut off SSH or HTTPS"),
        ("drop tcp port 443", "would cut off SSH or HTTPS"),
        ("drop from 0.0.0.0/0", "would cut you off"),
        ("drop from ::/0", "would cut you off"),
    ],
)
def test_policy_that_cuts_off_the_operator_is_refused(operator: Any, tmp_path: Path, rule: str, reason: str) -> None:
    refusal = operator.up("--policy", _policy(tmp_path / "policy", rule), code=2)
    assert reason in refusal and "--force" in refusal and refusal.count("\n") == 1
    assert operator.run("status", code=3) == "not up\n"


def test_the_https_port_in_use_is_the_one_guarded(operator: Any, tmp_path: Path) -> None:
    policy = _policy(tmp_path / "policy", "drop tcp port 8443")
    assert "would cut off" in operator.up("--https-port", "8443", "--policy", policy, code=2)
    operator.up("--policy", policy)


def test_reload_refuses_a_policy_against_ssh_too(operator: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy"
    operator.up("--policy", _policy(path, "drop udp port 4000"))
    _policy(path, "drop tcp port 22")
    assert "would cut off SSH" in operator.run("reload", code=2)


def test_forced_policy_is_put_in_force(operator: Any, get: Get, is_listening: Any, tmp_path: Path) -> None:
    operator.up("--force", "--policy", _policy(tmp_path / "policy", "drop tcp port 22"))
    with EDGE.socket() as ssh:
        ssh.bind((EDGE.ipv4, 22))
        ssh.listen()
        assert not is_listening(CLIENT, EDGE.ipv4, 22)
    assert get()[0] == 200


def test_forced_policy_against_https_is_told_not_hidden(operator: Any, tmp_path: Path) -> None:
    operator.up("--force", "--policy", _policy(tmp_path / "policy", "drop tcp port 443"), code=1)
    assert operator.layer("lab", code=1)["detail"].startswith("the client gets no HTTPS from 10.77.0.2")


def test_policy_survives_the_control_process(operator: Any, tmp_path: Path) -> None:
    operator.up("--policy", _policy(tmp_path / "policy", "drop udp port 4000"))
    os.kill(operator.status()["control_pid"], signal.SIGKILL)
    time.sleep(0.2)
    assert not _datagram_arrives(4000)
    operator.up("--policy", str(tmp_path / "policy"))
    assert not _datagram_arrives(4000)
    assert "protect, 1 rule" in operator.layer("tables")["detail"]
