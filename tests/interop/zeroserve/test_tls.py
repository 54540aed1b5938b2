"""TLS as OpenSSL, an implementation independent of the server's, sees it."""

from __future__ import annotations

import socket
import ssl
import subprocess

import pytest

from .conftest import RunningServer, Serve, closes, read_answer


@pytest.fixture
def server(serve: Serve) -> RunningServer:
    return serve({"index.html": "over TLS"})


def s_client(server: RunningServer, *flags: str) -> subprocess.CompletedProcess[bytes]:
    argv = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.https_port}", "-servername", "localhost"]
    argv += ["-CAfile", str(server.cert), "-verify_return_error", *flags]
    return subprocess.run(argv, input=b"", capture_output=True, timeout=30, check=False)


def test_openssl_verifies_and_speaks_tls_1_3(server: RunningServer) -> None:
    result = s_client(server)
    assert b"Verify return code: 0 (ok)" in result.stdout
    assert b"New, TLSv1.3, Cipher is TLS_" in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_1"])
def test_older_versions_are_refused_with_an_alert(server: RunningServer, version: str) -> None:
    # Security level 0: otherwise it is the client that refuses to offer the oldest.
    result = s_client(server, version, "-cipher", "ALL:@SECLEVEL=0")
    assert result.returncode != 0
    assert b"alert protocol version" in result.stderr


@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_every_suite_of_tls_1_3_works(server: RunningServer, suite: str) -> None:
    assert f"Cipher is {suite}".encode() in s_client(server, "-ciphersuites", suite).stdout


def test_alpn_gives_http_1_1_and_refuses_the_unknown(server: RunningServer) -> None:
    assert b"ALPN protocol: http/1.1" in s_client(server, "-alpn", "h5,http/1.1").stdout
    refused = s_client(server, "-alpn", "h5")
    assert refused.returncode != 0
    assert b"alert no application protocol" in refused.stderr


def test_a_session_ticket_resumes_without_the_certificate(server: RunningServer) -> None:
    context = ssl.create_default_context(cafile=str(server.cert))
    session = None
    for is_resumed in (False, True):
        raw = socket.create_connection(("127.0.0.1", server.https_port), timeout=20)
        with context.wrap_socket(raw, server_hostname="localhost", session=session) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_answer(connection).body == b"over TLS"
            assert connection.session_reused is is_resumed
            session = connection.session


def test_closing_says_so_in_tls_first(server: RunningServer) -> None:
    # Python raises SSLEOFError for an end without the closing alert unless told to suppress it.
    context = ssl.create_default_context(cafile=str(server.cert))
    raw = socket.create_connection(("127.0.0.1", server.https_port), timeout=20)
    with context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_answer(connection).body == b"over TLS"
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x00" * 600],
)
def test_what_is_no_client_hello_ends_that_connection_only(server: RunningServer, garbage: bytes) -> None:
    raw = socket.create_connection(("127.0.0.1", server.https_port), timeout=20)
    server.sockets.append(raw)
    raw.sendall(garbage)
    raw.shutdown(socket.SHUT_WR)
    while not closes(raw):
        pass
    connection = server.connect_tls()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert read_answer(connection).body == b"over TLS"


def test_a_key_that_is_not_the_certificates_is_refused_at_start(
    server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from zeroserve.certificates import self_signed

    from .conftest import COMMAND

    other = tmp_path_factory.mktemp("other") / "key.pem"
    other.write_bytes(self_signed(["localhost"]).key_pem)
    argv = [*COMMAND, "--tls-addr", "127.0.0.1:0", "--cert", str(server.cert), "--key", str(other), str(server.site)]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "the private key does not belong to the certificate" in result.stderr
