"""What can be set for a server, with defaults and checks. Nothing here reads a command line or starts anything."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PLAIN_ADDRESS = "127.0.0.1:8080"
MAX_WORKERS = 1024


class ZeroserveError(Exception):
    """What the user has to put right: `message` says what and where, `hint` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: an IP address and a TCP port (0: the system chooses)."""

    ip: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str, flag: str) -> Address:
        """Read `192.0.2.1:443` or `[2001:db8::1]:443`; `flag` names the option in the error."""
        host, colon, port = text.rpartition(":")
        hint = "write it as 192.0.2.1:443 or [2001:db8::1]:443"
        if not colon:
            raise ZeroserveError(f"{flag} {text}: the port is missing", hint)
        if not (port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ZeroserveError(f"{flag} {text}: the port is not a number from 0 to 65535", hint)
        bracketed = host.startswith("[") and host.endswith("]")
        try:
            ip = ipaddress.ip_address(host[1:-1] if bracketed else host)
        except ValueError:
            raise ZeroserveError(f"{flag} {text}: {host or 'nothing'} is not an IP address", hint) from None
        if bracketed != (ip.version == 6):
            raise ZeroserveError(f"{flag} {text}: brackets go around IPv6 addresses, and only those", hint)
        return cls(ip, int(port))

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server process. Times are in seconds unless the name says otherwise."""

    site: Path
    plain_addresses: tuple[Address, ...] = ()
    tls_addresses: tuple[Address, ...] = ()
    cert: Path | None = None
    key: Path | None = None
    workers: int = 0
    """Worker threads; 0 means one for each core that the process may use."""
    header_timeout_s: float = 10.0
    keep_alive_timeout_s: float = 75.0
    stall_timeout_s: float = 30.0
    drain_timeout_s: float = 30.0
    preempt_interval_ms: int = 2

    def __post_init__(self) -> None:
        if self.tls_addresses and not (self.cert and self.key):
            raise ZeroserveError("--tls-addr is given without a certificate", "add --cert FILE and --key FILE")
        if (self.cert or self.key) and not self.tls_addresses:
            raise ZeroserveError(
                "--cert and --key are of no use without --tls-addr", "add --tls-addr ADDRESS:PORT, or leave them out"
            )
        if not (self.plain_addresses or self.tls_addresses):
            raise ZeroserveError("there is no address to listen on", "add --addr or --tls-addr ADDRESS:PORT")
        if not 0 <= self.workers <= MAX_WORKERS:
            raise ZeroserveError(
                f"--workers {self.workers} is not from 0 to {MAX_WORKERS}", "0 means one for each core"
            )
        if not 1 <= self.preempt_interval_ms <= 1000:
            raise ZeroserveError(
                f"--preempt-timer-interval-ms {self.preempt_interval_ms} is not from 1 to 1000", "leave it out for 2 ms"
            )
        for flag, value in (
            ("--header-timeout", self.header_timeout_s),
            ("--keep-alive-timeout", self.keep_alive_timeout_s),
            ("--stall-timeout", self.stall_timeout_s),
            ("--drain-timeout", self.drain_timeout_s),
        ):
            if not 0 < value <= 86_400:
                raise ZeroserveError(f"{flag} {value:g} is not between 0 and 86400 seconds", "give a number of seconds")

    @property
    def worker_count(self) -> int:
        """The number of worker threads, the default resolved."""
        return self.workers or len(os.sched_getaffinity(0))
