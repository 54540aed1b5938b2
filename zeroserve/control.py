"""The server process's own life: start, reload on SIGHUP, drain on SIGTERM. Requests are the engine's business."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading

import uvloop

from zeroserve._engine import EngineError, Server, notice
from zeroserve.certificates import load_pair
from zeroserve.settings import ServerSettings, ZeroserveError


def run(settings: ServerSettings) -> int:
    """Serve until told to stop. Returns the exit status: 0 after a drain, 1 when a worker failed.

    Raises ZeroserveError when the server cannot start.
    """
    _raise_descriptor_limit()
    process = _Process(settings)
    status = uvloop.run(process.live())
    if process.is_reloading:
        # Its thread is deep in the engine, reading a site that nobody will ask for, and would be cut off there anyway.
        os._exit(status)
    return status


def _raise_descriptor_limit() -> None:
    """Each connection is a descriptor, and the usual soft limit of 1024 is for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Process:
    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._reload_wanted = threading.Event()
        self._is_draining = False
        self.is_reloading = False

    async def live(self) -> int:
        loop = asyncio.get_running_loop()
        # Before the start, which takes long with a large site: what was changed meanwhile is read after it.
        loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
        server = self._start()
        # Installed before the line that says "serving": whoever reads it may signal at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, server)
        self._announce(server)
        # A thread of its own that nobody waits for: a reload may take longer than the server lives.
        threading.Thread(target=self._reload_when_told, args=(server,), name="zs-reload", daemon=True).start()
        cut_off, failure = await loop.run_in_executor(None, server.wait)
        if failure is not None:
            notice(f"a worker failed: {failure}")
            return 1
        notice(f"stopped; {cut_off} connection(s) cut off" if cut_off else "stopped")
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
        notice(f"serving {self._settings.site} on {', '.join(urls)} with {workers}, io_uring")

    def _reload_when_told(self, server: Server) -> None:
        """Reload once for all the signals that came while the last reload ran."""
        while True:
            self.is_reloading = False
            self._reload_wanted.wait()
            self._reload_wanted.clear()
            self.is_reloading = True
            try:
                server.reload(self._certificate())
            except (EngineError, ZeroserveError) as error:
                notice(f"reload refused, the old site stays: {error}")
            else:
                notice(f"reloaded {self._settings.site}")

    def _drain(self, server: Server) -> None:
        # A second signal means: now.
        limit_s = 0.0 if self._is_draining else self._settings.drain_timeout_s
        if not self._is_draining:
            notice(f"stopping: requests in flight have {limit_s:g} s to finish")
        self._is_draining = True
        server.drain(limit_s)
