"""The servers that are compared, each a context manager that starts one worker on one CPU and stops it.

They serve the same files, with the same certificate, on loopback. Nothing here measures.
"""

import hashlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from load import BenchError

HERE = Path(__file__).parent
START_SECONDS = 15
STOP_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Ground:
    """What all contenders share: the files, certificate and key, CPU, a place for logs."""

    public: Path
    certificate: Path
    key: Path
    scratch: Path
    cpu: int
    openssl_conf: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """A running server: `pid` is the root of its processes."""

    name: str
    version: str
    port: int
    pid: int

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What probe.py saw: status, length and SHA-256 of the body, TLS version and cipher."""

    status: int
    length: int
    sha256: str
    version: str
    cipher: str

    def carries(self, body: bytes) -> bool:
        return (self.status, self.length, self.sha256) == (200, len(body), hashlib.sha256(body).hexdigest())


Starter = Callable[[Ground], AbstractContextManager[Contender]]


def free_port() -> int:
    """Return a TCP port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def probe(ground: Ground, port: int, path: str) -> Answer:
    """Fetch `path` with the TLS configuration that wrk gets. Raises BenchError with the client's own words."""
    finished = subprocess.run(
        [sys.executable, "-P", str(HERE / "probe.py"), str(port), path, str(ground.certificate)],
        env={"OPENSSL_CONF": str(ground.openssl_conf)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    if finished.returncode:
        raise BenchError(f"no answer from port {port}: {finished.stderr.strip()[-200:]}", "try it with curl")
    return Answer(**json.loads(finished.stdout))


@contextmanager
def running(ground: Ground, name: str, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` on the servers' CPU with its output in a log, and end it, by force if need be."""
    with (ground.scratch / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(["taskset", "-c", str(ground.cpu), *command], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_listening(ground: Ground, name: str, process: subprocess.Popen[bytes], port: int) -> None:
    """Return when `port` accepts. Raises BenchError with the end of the log when the server died or hangs."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    log = (ground.scratch / f"{name}.log").read_text(errors="replace").strip().splitlines()
    raise BenchError(f"{name} does not listen: {log[-1] if log else 'it said nothing'}", "start it by hand")


@contextmanager
def zeroserve(ground: Ground) -> Iterator[Contender]:
    port, site = free_port(), ground.scratch / "site.tar"
    product = [sys.executable, "-P", "-m", "zeroserve"]
    with site.open("wb") as output:
        packed = subprocess.run(
            [*product, "--pack", str(ground.public)], stdout=output, stderr=subprocess.PIPE, text=True
        )
    if packed.returncode:
        raise BenchError(f"zeroserve does not pack: {packed.stderr.strip()}", "run make build")
    command = [*product, "--tls-addr", f"127.0.0.1:{port}", "--workers", "1"]
    command += ["--cert", str(ground.certificate), "--key", str(ground.key), str(site)]
    with running(ground, "zeroserve", command) as process:
        wait_until_listening(ground, "zeroserve", process, port)
        yield Contender("zeroserve", metadata.version("zeroserve"), port, process.pid)


@contextmanager
def uvloop(ground: Ground) -> Iterator[Contender]:
    """Pure Python; it answers every path with the small file."""
    port = free_port()
    command = [sys.executable, "-P", str(HERE / "uvloop_server.py"), "--port", str(port)]
    command += [
        "--cert",
        str(ground.certificate),
        "--key",
        str(ground.key),
        "--file",
        str(ground.public / "small.html"),
    ]
    with running(ground, "uvloop", command) as process:
        wait_until_listening(ground, "uvloop", process, port)
        yield Contender("uvloop", f"Python {sys.version.split()[0]}", port, process.pid)


# Tuned as its own documentation advises for static files: no access log, descriptors kept open, heads and files sent
# together, connections never closed by count. One worker, as every contender.
NGINX_CONFIGURATION = """
daemon off;
user root;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log stderr warn;
events {{ use epoll; worker_connections 4096; }}
http {{
    types {{ text/html html; application/octet-stream bin; }}
    charset utf-8;
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 60s;
    keepalive_requests 1000000000;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 60s;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl backlog=512;
        ssl_protocols TLSv1.3;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        root {public};
    }}
}}
"""


def nginx_binary() -> str:
    """Return the system's nginx, else the one that tools/nginx.sh unpacked."""
    unpacked = HERE.parent / ".tools/nginx/usr/sbin/nginx"
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or shutil.which(unpacked)
    if found is None:
        raise BenchError("there is no nginx to compare with", "run make bench, which unpacks Debian's")
    return found


@contextmanager
def nginx(ground: Ground) -> Iterator[Contender]:
    binary, port = nginx_binary(), free_port()
    version = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr.split("/")[-1].strip()
    configuration = ground.scratch / "nginx.conf"
    configuration.write_text(
        NGINX_CONFIGURATION.format(
            scratch=ground.scratch,
            port=port,
            certificate=ground.certificate,
            key=ground.key,
            public=ground.public,
        )
    )
    command = [binary, "-e", "stderr", "-p", str(ground.scratch), "-c", str(configuration)]
    with running(ground, "nginx", command) as process:
        wait_until_listening(ground, "nginx", process, port)
        yield Contender("nginx", version, port, process.pid)


STARTERS: dict[str, Starter] = {"zeroserve": zeroserve, "nginx": nginx, "uvloop": uvloop}
