"""The appliance as an operator uses it: the real command, the real server, and a client in the lab."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.lab import CLIENT
from appliance.namespace import Namespace

COMMAND = [sys.executable, "-P", "-m", "appliance"]


def write_site(path: Path, text: str) -> Path:
    """A tarball with one page, replaced in one step as a deployment would."""
    unfinished = path.with_suffix(".new")
    with tarfile.open(unfinished, "w", format=tarfile.USTAR_FORMAT) as tar:
        page = tarfile.TarInfo("index.html")
        page.size = len(text.encode())
        tar.addfile(page, io.BytesIO(text.encode()))
    unfinished.replace(path)
    return path


def fetch(
    path: str = "/", *, source: Namespace | None = CLIENT, address: str = "10.77.0.2", port: int = 443
) -> tuple[int, dict[str, str], str]:
    """One HTTPS GET on a new connection: status, headers (lower case), body. The certificate is not judged here."""
    context = ssl._create_unverified_context()
    plain = socket.socket() if source is None else source.socket()
    plain.settimeout(5)
    with plain:
        plain.connect((address, port))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = response.read().decode()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


@dataclass
class Operator:
    """Somebody with a shell on the machine."""

    state: Path
    site: Path

    def run(self, *arguments: str, code: int | None = 0) -> str:
        """Run a command that is to end with `code` (None: any); what it printed (stderr when it refused)."""
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=90, check=False)
        assert code in (None, done.returncode), f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if code == 2 else done.stdout

    def up_arguments(self, *more: str) -> list[str]:
        return ["up", "--lab", "--site", str(self.site), "--state-dir", str(self.state), *more]

    def up(self, *more: str, code: int = 0) -> str:
        """`up --lab` with this operator's site and state directory."""
        return self.run(*self.up_arguments(*more), code=code)

    def exit_code(self) -> int:
        """Of `status`, now."""
        return subprocess.run([*COMMAND, "status"], capture_output=True, timeout=90, check=False).returncode

    def status(self, code: int | None = 0) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run("status", "--json", code=code))
        return answer

    def layer(self, name: str, code: int | None = 0) -> dict[str, str]:
        """The state of one layer as `status` tells it."""
        found: dict[str, str] = next(layer for layer in self.status(code)["layers"] if layer["name"] == name)
        return found


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """An operator on a machine where nothing is up, before and after."""
    yield Operator(tmp_path / "state", write_site(tmp_path / "site.tar", "<h1>first</h1>"))
    subprocess.run([*COMMAND, "down"], capture_output=True, timeout=90, check=True)


@pytest.fixture
def get() -> Callable[..., tuple[int, dict[str, str], str]]:
    return fetch


@pytest.fixture
def replace_site() -> Callable[[Path, str], Path]:
    return write_site


@pytest.fixture
def is_listening() -> Callable[[Namespace, str, int], bool]:
    """Whether a connection from a namespace to an address and port is accepted, within a second."""

    def ask(source: Namespace, address: str, port: int) -> bool:
        with source.socket() as connection:
            connection.settimeout(1)
            return connection.connect_ex((address, port)) == 0

    return ask
