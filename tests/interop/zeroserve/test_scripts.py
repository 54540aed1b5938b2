"""Scripts of the site, compiled from C, packed, and run by a real server beside other clients."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from zeroserve.compiler import find_compiler
from zeroserve.settings import ZeroserveError

from .conftest import COMMAND, Answer, RunningServer, Serve, pack, read_answer, write_tree

PING = """
#include <zeroserve.h>
ZS_ENTRY zs_u64 ping(void) {
    char path[64];
    zs_req_path(path, sizeof path);
    if (zs_strcmp(path, "/api/ping") == 0) {
        zs_meta_set(ZS_STR("zs.response.header.Content-Type"), ZS_STR("application/json"));
        zs_respond(200, ZS_STR("{\\"status\\":\\"ok\\"}"));
    }
    return 0;
}
"""
HEADER = """
#include <zeroserve.h>
ZS_ENTRY zs_u64 header(void) {
    zs_meta_set(ZS_STR("zs.response.header.X-Frame-Options"), ZS_STR("DENY"));
    zs_meta_set(ZS_STR("zs.response.header.Content-Type"), ZS_STR("text/x-special"));
    return 0;
}
"""
LOOP = """
#include <zeroserve.h>
ZS_ENTRY zs_u64 loop(void) {
    char path[64];
    zs_req_path(path, sizeof path);
    if (zs_strcmp(path, "/loop") == 0)
        for (volatile zs_u64 turns = 0;; turns++)
            ;
    return 0;
}
"""
ECHO = """
#include <zeroserve.h>
ZS_ENTRY zs_u64 echo(void) {
    char text[512];
    char *end = text;
    zs_req_method(end, 64);
    end += zs_strlen(end);
    *end++ = ' ';
    zs_req_scheme(end, 64);
    end += zs_strlen(end);
    *end++ = ' ';
    zs_req_peer(end, 64);
    end += zs_strlen(end);
    *end++ = ' ';
    if (zs_req_header(ZS_STR("User-Agent"), end, 64) < 0)
        zs_strcpy(end, "-");
    end += zs_strlen(end);
    *end++ = ' ';
    zs_req_query_param(ZS_STR("q"), end, 64);
    end += zs_strlen(end);
    zs_respond(200, text, end - text);
    zs_log(ZS_STR("line\\nbreak"));
    return 0;
}
"""


@pytest.fixture(autouse=True)
def compiler_is_here() -> None:
    try:
        find_compiler()
    except ZeroserveError as error:
        pytest.skip(str(error))


def scripts(**sources: str) -> dict[str, str | bytes]:
    return {f".zeroserve/scripts/{name}.c": source for name, source in sources.items()}


def ask(server: RunningServer, target: str, *fields: str) -> Answer:
    with server.connect_tls() as connection:
        head = "\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *fields])
        connection.sendall(f"{head}\r\n\r\n".encode())
        return read_answer(connection)


def test_a_script_answers_and_the_files_answer_the_rest(serve: Serve) -> None:
    server = serve({"index.html": "page", **scripts(ping=PING)})
    pong = ask(server, "/api/ping")
    assert (pong.status, pong.body) == (200, b'{"status":"ok"}')
    assert pong.headers["content-type"] == "application/json"
    assert ask(server, "/").body == b"page"


def test_header_metadata_is_on_files_answers_and_errors_alike(serve: Serve) -> None:
    server = serve({"index.html": "page", **scripts(a=HEADER, b=PING)})
    for target, status in (("/", 200), ("/api/ping", 200), ("/missing", 404)):
        answer = ask(server, target)
        assert (answer.status, answer.headers["x-frame-options"]) == (status, "DENY")
    # The later script replaces the earlier one's value; a file's own type gives way to the script's.
    assert ask(server, "/api/ping").headers["content-type"] == "application/json"
    assert ask(server, "/").headers["content-type"] == "text/x-special"


def test_scripts_run_in_the_order_of_their_names_until_one_answers(serve: Serve) -> None:
    def answering(text: str) -> str:
        return f'#include <zeroserve.h>\nZS_ENTRY zs_u64 f(void) {{ zs_respond(200, ZS_STR("{text}")); return 0; }}'

    server = serve({"index.html": "page", **scripts(**{"20": answering("later"), "10": answering("earlier")})})
    assert ask(server, "/").body == b"earlier"


def test_a_script_reads_the_request(serve: Serve) -> None:
    server = serve({"index.html": "page", **scripts(echo=ECHO)})
    answer = ask(server, "/x?a=1&q=caf%C3%A9+au&q=2", "user-agent: Tester/1")
    assert answer.body == "GET https 127.0.0.1 Tester/1 café au".encode()
    server.wait_for_log("script echo.o: line\\nbreak")


def test_a_looping_script_delays_only_its_own_request(serve: Serve) -> None:
    server = serve({"index.html": "page", **scripts(a=PING, b=LOOP)})
    looping = [server.connect_tls() for _ in range(3)]
    for connection in looping:
        connection.sendall(b"GET /loop HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.2)
    others: list[int] = []

    def be_another_client() -> None:
        for _ in range(50):
            answers = (ask(server, "/"), ask(server, "/api/ping"))
            others.append(sum(answer.status == 200 for answer in answers))

    clients = [threading.Thread(target=be_another_client) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(timeout=60)
    assert others == [2] * 200
    # All that while the loops ran: nothing has been answered on their connections.
    for connection in looping:
        connection.setblocking(False)
        with pytest.raises(OSError):
            connection.recv(1)
        connection.settimeout(20)
    # In the end they are stopped, the log says which script, and the file that nobody refused is missing.
    for connection in looping:
        assert read_answer(connection).status == 404
    assert server.log().count("script b.o: ended in zeroserve.request") == 3


def test_a_loop_that_runs_does_not_keep_the_server_from_stopping(serve: Serve) -> None:
    server = serve({"index.html": "page", **scripts(loop=LOOP)}, "--drain-timeout", "1")
    server.connect_tls().sendall(b"GET /loop HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    server.signal(signal.SIGTERM)
    assert server.process.wait(timeout=20) == 0


def test_a_reload_while_a_script_runs_lets_it_end_on_its_own_generation(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "old", **scripts(loop=LOOP)})
    looping = server.connect_tls()
    looping.sendall(b"GET /loop HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.3)
    write_tree(tmp_path / "public", {"index.html": "new", "loop": "found"})
    (tmp_path / "public/.zeroserve/scripts/loop.c").unlink()
    pack(tmp_path / "public", server.site)
    server.signal(signal.SIGHUP)
    server.wait_for_log("zeroserve: reloaded")
    assert ask(server, "/").body == b"new"
    # The old generation has no such file and still has the loop; the new one is the other way round.
    assert read_answer(looping).status == 404
    assert ask(server, "/loop").body == b"found"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("*(volatile char *)0x10 = 1;", "failed in zeroserve.request: memory fault"),
        (
            "zs_respond(200, (char *)0x7fffffff, 8);",
            "failed in zeroserve.request: zs_respond was given memory that is not the script's",
        ),
    ],
)
def test_a_script_that_fails_is_logged_and_the_chain_goes_on(serve: Serve, body: str, reason: str) -> None:
    failing = f"#include <zeroserve.h>\nZS_ENTRY zs_u64 f(void) {{ {body} return 0; }}"
    server = serve({"index.html": "page", **scripts(a=failing, b=PING)})
    for _ in range(3):
        assert ask(server, "/api/ping").body == b'{"status":"ok"}'
    assert server.log().count(f"script a.o: {reason}") == 3


def test_an_object_that_cannot_be_loaded_refuses_the_site_by_name(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "good"})
    write_tree(tmp_path / "public", {".zeroserve/scripts/broken.o": b"\x7fELF but no more"})
    pack(tmp_path / "public", server.site)
    server.signal(signal.SIGHUP)
    server.wait_for_log("reload refused, the old site stays: script broken.o:")
    assert ask(server, "/").body == b"good"


def test_a_helper_that_the_server_lacks_is_named(serve: Serve, tmp_path: Path) -> None:
    server = serve({"index.html": "good"})
    source = "#include <zeroserve.h>\nextern zs_s64 zs_fly(void);\nZS_ENTRY zs_u64 f(void) { return zs_fly(); }"
    write_tree(tmp_path / "public", {".zeroserve/scripts/new.c": source})
    pack(tmp_path / "public", server.site)
    server.signal(signal.SIGHUP)
    server.wait_for_log("script new.o: section zeroserve.request calls zs_fly, which this server does not have")


def test_a_script_that_does_not_compile_is_shown_and_nothing_is_written(tmp_path: Path) -> None:
    write_tree(tmp_path, {"index.html": "page", ".zeroserve/scripts/bad.c": "int f( {"})
    result = subprocess.run([*COMMAND, "--pack", str(tmp_path)], capture_output=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stdout == b""
    assert b"bad.c:1:" in result.stderr
