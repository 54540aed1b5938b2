"""What the command line may say, and what it is told when it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeroserve.cli import main
from zeroserve.settings import Address, ServerSettings, ZeroserveError


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:443", "0.0.0.0:0"])
def test_an_address_reads_back_as_it_was_written(text: str) -> None:
    assert str(Address.parse(text, "--addr")) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("127.0.0.1", "the port is missing"),
        ("127.0.0.1:https", "the port is not a number"),
        ("127.0.0.1:65536", "the port is not a number"),
        ("127.0.0.1:-1", "the port is not a number"),
        ("127.0.0.1:\u0661", "the port is not a number"),
        ("localhost:80", "localhost is not an IP address"),
        (":80", "nothing is not an IP address"),
        ("::1:80", "brackets go around IPv6"),
        ("[127.0.0.1]:80", "brackets go around IPv6"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(ZeroserveError) as refusal:
        Address.parse(text, "--tls-addr")
    assert complaint in refusal.value.message
    assert refusal.value.message.startswith(f"--tls-addr {text}")


def test_workers_default_to_the_cores_that_the_process_may_use() -> None:
    import os

    settings = ServerSettings(Path("s.tar"), plain_addresses=(Address.parse("127.0.0.1:80", "--addr"),))
    assert settings.worker_count == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "no site is named"),
        (["--wokers", "2", "s.tar"], "unrecognized arguments: --wokers"),
        (["--work", "2", "s.tar"], "unrecognized arguments: --work"),
        (["--workers", "two", "s.tar"], "--workers"),
        (["--workers", "-1", "s.tar"], "--workers -1"),
        (["--tls-addr", "127.0.0.1:0", "s.tar"], "without a certificate"),
        (["--cert", "c", "--key", "k", "s.tar"], "without --tls-addr"),
        (["--header-timeout", "0", "s.tar"], "--header-timeout 0"),
        (["--drain-timeout", "nan", "s.tar"], "--drain-timeout nan"),
        (["--preempt-timer-interval-ms", "0", "s.tar"], "--preempt-timer-interval-ms 0"),
        (["--pack", "public", "s.tar"], "--pack and a site"),
    ],
)
def test_bad_flags_give_one_line_and_status_2(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("zeroserve: ")
    assert captured.err.count("\n") == 1
    assert complaint in captured.err
