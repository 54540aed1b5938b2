"""Files of the site as curl and a bare socket see them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from .conftest import RunningServer, Serve, closes, read_answer

BIG = os.urandom(1_000_003)
PAGE = b"<!doctype html><title>hello</title>\n"


def curl(server: RunningServer, path: str, *flags: str) -> subprocess.CompletedProcess[bytes]:
    argv = ["curl", "--silent", "--show-error", "--cacert", str(server.cert), "--max-time", "20"]
    return subprocess.run([*argv, *flags, server.https + path], capture_output=True, check=True, timeout=30)


@pytest.fixture
def server(serve: Serve) -> RunningServer:
    return serve(
        {
            "index.html": PAGE,
            "big.bin": BIG,
            "empty.txt": b"",
            "docs/index.html": "docs",
            "with space.txt": "space",
            ".zeroserve/notes.txt": "private",
        }
    )


def test_curl_gets_every_byte_of_a_large_file(server: RunningServer) -> None:
    assert hashlib.sha256(curl(server, "/big.bin").stdout).digest() == hashlib.sha256(BIG).digest()


def test_curl_gets_the_same_over_plain_http(server: RunningServer) -> None:
    argv = ["curl", "--silent", "--show-error", "--max-time", "20", server.http + "/big.bin"]
    assert subprocess.run(argv, capture_output=True, check=True, timeout=30).stdout == BIG


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/", b"200", PAGE),
        ("/index.html", b"200", PAGE),
        ("/docs/", b"200", b"docs"),
        ("/empty.txt", b"200", b""),
        ("/with%20space.txt", b"200", b"space"),
        ("/%69ndex.html", b"200", PAGE),
        ("/missing", b"404", b"404 Not Found\n"),
        ("/.zeroserve/notes.txt", b"404", b"404 Not Found\n"),
        ("/docs/../.zeroserve/notes.txt", b"404", b"404 Not Found\n"),
        ("/%2ezeroserve/notes.txt", b"404", b"404 Not Found\n"),
    ],
)
def test_paths(server: RunningServer, path: str, status: bytes, body: bytes) -> None:
    result = curl(server, path, "--path-as-is", "--write-out", "|%{http_code}")
    assert result.stdout == body + b"|" + status


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/docs/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"])
def test_no_path_leaves_the_archive(server: RunningServer, path: str) -> None:
    result = curl(server, path, "--path-as-is", "--write-out", "|%{http_code}")
    assert result.stdout.rpartition(b"|")[2] in (b"400", b"404")
    assert b"root:" not in result.stdout


def test_a_folder_without_slash_redirects_to_one_with(server: RunningServer) -> None:
    result = curl(server, "/docs?a=b", "--write-out", "%{http_code} %{redirect_url}", "--output", "/dev/null")
    assert result.stdout.split() == [b"301", f"{server.https}/docs/?a=b".encode()]


def test_an_etag_that_is_still_good_saves_the_body(server: RunningServer, tmp_path: Path) -> None:
    etag = tmp_path / "etag"
    curl(server, "/big.bin", "--etag-save", str(etag), "--output", "/dev/null")
    result = curl(server, "/big.bin", "--etag-compare", str(etag), "--write-out", "%{http_code} %{size_download}")
    assert result.stdout == b"304 0"


@pytest.mark.parametrize(
    ("flag", "status", "body"),
    [
        ("0-0", b"206", BIG[:1]),
        ("1000-70000", b"206", BIG[1000:70001]),
        ("-5", b"206", BIG[-5:]),
        ("999999-", b"206", BIG[999_999:]),
        ("999999-99999999", b"206", BIG[999_999:]),
    ],
)
def test_ranges(server: RunningServer, flag: str, status: bytes, body: bytes) -> None:
    result = curl(server, "/big.bin", "--range", flag, "--write-out", "|%{http_code}")
    assert result.stdout == body + b"|" + status


def test_a_range_behind_the_end_is_refused_with_the_length(server: RunningServer) -> None:
    connection = server.connect_tls()
    connection.sendall(b"GET /big.bin HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1000003-\r\n\r\n")
    answer = read_answer(connection)
    assert (answer.status, answer.headers["content-range"]) == (416, "bytes */1000003")


def test_head_has_the_fields_of_get_and_no_body(server: RunningServer) -> None:
    connection = server.connect_tls()
    rest = bytearray()
    connection.sendall(
        b"HEAD /big.bin HTTP/1.1\r\nHost: localhost\r\n\r\nGET /big.bin HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    head = read_answer(connection, is_head=True, rest=rest)
    got = read_answer(connection, rest=rest)
    for answer in (head, got):
        answer.headers.pop("date")
    assert head.headers == got.headers
    assert got.body == BIG


def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    connection = server.connect_tls()
    paths = ["/", "/big.bin", "/missing", "/docs/", "/empty.txt"] * 20
    connection.sendall("".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n" for path in paths).encode())
    expected = {"/": PAGE, "/big.bin": BIG, "/missing": b"404 Not Found\n", "/docs/": b"docs", "/empty.txt": b""}
    rest = bytearray()
    for path in paths:
        assert read_answer(connection, rest=rest).body == expected[path]
    assert not rest


def test_a_request_that_arrives_byte_by_byte_is_answered(server: RunningServer) -> None:
    connection = server.connect()
    for byte in b"GET /docs/ HTTP/1.1\r\nHost: localhost\r\n\r\n":
        connection.sendall(bytes([byte]))
    assert read_answer(connection).body == b"docs"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000,
    ],
)
def test_the_body_of_a_refused_request_does_not_become_the_next_request(server: RunningServer, body: bytes) -> None:
    connection = server.connect()
    connection.sendall(
        b"POST / HTTP/1.1\r\nHost: localhost\r\n" + body + b"GET /docs/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    rest = bytearray()
    refused = read_answer(connection, rest=rest)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert read_answer(connection, rest=rest).body == b"docs"


def test_a_client_that_waits_for_100_continue_is_answered_at_once(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
    answer = read_answer(connection)
    assert (answer.status, answer.headers["connection"]) == (405, "close")
    assert closes(connection)


def test_an_upload_without_end_is_cut_off_after_the_answer(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 200_000)
    answer = read_answer(connection)
    assert (answer.status, answer.headers["connection"]) == (405, "close")
    assert closes(connection)


def test_http_1_0_closes_unless_asked_to_stay(server: RunningServer) -> None:
    connection = server.connect()
    connection.sendall(b"GET /docs/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    stayed = read_answer(connection)
    assert stayed.headers["connection"] == "keep-alive"
    connection.sendall(b"GET /docs/ HTTP/1.0\r\n\r\n")
    assert read_answer(connection).headers["connection"] == "close"
    assert closes(connection)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\nHost: localhost\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 17_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(
    server: RunningServer, request_bytes: bytes, status: int
) -> None:
    connection = server.connect()
    connection.sendall(request_bytes + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = read_answer(connection)
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert closes(connection)
