"""What is run, where it is reached, and what it said last."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from pathlib import Path

import pytest

from appliance.server import ServerPlan, ServerProcess, https_status, last_line
from appliance.settings import ApplianceError
from appliance.welcome import kept_certificate


def _plan(directory: Path, *addresses: str, site: str = "site.tar") -> ServerPlan:
    certificate, key = kept_certificate(directory)
    return ServerPlan(directory / site, certificate, key, addresses, directory / "logs/server.log", workers=1)


def test_command_line_is_absolute_and_shadowed_by_no_working_directory(tmp_path: Path) -> None:
    argv = _plan(tmp_path, "0.0.0.0:443", "[::]:443").argv()
    assert argv[:4] == [sys.executable, "-P", "-m", "zeroserve"]
    assert argv[-1] == str(tmp_path / "site.tar")
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--tls-addr"] == ["0.0.0.0:443", "[::]:443"]


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("0.0.0.0:443", ("127.0.0.1", 443)),
        ("[::]:8443", ("::1", 8443)),
        ("192.0.2.1:1", ("192.0.2.1", 1)),
        ("[2001:db8::1]:2", ("2001:db8::1", 2)),
    ],
)
def test_wildcard_address_is_tried_on_loopback(tmp_path: Path, address: str, reached: tuple[str, int]) -> None:
    assert _plan(tmp_path, address).endpoint() == reached


def test_last_line_is_the_last_that_says_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == "it wrote nothing"
    log.write_text("")
    assert last_line(log) == "it wrote nothing"
    log.write_text("x" * 10_000 + "\nzeroserve: first\nzeroserve: a tarball is empty\n\n")
    assert last_line(log) == "a tarball is empty"
    log.write_bytes(b"half a ch\xc3")
    assert last_line(log) == "half a ch\ufffd"


class _OneAnswer:
    """A TLS listener on loopback that says `answer` to whoever connects, once."""

    def __init__(self, certificate: Path, key: Path, answer: bytes) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> _OneAnswer:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.join(5)
        self._listener.close()

    def _serve(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.settimeout(5)
        try:
            with self._context.wrap_socket(accepted, server_side=True) as connection:
                if connection.recv(1000):
                    connection.sendall(self._answer)
        except OSError:
            pass  # the other side may break off, which is what some tests want


def test_status_of_an_answer_is_returned(tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path)
    with _OneAnswer(certificate, key, b"HTTP/1.1 404 Not Found\r\n\r\n") as server:
        assert https_status("127.0.0.1", server.port, certificate) == 404


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 ", b""])
def test_what_is_no_http_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    certificate, key = kept_certificate(tmp_path)
    with _OneAnswer(certificate, key, answer) as server, pytest.raises(OSError):
        https_status("127.0.0.1", server.port, certificate)


def test_stranger_with_another_certificate_is_not_taken_for_our_server(tmp_path: Path) -> None:
    ours, _ = kept_certificate(tmp_path / "ours")
    with (
        _OneAnswer(*kept_certificate(tmp_path / "theirs"), b"HTTP/1.1 200 OK\r\n\r\n") as server,
        pytest.raises(ConnectionRefusedError, match="another server than ours"),
    ):
        https_status("127.0.0.1", server.port, ours)


def test_port_in_use_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ApplianceError, match=f"something else listens on 127.0.0.1 port {port}"):
            ServerProcess.start(_plan(tmp_path, f"127.0.0.1:{port}"))
    assert not (tmp_path / "logs").exists()


def test_server_that_does_not_start_is_told_by_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(ApplianceError, match=r"the server did not start: .*absent\.tar"):
        ServerProcess.start(_plan(tmp_path, "127.0.0.1:18444", site="absent.tar"))
