"""The prober against a real TLS server on loopback: what succeeds is timed, what fails is named."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from experiments.probe import Probed, Service, percentile, probe
from zeroserve.certificates import self_signed

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npong"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = self_signed(["localhost"])
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    certificate.write_bytes(made.cert_pem)
    key.write_bytes(made.key_pem)
    return certificate, key


def probe_against(
    handler: Handler,
    pair: tuple[Path, Path],
    *,
    name: str = "localhost",
    maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    checks: int = 2,
) -> Probed:
    async def both() -> Probed:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = maximum
        context.load_cert_chain(*pair)

        async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await handler(reader, writer)
            writer.close()

        server = await asyncio.start_server(quiet, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            service = Service("127.0.0.1", port, name, "/api/ping", pair[0])
            return await probe(service, duration_s=0.05 * checks, interval_s=0.05, timeout_s=0.5)

    return uvloop.run(both())


def answering(answer: bytes, heads: list[bytes] | None = None) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if heads is not None:
            heads.append(head)
        writer.write(answer)
        await writer.drain()

    return handle


def test_each_check_is_a_request_on_a_connection_of_its_own(pair: tuple[Path, Path]) -> None:
    heads: list[bytes] = []
    result = probe_against(answering(OK, heads), pair, checks=4)
    assert (result.checks, len(result.latencies_ms), result.failures) == (4, 4, {})
    assert all(0 < latency < 500 for latency in result.latencies_ms)
    assert len(heads) == 4
    for head in heads:
        assert head.startswith(b"GET /api/ping HTTP/1.1\r\n")
        assert b"\r\nConnection: close\r\n" in head


def test_other_status_than_200_is_a_failure(pair: tuple[Path, Path]) -> None:
    result = probe_against(answering(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), pair)
    assert (result.latencies_ms, result.failures) == ((), {"HTTP/1.1 503 Busy": 2})


def test_half_a_body_is_a_failure(pair: tuple[Path, Path]) -> None:
    result = probe_against(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), pair)
    assert result.latencies_ms == ()
    assert sum(result.failures.values()) == 2


def test_silence_is_a_timeout(pair: tuple[Path, Path]) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert probe_against(silent, pair).failures == {"timeout": 2}


def test_certificate_of_another_name_is_a_failure(pair: tuple[Path, Path]) -> None:
    result = probe_against(answering(OK), pair, name="elsewhere.example")
    assert result.latencies_ms == ()
    assert all("certificate" in reason.lower() for reason in result.failures)


def test_tls_1_2_is_not_accepted(pair: tuple[Path, Path]) -> None:
    assert probe_against(answering(OK), pair, maximum=ssl.TLSVersion.TLSv1_2).latencies_ms == ()


def test_service_that_is_not_there_is_a_failure(pair: tuple[Path, Path]) -> None:
    # Port 1 of loopback: nothing listens there on any sane machine.
    service = Service("127.0.0.1", 1, "localhost", "/", pair[0])
    result = uvloop.run(probe(service, duration_s=0.1, interval_s=0.1, timeout_s=0.5))
    assert (result.checks, result.latencies_ms) == (1, ())
    assert "ConnectionRefusedError" in next(iter(result.failures))


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.95, 10), (0.99, 10), (0.1, 1), (0.11, 2), (1.0, 10)])
def test_percentile_is_the_nearest_rank(share: float, value: float) -> None:
    assert percentile(range(1, 11), share) == value


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.floats(0.01, 1.0))
def test_percentile_is_a_value_that_enough_others_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_percentile_of_nothing_is_nothing() -> None:
    assert percentile([], 0.5) is None
