"""What a machine and its clients do to a server on a bad day: signals at the wrong time, files that are none, a log
that nobody reads."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from zeroserve.compiler import find_compiler
from zeroserve.settings import ZeroserveError

from .conftest import COMMAND, Serve, closes, read_answer

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
# More than the socket buffers of both ends hold, so that a response that nobody reads stays in flight.
HUGE = bytes(1 << 20) * 32
TALKATIVE = """
#include <zeroserve.h>
ZS_ENTRY zs_u64 talk(void) {
    char line[1000];
    zs_memset(line, 'a', sizeof line);
    for (int i = 0; i < 30; i++)
        zs_log(line, sizeof line);
    return 0;
}
"""


def write_site_that_takes_long(path: Path, gibibytes: int) -> None:
    """A site whose one file is a hole: no disk is used, and every byte of it is read to digest it."""
    member = tarfile.TarInfo("hole.bin")
    member.size = gibibytes << 30
    header = member.tobuf(tarfile.GNU_FORMAT)
    with path.open("wb") as site:
        site.write(header)
        site.truncate(len(header) + member.size + 1024)


def wait_until(is_so: Callable[[], bool], deadline_s: float = 15.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_open(process: subprocess.Popen[bytes], path: Path) -> bool:
    """Whether the file that is at `path` now is open in the process."""
    wanted = path.stat()
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(link.stat(), wanted):
                return True
    return False


def is_listening(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def replace_by(path: Path, make: Callable[[Path], object]) -> None:
    fresh = path.with_suffix(".fresh")
    make(fresh)
    os.replace(fresh, path)


def test_a_second_sigterm_cuts_off_what_is_still_in_flight(serve: Serve) -> None:
    server = serve({"huge.bin": HUGE}, "--drain-timeout", "600")
    stuck = server.connect()
    stuck.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    server.signal(signal.SIGTERM)
    server.wait_for_log("stopping")
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(timeout=0.5)
    server.signal(signal.SIGTERM)
    assert server.process.wait(timeout=10) == 0
    assert "1 connection(s) cut off" in server.log()


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_client_that_connected_before_the_drain_gets_its_first_answer(serve: Serve, has_tls: bool) -> None:
    server = serve({"index.html": "page"})
    connection = server.connect_tls() if has_tls else server.connect()
    time.sleep(0.2)
    server.signal(signal.SIGTERM)
    server.wait_for_log("stopping")
    time.sleep(0.2)
    connection.sendall(GET)
    answer = read_answer(connection)
    assert (answer.body, answer.headers["connection"]) == (b"page", "close")
    assert closes(connection)
    connection.close()
    assert server.process.wait(timeout=10) == 0


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["fifo", "folder"])
def test_a_site_that_is_no_file_is_refused_and_the_next_reload_works(
    serve: Serve, make: Callable[[Path], object]
) -> None:
    server = serve({"index.html": "good"})
    good = server.site.read_bytes()
    server.site.unlink()
    make(server.site)
    server.signal(signal.SIGHUP)
    server.wait_for_log("is not a regular file")
    server.site.rename(server.site.with_suffix(".odd"))
    server.site.write_bytes(good)
    server.signal(signal.SIGHUP)
    server.wait_for_log("zeroserve: reloaded")
    server.signal(signal.SIGTERM)
    assert server.process.wait(timeout=10) == 0


def test_a_certificate_that_is_no_file_is_refused(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "good"})
    kinds: list[Callable[[Path], object]] = [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")]
    for number, odd in enumerate(kinds):
        folder = tmp_path / str(number)
        folder.mkdir()
        odd(folder / "cert.pem")
        argv = [*COMMAND, "--tls-addr", "127.0.0.1:0", "--cert", str(folder / "cert.pem"), "--key", str(server.key)]
        result = subprocess.run([*argv, str(server.site)], capture_output=True, text=True, timeout=20, check=False)
        assert result.returncode == 2
        assert f"--cert {folder}/cert.pem: not a regular file" in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_reload_that_takes_long_does_not_keep_the_server_from_stopping(serve: Serve) -> None:
    server = serve({"index.html": "good"})
    replace_by(server.site, lambda path: write_site_that_takes_long(path, 256))
    server.signal(signal.SIGHUP)
    wait_until(lambda: has_open(server.process, server.site))
    with server.connect_tls() as connection:
        connection.sendall(GET)
        assert read_answer(connection).body == b"good"
    server.signal(signal.SIGTERM)
    assert server.process.wait(timeout=10) == 0


def test_a_reload_asked_for_during_the_start_follows_it(tmp_path: Path) -> None:
    site = tmp_path / "site.tar"
    write_site_that_takes_long(site, 1)
    argv = [*COMMAND, "--addr", "127.0.0.1:0", str(site)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stderr=log) as process:
        try:
            wait_until(lambda: has_open(process, site))
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: b"zeroserve: reloaded" in (tmp_path / "log").read_bytes(), deadline_s=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def test_a_log_pipe_that_is_full_holds_up_neither_requests_nor_signals(serve: Serve) -> None:
    try:
        find_compiler()
    except ZeroserveError as error:
        pytest.skip(str(error))
    server = serve({"index.html": "page", ".zeroserve/scripts/talk.c": TALKATIVE})
    reader, writer = os.pipe()
    argv = [*COMMAND, "--addr", "127.0.0.1:0", "--workers", "1", str(server.site)]
    with subprocess.Popen(argv, stderr=writer) as process, os.fdopen(reader, "rb", buffering=0) as log:
        try:
            os.close(writer)
            ready = re.search(rb"http://127\.0\.0\.1:(\d+)", log.read(4096))
            assert ready is not None
            with socket.create_connection(("127.0.0.1", int(ready.group(1))), timeout=10) as connection:
                # Some 300 KB of log into a pipe of 64.
                for _ in range(10):
                    connection.sendall(GET)
                    assert read_answer(connection).body == b"page"
                seen = log.read(1 << 20)
                assert b"line(s) were lost" not in seen
                connection.sendall(GET)
                assert read_answer(connection).body == b"page"
                lost = re.search(rb"zeroserve: (\d+) line\(s\) were lost: nobody reads them\n", log.read(1 << 20))
                assert lost is not None
                assert seen.count(b"\n") + int(lost.group(1)) == 10 * 30
                for _ in range(10):
                    connection.sendall(GET)
                    read_answer(connection)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()


def test_a_server_without_standard_descriptors_serves_reloads_and_ends_well(serve: Serve) -> None:
    site = serve({"index.html": "page"}).site
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [*COMMAND, "--addr", f"127.0.0.1:{port}", str(site)]
    with subprocess.Popen(["bash", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "bash", *argv]) as process:
        try:
            wait_until(lambda: is_listening(port))
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                for signals in ([], [signal.SIGHUP]):
                    for number in signals:
                        process.send_signal(number)
                        time.sleep(0.5)
                    connection.sendall(GET)
                    assert read_answer(connection).body == b"page"
                taken = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
                assert taken == ["/dev/null"] * 3
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()


def test_a_request_and_the_closing_alert_in_one_packet_are_answered(serve: Serve) -> None:
    server = serve({"index.html": "page"})
    context = ssl.create_default_context(cafile=str(server.cert))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", server.https_port), timeout=10) as raw:
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65536))
        session.write(GET)
        with pytest.raises(ssl.SSLWantReadError):
            session.unwrap()
        raw.sendall(outgoing.read())
        while received := raw.recv(65536):
            incoming.write(received)
    # The alert ends the client's direction only (RFC 8446 6.1).
    assert session.read(65536).endswith(b"\r\n\r\npage")
