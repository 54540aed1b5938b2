"""Compares zeroserve with nginx and with a pure Python server: the same files over TLS 1.3, one worker each on one CPU,
load from another, in turn. What is compared first is the server's CPU per request: the load generator saturates its
own core before any of the servers does, so throughput says less.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from comparison import Comparison, compare, print_tables
from contenders import STARTERS, Contender, Ground, probe
from load import BenchError, Load, Measurement, measure
from zeroserve.certificates import self_signed

WARM_UP_SECONDS = 1
MOST_SECONDS = 60
MOST_ROUNDS = 50
MOST_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class Payload:
    """A file that is served, and by whom: answering from a path is more than the pure Python server does."""

    name: str
    path: str
    size: int
    servers: tuple[str, ...]


PAYLOADS = (
    Payload("174 B", "/small.html", 174, ("zeroserve", "nginx", "uvloop")),
    Payload("100 KB", "/large.bin", 100 * 1024, ("zeroserve", "nginx")),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How long, how often, with how many connections, on which CPUs."""

    rounds: int
    seconds: int
    connections: int
    server_cpu: int
    load_cpu: int
    servers: tuple[str, ...]

    def check(self) -> None:
        """Raise BenchError for what would not be a measurement, or would be too much of one."""
        for flag, value, most in (
            ("--rounds", self.rounds, MOST_ROUNDS),
            ("--seconds", self.seconds, MOST_SECONDS),
            ("--connections", self.connections, MOST_CONNECTIONS),
        ):
            if not 1 <= value <= most:
                raise BenchError(f"{flag} {value} is out of range", f"give 1 to {most}")
        allowed = os.sched_getaffinity(0)
        if not {self.server_cpu, self.load_cpu} <= allowed or self.server_cpu == self.load_cpu:
            raise BenchError(
                f"--server-cpu {self.server_cpu} and --load-cpu {self.load_cpu} are not two CPUs of this machine",
                f"choose two of {sorted(allowed)}",
            )


def fitting_cipher() -> str:
    """Return the TLS 1.3 suite that this CPU does in hardware, ChaCha20 where it has no AES instructions."""
    words = Path("/proc/cpuinfo").read_text().split()
    return "TLS_AES_128_GCM_SHA256" if "aes" in words else "TLS_CHACHA20_POLY1305_SHA256"


def write_openssl_configuration(path: Path, cipher: str) -> Path:
    """Make OpenSSL clients offer `cipher` only, so that every server ends up with the same one."""
    path.write_text(
        "openssl_conf = root\n[root]\nssl_conf = ssl\n[ssl]\nsystem_default = default\n"
        f"[default]\nMinProtocol = TLSv1.3\nCiphersuites = {cipher}\n"
    )
    return path


def prepare(scratch: Path, settings: Settings) -> Ground:
    """Write the files, the certificate and OpenSSL's configuration below `scratch`."""
    public = scratch / "public"
    public.mkdir()
    noise = random.Random(174)  # incompressible, and the same in every run
    for payload in PAYLOADS:
        (public / payload.path.lstrip("/")).write_bytes(noise.randbytes(payload.size))
    certificate, key = scratch / "cert.pem", scratch / "key.pem"
    pair = self_signed(["localhost", "127.0.0.1"])
    certificate.write_bytes(pair.cert_pem)
    key.write_bytes(pair.key_pem)
    conf = write_openssl_configuration(scratch / "openssl.cnf", fitting_cipher())
    return Ground(public, certificate, key, scratch, settings.server_cpu, conf)


def verify(ground: Ground, contender: Contender, payload: Payload) -> str:
    """Check that the very bytes of the file come over TLS 1.3, and return the cipher. Raises BenchError otherwise."""
    expected = ground.public / payload.path.lstrip("/")
    answer = probe(ground, contender.port, payload.path)
    if not answer.carries(expected.read_bytes()) or answer.version != "TLSv1.3":
        raise BenchError(f"{contender.name} does not serve {payload.path} as it is: {answer}", "nothing was compared")
    return answer.cipher


