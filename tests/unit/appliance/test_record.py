"""The record of what is up is whole or absent, and a damaged one says what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance import record
from appliance.process import ProcessIdentity
from appliance.record import Record
from appliance.settings import ApplianceError, Settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of this machine's own appliance is not to be touched."""
    path = tmp_path / "appliance.json"
    monkeypatch.setattr(record, "RECORD", path)
    return path


def test_record_survives_writing() -> None:
    myself = ProcessIdentity.of(os.getpid())
    assert myself is not None
    written = Record(Settings("eth0", site=Path("/site.tar")), myself, ProcessIdentity(7, 99))
    assert Record.load() is None
    written.save()
    assert Record.load() == written
    written.with_server(None).save()
    loaded = Record.load()
    assert loaded is not None and loaded.server is None
    record.forget()
    assert Record.load() is None
    record.forget()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 1, "settings": 3, "server": null}']
)
def test_damaged_record_is_refused_with_the_way_out(elsewhere: Path, content: str) -> None:
    elsewhere.write_text(content)
    with pytest.raises(ApplianceError, match="zs-appliance down"):
        Record.load()


def test_record_of_another_version_is_refused(elsewhere: Path) -> None:
    elsewhere.write_text('{"schema": 99}')
    with pytest.raises(ApplianceError, match="another version"):
        Record.load()
