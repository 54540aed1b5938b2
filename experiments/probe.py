"""The HTTPS prober: GETs the service's own page each 200 ms on a new connection, timed from connect to the last byte.

Runs as `python -m experiments.probe ...` in the client's namespace and talks to the runner as described in `dialogue`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import ssl
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from experiments.dialogue import Commands, say


@dataclass(frozen=True, slots=True)
class Service:
    """Where the probed service is. `trusted` is the PEM file that its certificate must come from."""

    address: str
    port: int
    server_name: str
    path: str
    trusted: Path

    def request(self) -> bytes:
        return (
            f"GET {self.path} HTTP/1.1\r\nHost: {self.server_name}\r\nUser-Agent: zs-experiment\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n"
        ).encode()

    def tls(self) -> ssl.SSLContext:
        """TLS 1.3 only, certificate checked; Python resumes no session by itself, so each handshake is a full one."""
        context = ssl.create_default_context(cafile=str(self.trusted))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


@dataclass(frozen=True, slots=True)
class Probed:
    """What the checks gave: latencies in ms of the successful ones, by start, and the reasons of the rest."""

    checks: int
    latencies_ms: tuple[float, ...]
    failures: dict[str, int]


class BadAnswer(Exception):
    """The service answered, but not with 200 and a whole body."""


async def probe(service: Service, *, duration_s: float, interval_s: float, timeout_s: float) -> Probed:
    """Start a check at each multiple of the interval before `duration_s`, whether or not earlier ones have ended.

    A check that takes longer than `timeout_s` is a failure. Returns when all have ended.
    """
    tls, request = service.tls(), service.request()
    start = time.monotonic()
    checks: list[asyncio.Task[float]] = []
    count = max(1, math.ceil(duration_s / interval_s - 1e-9))
    for number in range(count):
        await asyncio.sleep(max(0.0, start + number * interval_s - time.monotonic()))
        checks.append(asyncio.create_task(_check(service, tls, request, timeout_s)))
    results = await asyncio.gather(*checks, return_exceptions=True)
    failures: Counter[str] = Counter()
    latencies: list[float] = []
    for result in results:
        if isinstance(result, BaseException):
            failures[_reason(result)] += 1
        else:
            latencies.append(round(result * 1000, 3))
    return Probed(count, tuple(latencies), dict(failures))


async def _check(service: Service, tls: ssl.SSLContext, request: bytes, timeout_s: float) -> float:
    """Seconds from connect to the last byte of the answer. Raises TimeoutError, OSError, BadAnswer."""
    begun = time.perf_counter()
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(
            service.address, service.port, ssl=tls, server_hostname=service.server_name
        )
        try:
            writer.write(request)
            await _read_answer(reader)
            return time.perf_counter() - begun
        finally:
            writer.transport.abort()


async def _read_answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *fields = head.decode("latin-1").split("\r\n")
    if status_line.split(" ")[1:2] != ["200"]:
        raise BadAnswer(status_line)
    lengths = [int(value) for name, _, value in (f.partition(":") for f in fields) if name.lower() == "content-length"]
    if lengths:
        await reader.readexactly(lengths[0])
    else:
        await reader.read()


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, BadAnswer):
        return str(error)
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def percentile(sorted_values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile (the smallest value that at least `share` of all do not exceed); None of nothing."""
    if not sorted_values:
        return None
    return sorted_values[max(0, math.ceil(share * len(sorted_values) - 1e-9) - 1)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="experiments.probe")
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server-name", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--trusted", type=Path, required=True, metavar="PEM")
    parser.add_argument("--lifetime", type=float, required=True, metavar="SECONDS")
    arguments = parser.parse_args(argv)
    service = Service(arguments.address, arguments.port, arguments.server_name, arguments.path, arguments.trusted)
    commands = Commands(arguments.lifetime)
    # The first handshake loads code and tables; it is nobody's latency.
    uvloop.run(probe(service, duration_s=0.1, interval_s=0.1, timeout_s=5.0))
    gc.freeze()
    gc.disable()
    say(event="ready")
    while True:
        order = commands.next()
        result = uvloop.run(
            probe(
                service,
                duration_s=float(order["duration_s"]),
                interval_s=float(order["interval_s"]),
                timeout_s=float(order["timeout_s"]),
            )
        )
        say(event="probed", checks=result.checks, latencies_ms=result.latencies_ms, failures=result.failures)
        gc.collect()


if __name__ == "__main__":
    sys.exit(main())