@contextlib.contextmanager
def all_started(ground: Ground, settings: Settings) -> Iterator[dict[str, Contender]]:
    """Start the contenders and verify what they serve. They idle in each other's runs, which costs none of them CPU."""
    with contextlib.ExitStack() as stack:
        contenders = {name: stack.enter_context(STARTERS[name](ground)) for name in settings.servers}
        ciphers = {
            verify(ground, contenders[name], payload)
            for payload in PAYLOADS
            for name in payload.servers
            if name in contenders
        }
        if len(ciphers) != 1:
            raise BenchError(f"the servers agreed on different ciphers: {sorted(ciphers)}", "nothing was compared")
        yield contenders


def order_of_runs(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield (pair, server): each round goes there and back (ABBA), so that a drift falls on all alike."""
    for round_number in range(rounds):
        for name in names:
            yield 2 * round_number, name
        for name in reversed(names):
            yield 2 * round_number + 1, name


def run(ground: Ground, settings: Settings, contenders: dict[str, Contender], progress: Progress) -> list[Measurement]:
    """Measure every payload on every contender, in turn."""
    load = Load(settings.seconds, settings.connections, settings.load_cpu, ground.openssl_conf)
    warm_up = Load(WARM_UP_SECONDS, settings.connections, settings.load_cpu, ground.openssl_conf)
    measurements: list[Measurement] = []
    served = {payload: [name for name in payload.servers if name in contenders] for payload in PAYLOADS}
    task = progress.add_task("", total=sum(2 * settings.rounds * len(names) for names in served.values()))
    for payload, names in served.items():
        for name in names:
            contender = contenders[name]
            measure(warm_up, server=name, pid=contender.pid, url=contender.url(payload.path), payload="", pair=-1)
        for pair, name in order_of_runs(names, settings.rounds):
            progress.update(task, description=f"{payload.name} from {name}")
            contender = contenders[name]
            url = contender.url(payload.path)
            measurements.append(measure(load, server=name, pid=contender.pid, url=url, payload=payload.name, pair=pair))
            progress.advance(task)
    return measurements


def environment(ground: Ground, contenders: dict[str, Contender]) -> dict[str, object]:
    """Return what a reader needs to know to doubt the numbers."""
    models = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": models[0] if models else "unknown",
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "cipher": fitting_cipher(),
        "servers": {name: contender.version for name, contender in contenders.items()},
    }


def parse(argv: Sequence[str] | None) -> tuple[Settings, bool]:
    parser = argparse.ArgumentParser(prog="bench/servers.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="each measures every server twice (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=4, help="of load in a run (default %(default)s)")
    parser.add_argument("--connections", type=int, default=100, help="kept alive at once (default %(default)s)")
    parser.add_argument("--server-cpu", type=int, default=0)
    parser.add_argument("--load-cpu", type=int, default=1)
    parser.add_argument("--servers", default=",".join(STARTERS), help="of %(default)s")
    parser.add_argument("--json", action="store_true", help="print everything that was measured as JSON, no tables")
    arguments = parser.parse_args(argv)
    servers = tuple(arguments.servers.split(","))
    if unknown := sorted(set(servers) - set(STARTERS)):
        raise BenchError(f"--servers names {', '.join(unknown)}", f"choose of {', '.join(STARTERS)}")
    settings = Settings(
        arguments.rounds, arguments.seconds, arguments.connections, arguments.server_cpu, arguments.load_cpu, servers
    )
    settings.check()
    return settings, arguments.json


def bench(settings: Settings, as_json: bool) -> None:
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description:24}"), BarColumn(), TimeRemainingColumn())
    with tempfile.TemporaryDirectory(prefix="zs-bench-") as folder:
        ground = prepare(Path(folder), settings)
        with all_started(ground, settings) as contenders:
            surroundings = environment(ground, contenders)
            with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
                measurements = run(ground, settings, contenders, progress)
    comparisons: list[Comparison] = compare(measurements)
    if as_json:
        record = {
            "schema": 1,
            "settings": asdict(settings),
            "environment": surroundings,
            "measurements": [measurement.as_json() for measurement in measurements],
            "comparisons": [asdict(comparison) for comparison in comparisons],
        }
        print(json.dumps(record, indent=2))
    else:
        print_tables(Console(), surroundings, measurements, comparisons)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        bench(*parse(argv))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
