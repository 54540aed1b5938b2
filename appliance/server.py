"""The zeroserve child: started, waited for until it answers HTTPS, watched, stopped. What it serves and how is its own
business; which certificate it shows is checked, so that a stranger on the same port is not taken for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from appliance.namespace import Namespace, pinned
from appliance.process import ProcessIdentity
from appliance.settings import ApplianceError

DRAIN_S = 5
"""How long a stopping server may finish requests in flight before connections are cut off."""
LOG_LIMIT_BYTES = 8 << 20
CHECK_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What to run. `tls_addresses` are `A:P` as zeroserve takes them, the first is where the start is checked;
    `workers` None is one for each core; `log` receives what the server writes."""

    site: Path
    certificate: Path
    key: Path
    tls_addresses: tuple[str, ...]
    log: Path
    workers: int | None = None
    namespace: Namespace | None = None
    cpu: int | None = None

    def argv(self) -> list[str]:
        """The command line. `-P` keeps the working directory from standing in for the installed package."""
        command = [sys.executable, "-P", "-m", "zeroserve", "--drain-timeout", str(DRAIN_S)]
        for address in self.tls_addresses:
            command += ["--tls-addr", address]
        command += ["--cert", str(self.certificate.resolve()), "--key", str(self.key.resolve())]
        if self.workers is not None:
            command += ["--workers", str(self.workers)]
        return [*command, str(self.site.resolve())]

    def endpoint(self) -> tuple[str, int]:
        """Where the first address is reached from the server's own namespace."""
        host, _, port = self.tls_addresses[0].rpartition(":")
        reached = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))
        return reached, int(port)


