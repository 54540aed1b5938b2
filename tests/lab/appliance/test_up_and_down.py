"""`up`, `status`, `reload` and `down` end to end, in the lab and on a link of the machine itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from appliance.lab import CLIENT, EDGE, Lab, has_ipv6
from appliance.namespace import in_thread
from appliance.welcome import PREBUILT
from xdp.filter import Filter
from zeroserve.certificates import self_signed

Get = Callable[..., tuple[int, dict[str, str], str]]


def test_up_serves_the_site_to_a_client_and_says_where(operator: Any, get: Get) -> None:
    printed = operator.up()
    assert "up at https://10.77.0.2/" in printed
    status, headers, body = get()
    assert (status, body) == (200, "<h1>first</h1>")
    assert headers["content-type"].startswith("text/html")
    if has_ipv6():
        with CLIENT.socket(socket.AF_INET6) as connection:
            connection.settimeout(2)
            connection.connect((EDGE.ipv6, 443))


def test_layers_come_up_in_order_and_are_all_up(operator: Any) -> None:
    printed = operator.up()
    assert [line.split()[:2] for line in printed.splitlines()[:4]] == [
        ["lab", "up"],
        ["filter", "up"],
        ["tables", "up"],
        ["server", "up"],
    ]
    status = operator.status()
    assert status["state"] == "up"
    assert status["urls"][0] == "https://10.77.0.2/"
    assert {layer["name"]: layer["condition"] for layer in status["layers"]} == {
        "lab": "up",
        "filter": "up",
        "tables": "up",
        "server": "up",
    }
    assert "native XDP on zs-edge0" in operator.layer("filter")["detail"]


def test_down_leaves_nothing_and_is_idempotent(operator: Any) -> None:
    operator.up()
    pid = operator.status()["server"]["pid"]
    assert operator.run("down") == "down; removed the appliance\n"
    assert not Path(f"/proc/{pid}").exists()
    assert not EDGE.path.exists() and not CLIENT.path.exists()
    assert operator.run("status", code=3) == "not up\n"
    assert operator.run("down") == "nothing was up\n"


def test_up_twice_changes_nothing(operator: Any) -> None:
    operator.up()
    before = operator.status()
    assert operator.up().startswith("already up at https://10.77.0.2/")
    after = operator.status()
    assert (after["control_pid"], after["server"], after["started_at"]) == (
        before["control_pid"],
        before["server"],
        before["started_at"],
    )


def test_up_with_other_settings_is_refused_while_up(operator: Any, get: Get) -> None:
    operator.up()
    assert "up with other settings; zs-appliance down first" in operator.up("--https-port", "8443", code=2)
    assert get()[0] == 200


def test_other_https_port_is_served_and_named(operator: Any, get: Get) -> None:
    assert "https://10.77.0.2:8443/" in operator.up("--https-port", "8443")
    assert get(port=8443)[2] == "<h1>first</h1>"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"no tarball at all" * 100, "tar"), (b"\x1f\x8b\x08" + bytes(600), "compressed")],
)
def test_broken_site_is_undone_and_the_reason_told(operator: Any, content: bytes, reason: str) -> None:
    operator.site.write_bytes(content)
    refusal = operator.up(code=2)
    assert refusal.count("\n") == 1
    assert refusal.startswith("zs-appliance: the server did not start: ")
    assert reason in refusal
    assert not EDGE.path.exists()
    assert operator.run("status", code=3) == "not up\n"


def test_certificate_and_key_that_do_not_match_are_undone(operator: Any, tmp_path: Path) -> None:
    one, other = self_signed(["localhost"]), self_signed(["localhost"])
    (tmp_path / "cert.pem").write_bytes(one.cert_pem)
    (tmp_path / "key.pem").write_bytes(other.key_pem)
    refusal = operator.up("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"), code=2)
    assert refusal.startswith("zs-appliance: the server did not start: ")
    assert not EDGE.path.exists()


def test_own_certificate_is_shown_to_clients(operator: Any, tmp_path: Path) -> None:
    pair = self_signed(["site.example"])
    (tmp_path / "cert.pem").write_bytes(pair.cert_pem)
    (tmp_path / "key.pem").write_bytes(pair.key_pem)
    operator.up("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
    context = ssl.create_default_context(cadata=pair.cert_pem.decode())
    with CLIENT.socket() as plain:
        plain.settimeout(5)
        plain.connect((EDGE.ipv4, 443))
        with context.wrap_socket(plain, server_hostname="site.example") as connection:
            assert connection.version() == "TLSv1.3"


def test_self_signed_certificate_survives_down_and_up(operator: Any) -> None:
    operator.up()
    first = (operator.state / "tls/self-signed.pem").read_bytes()
    operator.run("down")
    operator.up()
    assert (operator.state / "tls/self-signed.pem").read_bytes() == first
    assert (operator.state / "tls/self-signed.key").stat().st_mode & 0o077 == 0


def test_welcome_site_answers_ping_from_its_script(operator: Any, get: Get) -> None:
    if not PREBUILT.exists() and shutil.which("clang") is None:
        pytest.skip("the welcome site is not packed, and there is no clang to pack it with")
    operator.run("up", "--lab", "--state-dir", str(operator.state))
    status, headers, body = get("/api/ping")
    assert (status, headers["content-type"], body) == (200, "application/json", '{"status":"ok"}')
    status, headers, body = get("/")
    assert status == 200 and "It serves." in body


@pytest.mark.parametrize("layer", ["lab", "filter", "tables"])
@pytest.mark.parametrize("delay_s", [0, 0.02])
def test_ctrl_c_while_coming_up_undoes_everything(operator: Any, layer: str, delay_s: float) -> None:
    command = [sys.executable, "-P", "-m", "appliance", *operator.up_arguments()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_unbuffered())
    assert process.stdout is not None
    while not process.stdout.readline().startswith(layer):
        assert process.poll() is None
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "zs-appliance: interrupted\n")
    assert operator.run("status", code=3) == "not up\n"
    assert not EDGE.path.exists()


def test_terminating_the_control_process_takes_everything_down(operator: Any) -> None:
    operator.up()
    os.kill(operator.status()["control_pid"], signal.SIGTERM)
    _wait_until(lambda: not EDGE.path.exists())
    _wait_until(lambda: operator.exit_code() == 3)


def test_another_xdp_program_on_the_interface_leaves_the_site_up_without_filter(operator: Any, get: Get) -> None:
    lab = Lab.create(kept=True)
    with lab.edge.enter():
        stranger = Filter.attach(lab.edge.interface)
    lab.leave()
    try:
        printed = operator.up(code=1)
        assert "no XDP filter: zs-edge0 runs another XDP program" in printed
        assert get()[0] == 200
        assert operator.status(code=1)["state"] == "degraded"
        assert operator.layer("tables", code=1)["condition"] == "up"
    finally:
        stranger.detach()


def test_table_deleted_by_someone_else_shows_in_status(operator: Any, get: Get) -> None:
    operator.up()
    assert EDGE.popen(["nft", "delete", "table", "inet", "zs_prefilter"]).wait(timeout=10) == 0
    assert operator.layer("tables", code=1) == {
        "name": "tables",
        "condition": "down",
        "detail": "table deleted by someone else",
    }
    assert get()[0] == 200


def test_port_that_someone_else_serves_is_refused(operator: Any) -> None:
    lab = Lab.create(kept=True)
    with lab.edge.socket() as other:
        other.bind(("0.0.0.0", 443))
        other.listen()
        lab.leave()
        refusal = operator.up(code=2)
    assert "something else listens on 127.0.0.1 port 443" in refusal


def test_down_leaves_the_lab_of_a_living_process_alone(operator: Any, lab: Lab) -> None:
    child = lab.edge.popen([sys.executable, "-c", "import time; time.sleep(60)"])
    printed = operator.run("down")
    assert f"the lab is in use by process {os.getpid()}" in printed
    assert child.poll() is None
    assert "the lab is in use by" in operator.up(code=2)
    assert child.poll() is None


@pytest.fixture
def cable() -> Iterator[str]:
    """A veth pair of the machine's own, up, with no address and nobody at its other end."""

    def lay() -> None:
        with IPRoute() as route:
            route.link("add", kind="veth", ifname="zs-host0", peer={"ifname": "zs-host1"})
            for name in ("zs-host0", "zs-host1"):
                route.link("set", index=route.link_lookup(ifname=name)[0], state="up")

    def cut() -> None:
        with IPRoute() as route:
            for index in route.link_lookup(ifname="zs-host0"):
                route.link("del", index=index)

    try:
        in_thread(lay)
        yield "zs-host0"
    finally:
        in_thread(cut)


