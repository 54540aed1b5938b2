"""What every test on a real kernel shares: being root, a lab, and the proof that nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.lab import Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs root: makes network namespaces"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Client and edge, joined; removed after the test."""
    with Lab.create(purpose="test") as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Compares what the project can leave in the system before and after each test.

    Only what carries the project's prefix is looked at, since other programs may come and go meanwhile.
    """
    before = _traces()
    yield
    # The kernel ends namespaces and frees programs a moment after the last reference to them is dropped.
    deadline = time.monotonic() + 3
    while (left := _traces() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left, f"left behind: {sorted(left)}"


def _traces() -> set[str]:
    return _namespaces() | _links() | _tables() | _programs() | _processes() | _pins()


def _namespaces() -> set[str]:
    names = Path("/run/netns")
    return {f"namespace {entry.name}" for entry in names.glob("zs*")} if names.exists() else set()


def _links() -> set[str]:
    return {f"link {name}" for name in os.listdir("/sys/class/net") if name.startswith("zs")}


def _tables() -> set[str]:
    if shutil.which("nft") is None:
        return set()
    listing = subprocess.run(["nft", "-j", "list", "tables"], capture_output=True, text=True, check=True).stdout
    tables = (entry["table"] for entry in json.loads(listing)["nftables"] if "table" in entry)
    return {f"table {table['family']} {table['name']}" for table in tables if table["name"].startswith("zs_")}


def _programs() -> set[str]:
    """XDP programs on the machine's own links, and live BPF links of kernel type XDP where bpftool can list them."""
    shown = subprocess.run(["ip", "-j", "link"], capture_output=True, text=True, check=True).stdout
    found = {f"xdp on {link['ifname']}" for link in json.loads(shown) if "xdp" in link}
    if (bpftool := shutil.which("bpftool")) is not None:
        listing = subprocess.run([bpftool, "-j", "link", "show"], capture_output=True, text=True, check=False).stdout
        found |= {f"bpf link {link['id']}" for link in json.loads(listing or "[]") if link.get("type") == "xdp"}
    return found


def _processes() -> set[str]:
    """Processes started in a lab namespace, and servers and daemons of the project, whoever is their parent.

    Only those of this clone: another one may be tested on the same machine meanwhile.
    """
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            process = Path("/proc", entry)
            try:
                argv = process.joinpath("cmdline").read_bytes().split(b"\0")
                marked = b"ZS_NAMESPACE=" in process.joinpath("environ").read_bytes()
                started_here = process.joinpath("cwd").readlink().is_relative_to(Path.cwd())
            except OSError:
                continue
            by_our_python = os.path.dirname(argv[0]) == os.fsencode(Path(sys.prefix, "bin"))
            served = by_our_python and not {b"zeroserve", b"appliance.control"}.isdisjoint(argv)
            if served or (marked and (by_our_python or started_here)):
                found.add(f"process {entry} {b' '.join(argv).decode(errors='replace').strip()}")
    return found


def _pins() -> set[str]:
    pins = Path("/sys/fs/bpf/zs")
    return {f"pin {path}" for path in pins.rglob("*")} | ({f"pin {pins}"} if pins.exists() else set())
