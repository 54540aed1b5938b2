"""What can be set for the appliance, with defaults and checks, and the one error the appliance shows to people.

No flags are parsed here and nothing is started.
"""

from __future__ import annotations

from pathlib import Path

RUN_DIRECTORY = Path("/run/zs")


class ApplianceError(Exception):
    """Something the operator has to know: what went wrong and, when there is a way out, what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message
