"""The doctor finds on the real machine what is there, and says what to do about what is not."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance import doctor
from appliance.doctor import Check, Outcome, examine

ASK = [sys.executable, "-P", "-c"]


def _find(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_every_finding_that_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    checks = examine("lo", tmp_path)
    assert [check.name for check in checks] == [
        "root",
        "architecture",
        "kernel",
        "BTF",
        "bpffs",
        "libbpf",
        "filter",
        "nftables",
        "io_uring",
        "clang",
        "disk",
        "native XDP",
    ]
    for check in checks:
        assert check.detail
        assert (check.remedy == "") == (check.outcome is Outcome.OK), check


def test_machine_is_reported_as_it_is(tmp_path: Path) -> None:
    checks = examine("lo", tmp_path)
    assert _find(checks, "kernel").detail == platform.release()
    assert (_find(checks, "root").outcome is Outcome.OK) == (os.geteuid() == 0)
    assert (_find(checks, "clang").outcome is Outcome.OK) == (shutil.which("clang") is not None)


def test_loopback_has_no_native_xdp(tmp_path: Path) -> None:
    check = _find(examine("lo", tmp_path), "native XDP")
    assert check.outcome is Outcome.WARN
    assert "lo" in check.detail


def test_interface_that_is_not_there_fails(tmp_path: Path) -> None:
    check = _find(examine("zs-none0", tmp_path), "native XDP")
    assert (check.outcome, check.detail) == (Outcome.FAIL, "no interface zs-none0")


def test_little_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.disk(tmp_path / "not" / "yet").outcome is Outcome.OK
    monkeypatch.setattr(doctor, "LEAST_FREE_MIB", 1 << 40)
    assert doctor.disk(tmp_path).outcome is Outcome.WARN


def test_32_bit_machine_fails() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("setarch i686 exists on x86-64 only")
    program = "from appliance.doctor import architecture as a; print(a().outcome.value, a().detail)"
    done = subprocess.run(["setarch", "i686", *ASK, program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.startswith("fail i686")


def test_io_uring_that_cannot_be_set_up_fails() -> None:
    # The sysctl that forbids it holds for the whole machine; a process without a free descriptor gets no ring either.
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); "
    program = "from appliance import doctor; " + limited + "print(doctor.io_uring().outcome.value)"
    done = subprocess.run([*ASK, program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "fail\n"


def test_no_root_no_filter() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give it up")
    program = (
        "import os; from appliance import doctor; os.setuid(65534); "
        "print([(c.name, c.outcome.value) for c in (doctor.root(), doctor.bpf_program())])"
    )
    done = subprocess.run([*ASK, program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "[('root', 'fail'), ('filter', 'fail')]\n"
