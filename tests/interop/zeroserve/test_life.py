"""Reload, drain, time limits: the life of the process while clients are there."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

from .conftest import COMMAND, RunningServer, Serve, closes, pack, read_answer, write_tree

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
# More than the socket buffers of both ends hold, so that a response that nobody reads stays in flight.
HUGE = os.urandom(1 << 20) * 32


class Client(threading.Thread):
    """Asks for `/` again and again, over kept connections and new ones in turn, until told to stop."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__()
        self.server = server
        self.bodies: list[bytes] = []
        self.failure: Exception | None = None
        self.must_stop = threading.Event()

    def run(self) -> None:
        try:
            while not self.must_stop.is_set():
                connection = self.server.connect_tls()
                with connection:
                    for _ in range(20):
                        connection.sendall(GET)
                        answer = read_answer(connection)
                        assert answer.status == 200
                        self.bodies.append(answer.body)
        except Exception as error:
            self.failure = error


def test_reloads_swap_the_site_and_no_request_fails(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "generation 0"}, "--workers", "2")
    client = Client(server)
    client.start()
    for number in range(1, 11):
        write_tree(tmp_path / "public", {"index.html": f"generation {number}"})
        pack(tmp_path / "public", server.site)
        server.signal(signal.SIGHUP)
        server.wait_for_log("zeroserve: reloaded", count=number)
    time.sleep(0.2)
    client.must_stop.set()
    client.join(timeout=30)
    assert client.failure is None
    assert client.bodies[0] == b"generation 0"
    assert client.bodies[-1] == b"generation 10"
    numbers = [int(body.rpartition(b" ")[2]) for body in client.bodies]
    # Each worker swaps for itself, so a client on two of them may see one generation in two orders, but never
    # one that has been replaced for long.
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(numbers))


def test_a_bad_tarball_changes_nothing_and_is_logged(serve: Serve) -> None:
    server = serve({"index.html": "good"})
    kept = server.connect_tls()
    for number, bad in enumerate([b"", b"\x1f\x8b\x08" + b"\0" * 600, b"not a tarball" * 100], start=1):
        fresh = server.site.with_suffix(".bad")
        fresh.write_bytes(bad)
        os.replace(fresh, server.site)
        server.signal(signal.SIGHUP)
        server.wait_for_log("reload refused, the old site stays", count=number)
        for connection in (kept, server.connect_tls()):
            connection.sendall(GET)
            assert read_answer(connection).body == b"good"
    server.site.unlink()
    server.signal(signal.SIGHUP)
    server.wait_for_log("reload refused, the old site stays", count=4)
    kept.sendall(GET)
    assert read_answer(kept).body == b"good"


def test_a_response_in_flight_ends_on_the_generation_it_began_with(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "old", "huge.bin": HUGE})
    slow = server.connect_tls()
    slow.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
    time.sleep(0.3)
    write_tree(tmp_path / "public", {"index.html": "new", "huge.bin": b"short"})
    pack(tmp_path / "public", server.site)
    server.signal(signal.SIGHUP)
    server.wait_for_log("zeroserve: reloaded")
    rest = bytearray()
    assert read_answer(slow, rest=rest).body == HUGE
    assert read_answer(slow, rest=rest).body == b"new"


def test_sigterm_finishes_what_is_in_flight_then_exits_0(serve: Serve) -> None:
    server = serve({"index.html": "x", "huge.bin": HUGE})
    idle = server.connect_tls()
    idle.sendall(GET)
    read_answer(idle)
    busy = server.connect_tls()
    busy.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    server.signal(signal.SIGTERM)
    server.wait_for_log("stopping")
    assert closes(idle)
    assert server.process.poll() is None
    assert read_answer(busy).body == HUGE
    assert closes(busy)
    assert server.process.wait(timeout=20) == 0
    assert "stopped" in server.log()
    assert "cut off" not in server.log()


def test_a_drain_has_a_deadline_and_says_whom_it_cut_off(serve: Serve) -> None:
    server = serve({"huge.bin": HUGE}, "--drain-timeout", "0.5")
    stuck = server.connect_tls()
    stuck.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    server.signal(signal.SIGTERM)
    assert server.process.wait(timeout=20) == 0
    assert "1 connection(s) cut off" in server.log()


def test_no_new_connection_is_accepted_while_draining(serve: Serve) -> None:
    server = serve({"huge.bin": HUGE})
    busy = server.connect()
    busy.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    server.signal(signal.SIGTERM)
    server.wait_for_log("stopping")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", server.http_port), timeout=5).close()
        except ConnectionRefusedError:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the listener stayed open")
    assert read_answer(busy).body == HUGE


def test_a_request_that_never_ends_is_answered_with_408(serve: Serve) -> None:
    server = serve({"index.html": "x"}, "--header-timeout", "1")
    slow = server.connect()
    slow.sendall(b"GET / HTTP/1.1\r\nHost: local")
    assert read_answer(slow).status == 408
    assert closes(slow)


def test_an_idle_connection_is_closed_after_the_keep_alive_time(serve: Serve) -> None:
    server = serve({"index.html": "x"}, "--keep-alive-timeout", "1")
    idle = server.connect()
    idle.sendall(GET)
    read_answer(idle)
    assert closes(idle)


def test_a_client_that_takes_nothing_is_dropped(serve: Serve) -> None:
    server = serve({"huge.bin": HUGE}, "--stall-timeout", "1")
    stuck = server.connect()
    stuck.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(4)
    received = 0
    try:
        while chunk := stuck.recv(1 << 20):
            received += len(chunk)
    except ConnectionResetError:
        pass
    assert received < len(HUGE)


def test_an_address_in_use_is_refused_although_workers_share_theirs(serve: Serve) -> None:
    server = serve({"index.html": "x"}, "--workers", "2")
    argv = [*COMMAND, "--addr", f"127.0.0.1:{server.http_port}", str(server.site)]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{server.http_port}: Address already in use" in result.stderr


def test_a_site_that_is_not_there_is_one_line_and_status_2(tmp_path: Path) -> None:
    argv = [*COMMAND, "--addr", "127.0.0.1:0", str(tmp_path / "missing.tar")]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("zeroserve: ")
    assert result.stderr.count("\n") == 1
    assert "missing.tar" in result.stderr


def test_an_idle_tls_connection_ends_with_the_closing_alert(serve: Serve) -> None:
    server = serve({"index.html": "x"}, "--keep-alive-timeout", "1")
    context = ssl.create_default_context(cafile=str(server.cert))
    raw = socket.create_connection(("127.0.0.1", server.https_port), timeout=20)
    with context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False) as idle:
        idle.sendall(GET)
        read_answer(idle)
        assert idle.recv(1) == b""


def test_a_client_that_connects_and_says_nothing_has_the_time_of_a_header(serve: Serve) -> None:
    server = serve({"index.html": "x"}, "--header-timeout", "1", "--keep-alive-timeout", "600")
    assert closes(server.connect())


def test_a_server_whose_log_nobody_reads_goes_on(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "x"})
    argv = [*COMMAND, "--addr", "127.0.0.1:0", str(server.site)]
    reader, writer = os.pipe()
    with subprocess.Popen(argv, stderr=writer) as process:
        os.close(writer)
        with os.fdopen(reader) as log:
            ready = re.search(r"http://127\.0\.0\.1:(\d+)", log.readline())
            assert ready is not None
            port = int(ready.group(1))
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(GET)
            assert read_answer(connection).body == b"x"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
