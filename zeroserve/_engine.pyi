"""What the Rust engine offers to Python; made in engine/src/python.rs."""

from typing import final

class EngineError(Exception):
    """The engine cannot do what was asked; the text says why."""

def notice(message: str) -> None:
    """Write one line to standard error with the program's name before it; left out when it would have to wait."""

@final
class Server:
    """A running server: worker threads that need no Python."""

    def __new__(
        cls,
        site: str,
        *,
        plain: list[str],
        tls: list[str],
        certificate: tuple[bytes, bytes] | None,
        workers: int,
        header_timeout_s: float,
        keep_alive_timeout_s: float,
        stall_timeout_s: float,
        preempt_interval_ms: int,
    ) -> Server:
        """Load the site, bind the addresses (`A:P`), start the workers. Raises EngineError."""

    @property
    def plain_addresses(self) -> list[str]:
        """The addresses without TLS, with the ports that the system chose."""

    @property
    def tls_addresses(self) -> list[str]:
        """The addresses with TLS, with the ports that the system chose."""

    def reload(self, certificate: tuple[bytes, bytes] | None) -> None:
        """Load the site again and swap it in. Raises EngineError, and then nothing has changed."""

    def drain(self, limit_s: float) -> None:
        """Accept no more; let what is in flight finish within the limit (seconds). Returns at once."""

    def wait(self) -> tuple[int, str | None]:
        """Block until the server has ended: (connections cut off, what failed or None)."""