class ServerProcess:
    """One running server. A context manager that stops it; `let_go` leaves it running beyond this process (it is in a
    session of its own, writes to a file and depends on no pipe of ours), and `adopt` takes such a one over."""

    def __init__(self, plan: ServerPlan, identity: ProcessIdentity, child: subprocess.Popen[Any] | None) -> None:
        self.plan = plan
        self.identity = identity
        self._child = child

    @classmethod
    def start(
        cls, plan: ServerPlan, *, deadline_s: float = 20.0, progress: Callable[[float], None] | None = None
    ) -> Self:
        """Start the server and return once it has answered an HTTPS request.

        `progress` is called with the seconds waited so far. Errors: ApplianceError with the server's last log line
        when it ends, or does not answer within `deadline_s`; nothing runs then.
        """
        _refuse_taken_port(plan)
        with _log_for_appending(plan.log) as log:
            child = _spawn(plan, log)
        identity = ProcessIdentity.of(child.pid)
        if identity is None:
            child.wait()
            raise ApplianceError(f"the server did not start: {last_line(plan.log)}", f"see {plan.log}")
        server = cls(plan, identity, child)
        try:
            server._await_answer(deadline_s, progress)
        except BaseException:
            server.stop()
            raise
        return server

    @classmethod
    def adopt(cls, plan: ServerPlan, identity: ProcessIdentity) -> Self | None:
        """The server that an earlier process started, if it is alive and answers; None otherwise."""
        server = cls(plan, identity, None)
        return server if identity.is_alive() and server.answers() else None

    @property
    def pid(self) -> int:
        return self.identity.pid

    def is_alive(self) -> bool:
        """Whether it runs still. Reaps it when it does not."""
        if self._child is not None:
            return self._child.poll() is None
        return self.identity.is_alive()

    def answers(self, timeout_s: float = 2.0) -> bool:
        """Whether an HTTPS request is answered now, by a server that shows our certificate."""
        host, port = self.plan.endpoint()
        try:
            https_status(host, port, self.plan.certificate, namespace=self.plan.namespace, timeout_s=timeout_s)
        except OSError:
            return False
        return True

    def reload(self) -> None:
        """Have it load site and certificate again (SIGHUP). What fails to load changes nothing and is in the log."""
        if not self.identity.signal(signal.SIGHUP):
            raise ApplianceError("the server is not running", "it is restarted within 30 seconds")

    def stop(self, grace_s: float = DRAIN_S + 3) -> None:
        """SIGTERM, on which it finishes what is in flight; SIGKILL after `grace_s`. Doing it twice does nothing."""
        self.identity.stop(grace_s)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=grace_s)

    def let_go(self) -> None:
        """Leave it running when this object goes."""
        if self._child is not None and self._child.returncode is None:
            # Popen warns of a child that is still alive when collected; this one is meant to be.
            self._child.returncode = 0
            self._child = None

    def last_log_line(self) -> str:
        """What it wrote last."""
        return last_line(self.plan.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_answer(self, deadline_s: float, progress: Callable[[float], None] | None) -> None:
        started = time.monotonic()
        while not self.answers(timeout_s=1.0):
            waited_s = time.monotonic() - started
            if not self.is_alive():
                raise ApplianceError(f"the server did not start: {self.last_log_line()}", f"see {self.plan.log}")
            if waited_s > deadline_s:
                message = f"the server did not answer HTTPS within {deadline_s:g} s: {self.last_log_line()}"
                raise ApplianceError(message, f"see {self.plan.log}")
            if progress is not None:
                progress(waited_s)
            time.sleep(CHECK_INTERVAL_S)


def https_status(
    host: str,
    port: int,
    certificate: Path,
    *,
    path: str = "/",
    namespace: Namespace | None = None,
    timeout_s: float = 2.0,
) -> int:
    """Status code of one HTTPS GET on a new connection, made in `namespace`, to a server that shows `certificate`.

    The certificate itself is compared: who signed it does not matter to us. Errors: OSError (ssl.SSLError included).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    unconnected = namespace.socket(family) if namespace is not None else socket.socket(family)
    with unconnected:
        unconnected.settimeout(timeout_s)
        unconnected.connect((host, port))
        with context.wrap_socket(unconnected, server_hostname="localhost") as connection:
            if connection.getpeercert(binary_form=True) != _leaf(certificate):
                raise ConnectionRefusedError(f"another server than ours answers on {host} port {port}")
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return _status_code(connection)


def _status_code(connection: ssl.SSLSocket) -> int:
    head = b""
    while b"\r\n" not in head:
        received = connection.recv(4096)
        if not received or len(head) > 4096:
            raise ConnectionError("no HTTP status line came back")
        head += received
    found = re.match(rb"HTTP/1\.[01] ([1-5]\d\d) ", head)
    if found is None:
        raise ConnectionError("the answer is not HTTP/1.1")
    return int(found[1])


def _leaf(certificate: Path) -> bytes:
    """The first certificate of a PEM file, as DER."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", certificate.read_text(), re.DOTALL)
    if found is None:
        raise ConnectionError(f"{certificate} holds no PEM certificate")
    return ssl.PEM_cert_to_DER_cert(found[0])


def last_line(log: Path) -> str:
    """The last line of a log that is not empty, without the program's name; a placeholder when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    written = [line.strip() for line in lines if line.strip()]
    return written[-1].removeprefix("zeroserve: ") if written else "it wrote nothing"


def _refuse_taken_port(plan: ServerPlan) -> None:
    """zeroserve's listeners share their port (SO_REUSEPORT), so the kernel would let it join another server's."""
    host, port = plan.endpoint()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    probe = plan.namespace.socket(family) if plan.namespace is not None else socket.socket(family)
    with probe:
        probe.settimeout(1)
        if probe.connect_ex((host, port)) == 0:
            hint = "stop that server, or choose another port with --https-port"
            raise ApplianceError(f"something else listens on {host} port {port}", hint)


@contextlib.contextmanager
def _log_for_appending(log: Path) -> Iterator[int]:
    """The log as a descriptor; a big one is put aside first, so that two files bound what is kept."""
    try:
        log.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_suffix(log.suffix + ".1"))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise ApplianceError(
            f"cannot write the log {log}: {error.strerror}", "check the disk and your rights"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _spawn(plan: ServerPlan, log: int) -> subprocess.Popen[Any]:
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": log,
        "stderr": log,
        "cwd": "/",
        "start_new_session": True,
    }
    if plan.namespace is not None:
        return plan.namespace.popen(plan.argv(), cpu=plan.cpu, **options)
    with pinned(plan.cpu):
        return subprocess.Popen(plan.argv(), **options)
