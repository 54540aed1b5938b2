"""What is up, written down for whoever comes after a killed control process: `up` adopts by it, `down` clears by it.

It lies in /run, so a reboot forgets it together with the processes and programs it speaks of.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from appliance.process import ProcessIdentity
from appliance.settings import RUN_DIRECTORY, ApplianceError, Settings

RECORD = RUN_DIRECTORY / "appliance.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """The settings of the appliance that is up or was being brought up, its control process and its server."""

    settings: Settings
    control: ProcessIdentity
    server: ProcessIdentity | None = None

    def with_server(self, server: ProcessIdentity | None) -> Self:
        return replace(self, server=server)

    def save(self) -> None:
        """Write it, all or nothing. Errors: ApplianceError."""
        unfinished = RECORD.with_suffix(".tmp")
        fields: dict[str, Any] = {"schema": SCHEMA, "settings": self.settings.as_json()}
        for name, identity in (("control", self.control), ("server", self.server)):
            fields[name] = None if identity is None else [identity.pid, identity.start_ticks]
        try:
            RUN_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
            unfinished.write_text(json.dumps(fields))
            unfinished.replace(RECORD)
        except OSError as error:
            raise ApplianceError(f"cannot write {RECORD}: {error.strerror}", "run as root") from error

    @classmethod
    def load(cls) -> Self | None:
        """The record there is; None when nothing was left. Errors: ApplianceError when it cannot be read."""
        try:
            fields = json.loads(RECORD.read_text())
            if fields["schema"] != SCHEMA:
                raise ApplianceError(f"{RECORD} is from another version of zs-appliance", "zs-appliance down")
            server = fields["server"]
            return cls(
                Settings.from_json(fields["settings"]),
                ProcessIdentity(*fields["control"]),
                None if server is None else ProcessIdentity(*server),
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ApplianceError(f"cannot read {RECORD}: {error.strerror}", "run as root") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ApplianceError(f"{RECORD} is damaged", "zs-appliance down") from error


def forget() -> None:
    """Remove the record. Doing it twice does nothing."""
    for path in (RECORD, RECORD.with_suffix(".tmp")):
        Path(path).unlink(missing_ok=True)
