"""make refuses a machine that cannot do it, in one line, before anything is tried: each lack is made for real, with
namespaces, capabilities and mounts that end with the command.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PREFLIGHT = str(ROOT / "tools/preflight.sh")


def refusal(command: Sequence[str], *, cwd: Path = ROOT, path: Path | None = None) -> str:
    """Run `command`, which must be refused with exit code 2 and one line, and return the line."""
    environment = {"PATH": f"{path}:/usr/sbin:/usr/bin" if path else "/usr/sbin:/usr/bin", "HOME": "/nonexistent"}
    finished = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=30)
    assert finished.returncode == 2, finished
    assert finished.stdout == ""
    lines = finished.stderr.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def in_mounts_of_its_own(mount: str, command: str) -> list[str]:
    """Return the argv that runs `command` where `mount` holds for it alone."""
    return ["unshare", "--mount", "sh", "-c", f"{mount} && exec {command}"]


def test_user_who_is_not_root_is_told_to_use_sudo() -> None:
    line = refusal(["unshare", "--user", "--map-user=1000", "--map-group=1000", PREFLIGHT, "demo"])
    assert line.endswith("run: sudo make demo")


def test_32_bit_kernel_is_refused() -> None:
    assert "this machine is i686" in refusal(["setarch", "i686", PREFLIGHT, "build"])


def test_32_bit_user_space_under_a_64_bit_kernel_is_refused(tmp_path: Path) -> None:
    # A stand-in for dpkg: the real one cannot be of another architecture than the machine it runs on.
    dpkg = tmp_path / "dpkg"
    dpkg.write_text("#!/bin/sh\necho armhf\n")
    dpkg.chmod(0o755)
    assert "the user space is armhf" in refusal([PREFLIGHT, "build"], path=tmp_path)


def test_system_without_apt_is_refused() -> None:
    apt = shutil.which("apt-get")
    assert apt is not None
    line = refusal(in_mounts_of_its_own(f"mount --bind /dev/null {apt}", f"{PREFLIGHT} build"))
    assert "no apt-get" in line


def test_full_disk_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=8m none {tmp_path} && cd {tmp_path}"
    line = refusal(in_mounts_of_its_own(mount, f"{PREFLIGHT} build"))
    assert "has 8 MB free" in line


def test_kernel_without_bpf_is_refused() -> None:
    line = refusal(in_mounts_of_its_own("mount -t tmpfs none /proc/sys/kernel", f"{PREFLIGHT} test"))
    assert "no BPF" in line


@pytest.mark.skipif(
    Path("/proc/sys/kernel/unprivileged_bpf_disabled").read_text().strip() == "0",
    reason="this kernel lets processes without capabilities use BPF",
)
def test_container_without_capabilities_is_refused() -> None:
    line = refusal(["setpriv", "--bounding-set=-all", "--inh-caps=-all", PREFLIGHT, "demo"])
    assert "refuses BPF" in line


def test_make_itself_says_it_in_one_line() -> None:
    # -n, so that nothing is built should the refusal fail to come.
    assert "this machine is i686" in refusal(["setarch", "i686", "make", "-n", "demo"])


def test_goals_that_build_nothing_are_never_refused() -> None:
    finished = subprocess.run(
        ["setarch", "i686", "make", "-n", "clean", "help"], cwd=ROOT, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
