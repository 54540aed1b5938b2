"""What is installed is what was locked, and the wheel carries what it must: the lock files, the check of the wheel, and
the list of what a run left in the system.
"""

import itertools
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from check_wheel import complaints, expected_names

ROOT = Path(__file__).parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock")


def locked(name: str) -> dict[str, list[Requirement]]:
    """Return the pinned requirements of a lock file by project; one may be pinned differently per Python."""
    pins: dict[str, list[Requirement]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith(("#", " ")):
            pin = Requirement(line.rstrip("\\").strip())
            pins.setdefault(pin.name.lower(), []).append(pin)
    return pins


def wanted(lock: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = project["project"]["dependencies"] if lock == LOCKS[0] else project["dependency-groups"]["dev"]
    return [Requirement(line) for line in listed]


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_satisfies_what_the_project_asks_for(lock: str) -> None:
    pins = locked(lock)
    for requirement in wanted(lock):
        assert requirement.name.lower() in pins, f"{requirement} is not in {lock}; run make lock"
        for pin in pins[requirement.name.lower()]:
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert requirement.specifier.contains(exact.version), f"{lock} has {pin} for {requirement}; run make lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_hashes_every_file_and_names_no_index(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    for line, following in itertools.pairwise(lines):
        if line and not line.startswith(("#", " ")):
            assert following.strip().startswith("--hash=sha256:"), line
    assert not [line for line in lines if "://" in line or "index-url" in line]


def test_wheel_without_engine_or_with_sources_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "zeroserve-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in expected_names(ROOT):
            if name != "zeroserve/_engine.abi3.so":
                archive.writestr(name, "")
        archive.writestr("zeroserve/engine/src/lib.rs", "")
        archive.writestr("xdp/__pycache__/policy.cpython-311.pyc", "")
        archive.writestr("tests/unit/test_policy.py", "")
        archive.writestr("zeroserve-0.dist-info/METADATA", "")
    assert complaints(wheel, ROOT) == [
        "missing: zeroserve/_engine.abi3.so",
        "unwanted: tests/unit/test_policy.py",
        "unwanted: xdp/__pycache__/policy.cpython-311.pyc",
        "unwanted: zeroserve/engine/src/lib.rs",
    ]


def test_product_under_test_is_the_wheel_and_not_the_source_tree() -> None:
    command = [sys.executable, "-P", "-c", "import zeroserve._engine as engine; print(engine.__file__)"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if finished.returncode:
        pytest.skip("the wheel is not installed in this environment")
    assert "site-packages" in finished.stdout


def test_leftover_namespace_is_reported() -> None:
    name = "zs-leftover-test"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        reported = subprocess.run([ROOT / "tools/leftovers.sh"], capture_output=True, text=True, check=True).stdout
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    assert f"namespace {name}" in reported.splitlines()
