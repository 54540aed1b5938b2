"""A real server process for each test that wants one, on loopback ports that the system chooses."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from zeroserve.certificates import self_signed

COMMAND = [sys.executable, "-P", "-m", "zeroserve"]
START_DEADLINE_S = 30.0


@dataclass
class RunningServer:
    """A `zeroserve` process that has said that it serves."""

    process: subprocess.Popen[bytes]
    log_path: Path
    cert: Path
    key: Path
    site: Path
    https_port: int = 0
    http_port: int = 0
    sockets: list[socket.socket] = field(default_factory=list)

    @property
    def https(self) -> str:
        return f"https://127.0.0.1:{self.https_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for_log(self, text: str, *, count: int = 1, deadline_s: float = 15.0) -> None:
        """Wait until the log has `text` at least `count` times."""
        deadline = time.monotonic() + deadline_s
        while self.log().count(text) < count:
            assert time.monotonic() < deadline, f"{text!r} is not in the log:\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def connect(self) -> socket.socket:
        """A TCP connection to the plain port."""
        connection = socket.create_connection(("127.0.0.1", self.http_port), timeout=20)
        self.sockets.append(connection)
        return connection

    def connect_tls(self, **context_options: object) -> ssl.SSLSocket:
        """A TLS connection that trusts the server's own certificate and nothing else."""
        context = ssl.create_default_context(cafile=str(self.cert))
        for name, value in context_options.items():
            setattr(context, name, value)
        raw = socket.create_connection(("127.0.0.1", self.https_port), timeout=20)
        wrapped = context.wrap_socket(raw, server_hostname="localhost")
        self.sockets.append(wrapped)
        return wrapped


Serve = Callable[..., RunningServer]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and 127.0.0.1, and its key, as files."""
    folder = tmp_path_factory.mktemp("certificate")
    pair = self_signed(["localhost", "127.0.0.1"])
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(pair.cert_pem)
    key.write_bytes(pair.key_pem)
    return cert, key


def pack(folder: Path, site: Path) -> None:
    """Pack with the command itself; written beside and renamed, as a deployment would."""
    fresh = site.with_suffix(".new")
    with fresh.open("wb") as output:
        subprocess.run([*COMMAND, "--pack", str(folder)], stdout=output, check=True, timeout=120)
    os.replace(fresh, site)


def write_tree(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def serve(tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[Serve]:
    """A function that packs files and serves them: `serve({"index.html": "..."}, "--workers", "2")`."""
    cert, key = certificate
    with ExitStack() as undo:

        def start(files: dict[str, str | bytes], *flags: str) -> RunningServer:
            folder = tmp_path / "public"
            site = tmp_path / "site.tar"
            write_tree(folder, files)
            pack(folder, site)
            argv = [*COMMAND, "--addr", "127.0.0.1:0", "--tls-addr", "127.0.0.1:0"]
            argv += ["--cert", str(cert), "--key", str(key), "--workers", "1", *flags, str(site)]
            log_path = tmp_path / "server.log"
            with log_path.open("wb") as log:
                process = subprocess.Popen(argv, stderr=log, stdout=log, cwd=tmp_path)
            server = RunningServer(process, log_path, cert, key, site)
            undo.callback(_stop, server)
            _await_ports(server)
            return server

        yield start


def _await_ports(server: RunningServer) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while not (ready := re.search(r"serving .*", server.log())):
        assert server.process.poll() is None, f"the server ended:\n{server.log()}"
        assert time.monotonic() < deadline, f"the server did not start:\n{server.log()}"
        time.sleep(0.02)
    for scheme, port in re.findall(r"(https?)://127\.0\.0\.1:(\d+)", ready.group()):
        setattr(server, f"{scheme}_port", int(port))


def _stop(server: RunningServer) -> None:
    for connection in server.sockets:
        connection.close()
    if server.process.poll() is None:
        server.process.kill()
    server.process.wait(timeout=20)


@dataclass(frozen=True)
class Answer:
    """One HTTP/1.1 response, read off a socket."""

    status: int
    headers: dict[str, str]
    body: bytes


def read_answer(connection: socket.socket, *, is_head: bool = False, rest: bytearray | None = None) -> Answer:
    """Read exactly one response. `rest` carries bytes that belong to the next one from call to call."""
    data = rest if rest is not None else bytearray()
    while b"\r\n\r\n" not in data:
        _read_into(connection, data)
    head, _, _ = bytes(data).partition(b"\r\n\r\n")
    del data[: len(head) + 4]
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    status = int(lines[0].split(" ")[1])
    length = 0 if is_head or status in (204, 304) else int(headers.get("content-length", "0"))
    while len(data) < length:
        _read_into(connection, data)
    body = bytes(data[:length])
    del data[:length]
    return Answer(status, headers, body)


def _read_into(connection: socket.socket, data: bytearray) -> None:
    chunk = connection.recv(65536)
    assert chunk, f"the server closed in the middle of a response: {bytes(data)!r}"
    data += chunk


def closes(connection: socket.socket) -> bool:
    """Whether the server ends the connection without another byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
