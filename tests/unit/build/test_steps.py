"""A step of the build that fails says in one line what to do: the failures are those of the real apt, pip and cargo,
cut off from the network or given a full disk.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SAY = ROOT / "tools/say.sh"
CUT_OFF = ("unshare", "--net")


def failed_step(cwd: Path, *command: str) -> list[str]:
    """Run `command` as a step below `cwd` and return the lines that it said."""
    script = f'set -euo pipefail; source {SAY}; step trying step.log "$@"'
    finished = subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 2, finished
    return finished.stderr.splitlines()


def test_step_that_works_says_so_and_keeps_its_output(tmp_path: Path) -> None:
    script = f"set -euo pipefail; source {SAY}; step greeting step.log echo hello"
    finished = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert finished.stderr.splitlines() == ["greeting ...", "greeting: done in 0 s"]
    assert (tmp_path / "target/log/step.log").read_text() == "hello\n"


def test_pip_without_network_is_explained(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--retries=1", "--no-cache-dir", "--no-deps", "uvloop==0.21.0"]
    began, said = failed_step(tmp_path, *CUT_OFF, *pip)
    assert began == "trying ..."
    assert "no network" in said and "target/log/step.log" in said


def test_cargo_without_network_is_explained(tmp_path: Path) -> None:
    cargo = subprocess.run([ROOT / "tools/toolchain.sh"], capture_output=True, text=True, check=True).stdout.strip()
    fetch = f"CARGO_HOME={tmp_path} CARGO_NET_RETRY=0 {cargo}/cargo fetch --locked --manifest-path {ROOT}/Cargo.toml"
    *_, said = failed_step(tmp_path, *CUT_OFF, "sh", "-c", fetch)
    assert "no network" in said


def test_apt_without_network_is_explained(tmp_path: Path) -> None:
    if subprocess.run(["dpkg-query", "-W", "hello"], capture_output=True).returncode == 0:
        pytest.skip("Debian's package hello is installed, so there is nothing to fetch")
    packages = tmp_path / "packages.txt"
    packages.write_text("run hello # small, and nobody's dependency\n")
    finished = subprocess.run(
        [*CUT_OFF, "env", f"ZS_PACKAGE_LIST={packages}", str(ROOT / "tools/packages.sh"), "run"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert finished.returncode == 2
    assert "no network" in finished.stderr.splitlines()[-1]


def test_full_disk_is_explained(tmp_path: Path) -> None:
    fill = f"mount -t tmpfs -o size=1m none {tmp_path} && dd if=/dev/zero of={tmp_path}/file bs=2M count=1"
    folder = tmp_path.parent
    *_, said = failed_step(folder, "unshare", "--mount", "sh", "-c", fill)
    assert "no space left on the disk" in said


def test_other_failures_quote_the_error(tmp_path: Path) -> None:
    *_, said = failed_step(tmp_path, "sh", "-c", "echo 'error: expected a semicolon' >&2; exit 1")
    assert "error: expected a semicolon" in said and "target/log/step.log" in said


def test_packages_that_are_there_need_neither_root_nor_network(tmp_path: Path) -> None:
    packages = tmp_path / "packages.txt"
    packages.write_text("# comment\nrun bash # a shell\ntest no-such-package\n")
    command = [
        "unshare",
        "--user",
        "--net",
        "env",
        f"ZS_PACKAGE_LIST={packages}",
        str(ROOT / "tools/packages.sh"),
        "run",
    ]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")
