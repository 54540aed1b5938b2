"""What can be set for the appliance, with defaults and checks, and the one error the appliance shows to people.

No flags are parsed here and nothing is started.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

# What lives until the next boot: sockets, locks, the record of what is up. systemd's own choice for services.
RUN_DIRECTORY = Path("/run/zs")
# What survives boots: the certificate made for this machine, logs.
STATE_DIRECTORY = Path("/var/lib/zs")


class ApplianceError(Exception):
    """Something the operator has to know: what went wrong and, when there is a way out, what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Settings:
    """One appliance, fully decided: two `up` with equal settings mean the same appliance.

    `interface` is where packets arrive; with `lab` it is the edge's end of the lab. `site` None is the built-in welcome
    site, `policy` None drops nothing, `certificate` and `key` None are a self-signed pair kept in `state_directory`.
    """

    interface: str
    lab: bool = False
    site: Path | None = None
    policy: Path | None = None
    https_port: int = 443
    certificate: Path | None = None
    key: Path | None = None
    state_directory: Path = STATE_DIRECTORY
    # How a policy is judged, not what the appliance is: takes no part in comparing two.
    force: bool = field(default=False, compare=False)

    def checked(self) -> Self:
        """These settings, when every part can be used as it stands. Errors: ApplianceError naming the flag."""
        if not 1 <= self.https_port <= 65535:
            raise ApplianceError(f"--https-port {self.https_port} is not a port", "use 1 to 65535")
        if (self.certificate is None) != (self.key is None):
            given, missing = ("--cert", "--key") if self.key is None else ("--key", "--cert")
            raise ApplianceError(f"{given} without {missing}", "give both or neither")
        for flag, path in (
            ("--site", self.site),
            ("--policy", self.policy),
            ("--cert", self.certificate),
            ("--key", self.key),
        ):
            if path is not None:
                _check_readable(flag, path)
        if not self.lab and not Path("/sys/class/net", self.interface).exists():
            raise ApplianceError(f"--iface {self.interface}: no such interface", "see: ip link")
        return self

    def as_json(self) -> dict[str, Any]:
        """Fields by name, paths as text."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `as_json`. Errors: ApplianceError for fields that are not those of this version."""
        paths = ("site", "policy", "certificate", "key", "state_directory")
        values: dict[str, Any] = dict(fields)
        try:
            values.update({name: Path(values[name]) for name in paths if values[name] is not None})
            return cls(**values)
        except (TypeError, KeyError) as error:
            raise ApplianceError("settings of another version of zs-appliance", "zs-appliance down") from error


def _check_readable(flag: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except IsADirectoryError as error:
        hint = f"pack it first: zeroserve --pack {path} > site.tar" if flag == "--site" else "name a file"
        raise ApplianceError(f"{flag} {path} is a directory", hint) from error
    except OSError as error:
        raise ApplianceError(f"{flag} {path}: {error.strerror}", "check the path") from error
