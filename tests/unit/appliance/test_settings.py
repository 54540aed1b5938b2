"""Settings are checked where they come in, survive the way to the control process, and say when two are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.settings import ApplianceError, Settings

LAB = Settings(interface="zs-edge0", lab=True)


def test_settings_survive_json() -> None:
    full = Settings("eth7", False, Path("/a.tar"), Path("/p"), 8443, Path("/c"), Path("/k"), Path("/s"), True)
    assert Settings.from_json(full.as_json()) == full
    assert Settings.from_json(LAB.as_json()) == LAB
    assert Settings.from_json(full.as_json()).force is True


def test_settings_of_another_version_are_refused() -> None:
    for fields in ({**LAB.as_json(), "colour": "red"}, {"interface": "eth0"}):
        with pytest.raises(ApplianceError, match="another version"):
            Settings.from_json(fields)


def test_force_does_not_make_another_appliance() -> None:
    assert replace(LAB, force=True) == LAB
    assert replace(LAB, https_port=444) != LAB


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(ApplianceError, match=f"--https-port {port} is not a port"):
        replace(LAB, https_port=port).checked()


def test_certificate_and_key_go_together(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("pem")
    with pytest.raises(ApplianceError, match="--cert without --key"):
        replace(LAB, certificate=pem).checked()
    with pytest.raises(ApplianceError, match="--key without --cert"):
        replace(LAB, key=pem).checked()


def test_missing_file_is_named_with_its_flag(tmp_path: Path) -> None:
    with pytest.raises(ApplianceError, match=r"^--site .*absent: No such file"):
        replace(LAB, site=tmp_path / "absent").checked()
    with pytest.raises(ApplianceError, match=r"^--policy .*absent: No such file"):
        replace(LAB, policy=tmp_path / "absent").checked()


def test_directory_as_site_is_told_how_to_pack(tmp_path: Path) -> None:
    with pytest.raises(ApplianceError, match="is a directory; pack it first: zeroserve --pack"):
        replace(LAB, site=tmp_path).checked()


def test_interface_that_is_not_there_is_refused() -> None:
    with pytest.raises(ApplianceError, match="--iface zs-none0: no such interface"):
        Settings(interface="zs-none0").checked()
    assert Settings(interface="lo").checked().interface == "lo"