def test_up_on_a_real_interface_serves_and_goes_without_a_trace(operator: Any, get: Get, cable: str) -> None:
    arguments = ["--iface", cable, "--https-port", "18443", "--site", str(operator.site)]
    operator.run("up", *arguments, "--state-dir", str(operator.state))
    assert get(source=None, address="127.0.0.1", port=18443)[2] == "<h1>first</h1>"
    assert "XDP on zs-host0" in operator.layer("filter")["detail"]
    shown = json.loads(subprocess.run(["ip", "-j", "link", "show", cable], capture_output=True, check=True).stdout)
    assert "xdp" in shown[0]
    operator.run("down")
    shown = json.loads(subprocess.run(["ip", "-j", "link", "show", cable], capture_output=True, check=True).stdout)
    assert "xdp" not in shown[0]


def test_unprivileged_user_is_told_to_use_sudo() -> None:
    # The clone may be in a home that only its owner can enter, so this user may read everything, and nothing else.
    reading = "-all,+dac_read_search"
    user = ["setpriv", "--reuid=65534", "--clear-groups", f"--inh-caps={reading}", f"--ambient-caps={reading}"]
    command = [*user, sys.executable, "-P", "-m", "appliance", "up", "--lab"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (2, "zs-appliance: up needs root; sudo zs-appliance up\n")


def _unbuffered() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _wait_until(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
