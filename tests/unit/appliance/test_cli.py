"""Bad input to the command: one line that says what and what to do, and exit code 2."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from appliance.display import show_rows, where

COMMAND = [sys.executable, "-P", "-m", "appliance"]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--iface", "zs-none0"), "--iface zs-none0: no such interface; see: ip link"),
        (("--lab", "--https-port", "0"), "--https-port 0 is not a port; use 1 to 65535"),
        (("--lab", "--site", "/absent"), "--site /absent: No such file or directory; check the path"),
        (("--lab", "--site", "/usr"), "--site /usr is a directory; pack it first: zeroserve --pack /usr > site.tar"),
        (("--lab", "--cert", "/etc/hostname"), "--cert without --key; give both or neither"),
    ],
)
def test_bad_flag_is_one_line_and_exit_code_2(arguments: tuple[str, ...], line: str) -> None:
    done = _run("up", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"zs-appliance: {line}\n")


def test_policy_error_names_file_and_line(tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.write_text("# fine\ndrop udp port 4000\ndrop udp port 70000\n")
    done = _run("up", "--lab", "--policy", str(policy))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"zs-appliance: {policy}:3: ")


def test_lab_and_interface_exclude_each_other() -> None:
    done = _run("up", "--lab", "--iface", "lo")
    assert done.returncode == 2
    assert "not allowed with" in done.stderr


def test_doctor_speaks_json() -> None:
    done = _run("doctor", "--iface", "lo", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert set(checks["native XDP"]) == {"name", "outcome", "detail", "remedy"}
    assert done.returncode == int(any(check["outcome"] == "fail" for check in checks.values()))


def test_rows_are_plain_off_a_terminal_and_a_table_on_one() -> None:
    rows = [("filter", "up", "native XDP on [eth0]"), ("tables", "degraded", "x" * 200)]
    plain = io.StringIO()
    show_rows(Console(file=plain), ("layer", "state", ""), rows)
    assert plain.getvalue() == f"filter\tup\tnative XDP on [eth0]\ntables\tdegraded\t{'x' * 200}\n"
    shown = io.StringIO()
    show_rows(Console(file=shown, force_terminal=True, width=80, color_system="standard"), ("layer", "state", ""), rows)
    assert "\x1b[32mup" in shown.getvalue() and "\x1b[33mdegraded" in shown.getvalue()
    assert "[eth0]" in shown.getvalue()


def test_where_tells_how_to_get_there_in_the_lab() -> None:
    status = {"urls": ["https://10.77.0.2/"], "settings": {"lab": True}}
    assert where(status) == "up at https://10.77.0.2/ (try: ip netns exec zs-client curl -k https://10.77.0.2/)"
    status["settings"] = {"lab": False}
    assert where(status) == "up at https://10.77.0.2/"
