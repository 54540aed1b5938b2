"""The lab on the real kernel: packets get through, and nothing survives it however its owner ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyroute2 import Ethtool

from appliance.lab import CLIENT, EDGE, Host, Lab, has_ipv6
from appliance.settings import ApplianceError

HOLD_A_LAB = """
import sys, time
from appliance.lab import Lab
with Lab.create(purpose="doomed", kept=len(sys.argv) > 1) as lab:
    child = lab.edge.popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    time.sleep(60)
"""


def _echo_once(family: socket.AddressFamily, server: Host, client: Host, address: str) -> bytes:
    """A datagram from `client` to `server` and its answer. Sent again when it got lost: a machine that does much else
    at the moment drops datagrams."""
    receiving = server.socket(family, socket.SOCK_DGRAM)
    sending = client.socket(family, socket.SOCK_DGRAM)
    with receiving, sending:
        receiving.settimeout(0.5)
        sending.settimeout(0.5)
        receiving.bind((address, 4000))
        for _ in range(6):
            sending.sendto(b"across", (address, 4000))
            with contextlib.suppress(TimeoutError):
                payload, sender = receiving.recvfrom(100)
                receiving.sendto(payload[::-1], sender)
                return sending.recv(100)
    return b""


def _links(namespace: Host) -> set[str]:
    child = namespace.popen(["ip", "-o", "link"], stdout=subprocess.PIPE, text=True)
    output, _ = child.communicate(timeout=10)
    return {line.split(": ")[1].split("@")[0] for line in output.splitlines()}


def _start_owner(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    owner = subprocess.Popen([sys.executable, "-c", HOLD_A_LAB, *arguments], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def test_datagrams_cross_the_lab_over_ipv4(lab: Lab) -> None:
    assert _echo_once(socket.AF_INET, lab.edge, lab.client, lab.edge.ipv4) == b"ssorca"
    assert _echo_once(socket.AF_INET, lab.client, lab.edge, lab.client.ipv4) == b"ssorca"


def test_datagrams_cross_the_lab_over_ipv6(lab: Lab) -> None:
    if not has_ipv6():
        pytest.skip("this kernel has no IPv6")
    assert _echo_once(socket.AF_INET6, lab.edge, lab.client, lab.edge.ipv6) == b"ssorca"


def test_loopback_of_each_namespace_is_its_own(lab: Lab) -> None:
    with lab.edge.socket() as listening, lab.client.socket() as elsewhere, lab.edge.socket() as here:
        listening.bind(("127.0.0.1", 8000))
        listening.listen()
        here.settimeout(2)
        here.connect(("127.0.0.1", 8000))
        with pytest.raises(ConnectionRefusedError):
            elsewhere.connect(("127.0.0.1", 8000))


def test_child_runs_inside_on_its_cpu(lab: Lab) -> None:
    cpu = max(os.sched_getaffinity(0))
    report = "import os; print(os.readlink('/proc/self/ns/net'), os.sched_getaffinity(0))"
    child = lab.edge.popen([sys.executable, "-c", report], cpu=cpu, stdout=subprocess.PIPE, text=True)
    output, _ = child.communicate(timeout=10)
    inode = lab.edge.path.stat().st_ino
    assert output.strip() == f"net:[{inode}] {{{cpu}}}"
    assert _links(lab.edge) == {"lo", "zs-edge0"}


def test_entering_moves_only_the_calling_thread(lab: Lab) -> None:
    home = os.readlink("/proc/thread-self/ns/net")
    seen: list[str] = []
    with lab.edge.enter():
        inside = os.readlink("/proc/thread-self/ns/net")
        bystander = threading.Thread(target=lambda: seen.append(os.readlink(f"/proc/{os.getpid()}/ns/net")))
        bystander.start()
        bystander.join()
    assert inside == f"net:[{lab.edge.path.stat().st_ino}]" != home
    assert os.readlink("/proc/thread-self/ns/net") == home
    with pytest.raises(ZeroDivisionError), lab.client.enter():
        _ = 1 / 0
    assert os.readlink("/proc/thread-self/ns/net") == home


def test_lab_can_be_made_in_a_running_event_loop() -> None:
    async def make() -> bytes:
        with Lab.create() as lab:
            return _echo_once(socket.AF_INET, lab.edge, lab.client, lab.edge.ipv4)

    assert asyncio.run(make()) == b"ssorca"


def test_segmentation_offloads_are_off_and_checksums_stay(lab: Lab) -> None:
    def features() -> dict[str, bool]:
        with Ethtool() as ethtool:
            current = ethtool.get_features("zs-edge0").features
            names = ("tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro", "tx-checksum-ip-generic")
            return {name: bool(current[name].enable) for name in names}

    assert lab.edge.run(features) == {
        "tx-tcp-segmentation": False,
        "tx-generic-segmentation": False,
        "rx-gro": False,
        "tx-checksum-ip-generic": True,
    }


def test_threaded_napi_without_a_native_program_says_what_is_missing(lab: Lab) -> None:
    with pytest.raises(ApplianceError, match="attach an XDP program natively first"):
        lab.set_threaded_napi(True)
    assert lab.napi_threads() == []


def test_closing_removes_namespaces_links_and_children() -> None:
    with Lab.create() as lab:
        child = lab.edge.popen([sys.executable, "-c", "import time; time.sleep(60)"])
        assert lab.edge.processes() == [child.pid]
    assert child.wait(timeout=5) == -signal.SIGTERM
    assert not CLIENT.exists() and not EDGE.exists()
    lab.close()


def test_lab_is_removed_when_the_block_fails() -> None:
    with pytest.raises(ZeroDivisionError), Lab.create():
        _ = 1 / 0
    assert not CLIENT.path.exists() and not EDGE.path.exists()


def test_lab_that_fails_half_way_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    # An address the kernel refuses stops the build after namespaces and links exist.
    monkeypatch.setattr("appliance.lab.IPV4_PREFIX_LENGTH", 99)
    with pytest.raises(ApplianceError, match="cannot build the lab"):
        Lab.create()
    assert not CLIENT.path.exists() and not EDGE.path.exists()
    monkeypatch.undo()
    Lab.create().close()


def test_ctrl_c_removes_the_lab() -> None:
    owner, child = _start_owner()
    owner.send_signal(signal.SIGINT)
    owner.wait(timeout=10)
    assert not CLIENT.path.exists() and not EDGE.path.exists()
    assert not Path(f"/proc/{child}").exists()


def test_what_a_killed_owner_left_is_found_and_removed() -> None:
    owner, child = _start_owner()
    with pytest.raises(ApplianceError, match=f"in use by process {owner.pid} \\(doomed\\)"):
        Lab.remove_leftovers()
    owner.kill()
    owner.wait(timeout=10)
    assert EDGE.exists() and EDGE.processes() == [child]
    assert Lab.remove_leftovers() == [
        "link zs-client0",
        "1 process(es) in zs-edge",
        "namespace zs-client",
        "namespace zs-edge",
    ]
    assert not EDGE.path.exists()
    assert Lab.remove_leftovers() == []


def test_creating_replaces_what_a_killed_owner_left() -> None:
    owner, _ = _start_owner()
    owner.kill()
    owner.wait(timeout=10)
    with Lab.create() as lab:
        assert lab.edge.processes() == []
        assert _echo_once(socket.AF_INET, lab.edge, lab.client, lab.edge.ipv4) == b"ssorca"


def test_kept_lab_outlives_its_owner_and_is_adopted() -> None:
    owner, child = _start_owner("kept")
    owner.kill()
    owner.wait(timeout=10)
    with pytest.raises(ApplianceError, match="belongs to a running appliance"):
        Lab.create()
    assert Lab.remove_leftovers() == []
    adopted = Lab.adopt()
    assert adopted is not None
    with adopted:
        assert adopted.edge.processes() == [child]
        assert _echo_once(socket.AF_INET, adopted.edge, adopted.client, adopted.edge.ipv4) == b"ssorca"
    assert Lab.adopt() is None


def test_strangers_in_a_lab_namespace_are_not_touched() -> None:
    with Lab.create() as lab, lab.edge.enter():
        stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
