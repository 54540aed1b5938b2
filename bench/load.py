"""One measurement: wrk against a server, and what the server's processes spent on it. Knows no server by name."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("wrk_report.lua")
# wrk answers within its duration; what comes on top is connecting and a last round trip.
GRACE_SECONDS = 20
FAILURES = ("connect", "read", "write", "status", "timeout")


class BenchError(Exception):
    """The benchmark cannot go on; `str()` is one line that says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk is asked to do: `connections` kept alive from one thread on `cpu`, for `seconds`."""

    seconds: int
    connections: int
    cpu: int
    openssl_conf: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "OPENSSL_CONF": str(self.openssl_conf)}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of wrk against one server: `pair` joins it to the other servers' runs of the same pass."""

    server: str
    payload: str
    pair: int
    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    cpu_ns: int

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us_per_request(self) -> float:
        """CPU of the server's processes, user and system, microseconds a request; the handshakes are in it."""
        return self.cpu_ns / 1000 / self.requests

    def as_json(self) -> dict[str, str | int | float]:
        derived = {
            "requests_per_second": self.requests_per_second,
            "cpu_us_per_request": self.cpu_us_per_request,
        }
        return asdict(self) | derived


def process_tree(pid: int) -> Iterator[int]:
    """Yield `pid` and every process below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from process_tree(int(child))


def cpu_ns(pid: int) -> int:
    """Return the nanoseconds of CPU that the threads of `pid` and of its children have used.

    From /proc/PID/task/TID/schedstat, whose first field is user and system time together. Threads that have ended are
    not in it; the servers measured here keep theirs.
    """
    return sum(
        int((task / "schedstat").read_text().split()[0])
        for process in process_tree(pid)
        for task in Path(f"/proc/{process}/task").iterdir()
    )


def measure(load: Load, *, server: str, pid: int, url: str, payload: str, pair: int) -> Measurement:
    """Put `load` on `url` and return what came of it.

    Raises BenchError when a single request failed: a server that refuses work must not look cheap.
    """
    before = cpu_ns(pid)
    report = run_wrk(load, url)
    spent = cpu_ns(pid) - before
    failed = {name: report[name] for name in FAILURES if report[name]}
    if failed or not report["requests"]:
        raise BenchError(f"{server} failed requests for {url}: {failed or 'none was answered'}", "look at its log")
    return Measurement(
        server=server,
        payload=payload,
        pair=pair,
        requests=int(report["requests"]),
        seconds=report["duration_us"] / 1e6,
        p50_us=report["p50_us"],
        p99_us=report["p99_us"],
        cpu_ns=spent,
    )


def run_wrk(load: Load, url: str) -> dict[str, float]:
    """Run wrk once, pinned, and return the numbers of wrk_report.lua."""
    command = ["taskset", "-c", str(load.cpu), "wrk", "-t1", f"-c{load.connections}", f"-d{load.seconds}s"]
    try:
        finished = subprocess.run(
            [*command, "-s", str(SCRIPT), url],
            env=load.environment,
            capture_output=True,
            text=True,
            timeout=load.seconds + GRACE_SECONDS,
        )
    except FileNotFoundError as error:
        raise BenchError("taskset or wrk is missing", "run make bench, which installs them") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"wrk did not end for {url}", "the server hangs; look at its log") from error
    lines = finished.stdout.strip().splitlines()
    if finished.returncode or not lines or not lines[-1].startswith("{"):
        raise BenchError(
            f"wrk failed for {url}: {(finished.stderr or finished.stdout).strip()[:200]}", "try it by hand"
        )
    report: dict[str, float] = json.loads(lines[-1])
    return report
