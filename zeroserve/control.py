"""The server process's own life: start, reload on SIGHUP, drain on SIGTERM. Requests are the engine's business."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sys

import uvloop

from zeroserve._engine import EngineError, Server
from zeroserve.certificates import load_pair
from zeroserve.settings import ServerSettings, ZeroserveError


def log(message: str) -> None:
    """Write one line to standard error. Where nobody can read it any more, serving goes on."""
    with contextlib.suppress(OSError):
        print(f"zeroserve: {message}", file=sys.stderr, flush=True)


def run(settings: ServerSettings) -> int:
    """Serve until told to stop. Returns the exit status: 0 after a drain, 1 when a worker failed.

    Raises ZeroserveError when the server cannot start.
    """
    _raise_descriptor_limit()
    return uvloop.run(_Process(settings).live())


def _raise_descriptor_limit() -> None:
    """Each connection is a descriptor, and the usual soft limit of 1024 is for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Process:
    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._reload_wanted = asyncio.Event()
        self._is_draining = False

    async def live(self) -> int:
        loop = asyncio.get_running_loop()
        server = self._start()
        # Installed before the line that says "serving": whoever reads it may signal at once.
        loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, server)
        self._announce(server)
        reloading = loop.create_task(self._reload_when_told(server))
        cut_off, failure = await loop.run_in_executor(None, server.wait)
        reloading.cancel()
        if failure is not None:
            log(f"a worker failed: {failure}")
            return 1
        log(f"stopped; {cut_off} connection(s) cut off" if cut_off else "stopped")
        return 0

    def _start(self) -> Server:
        settings = self._settings
        try:
            return Server(
                str(settings.site),
                plain=[str(address) for address in settings.plain_addresses],
                tls=[str(address) for address in settings.tls_addresses],
                certificate=self._certificate(),
                workers=settings.worker_count,
                header_timeout_s=settings.header_timeout_s,
                keep_alive_timeout_s=settings.keep_alive_timeout_s,
                stall_timeout_s=settings.stall_timeout_s,
                preempt_interval_ms=settings.preempt_interval_ms,
            )
        except EngineError as error:
            raise ZeroserveError(f"{error}", "nothing is served; put it right and start again") from None

    def _certificate(self) -> tuple[bytes, bytes] | None:
        if self._settings.cert is None or self._settings.key is None:
            return None
        pair = load_pair(self._settings.cert, self._settings.key)
        return pair.cert_pem, pair.key_pem

    def _announce(self, server: Server) -> None:
        urls = [f"https://{address}" for address in server.tls_addresses]
        urls += [f"http://{address}" for address in server.plain_addresses]
        count = self._settings.worker_count
        workers = "1 worker" if count == 1 else f"{count} workers"
        log(f"serving {self._settings.site} on {', '.join(urls)} with {workers}, io_uring")

    async def _reload_when_told(self, server: Server) -> None:
        """Reload once for all the signals that came while the last reload ran."""
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            try:
                certificate = self._certificate()
                await asyncio.to_thread(server.reload, certificate)
            except (EngineError, ZeroserveError) as error:
                log(f"reload refused, the old site stays: {error}")
            else:
                log(f"reloaded {self._settings.site}")

    def _drain(self, server: Server) -> None:
        # A second signal means: now.
        limit_s = 0.0 if self._is_draining else self._settings.drain_timeout_s
        if not self._is_draining:
            log(f"stopping: requests in flight have {limit_s:g} s to finish")
        self._is_draining = True
        server.drain(limit_s)
