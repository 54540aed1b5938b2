"""The Python mirror of maps.h says the same as maps.h."""

from __future__ import annotations

import re
from importlib.resources import files

from xdp import layout, packet

MAPS = (files("xdp") / "maps.h").read_text()
PARSE = (files("xdp") / "parse.h").read_text()


def enumerators(text: str, name: str) -> list[str]:
    body = re.search(rf"enum {name} {{(.*?)}};", text, re.DOTALL)
    assert body is not None
    return re.findall(r"\bZS_(\w+)", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL))


def number(text: str, name: str) -> int:
    found = re.search(rf"\bZS_{name} = ([0-9x<< a-f]+)", text)
    assert found is not None
    shifted = found[1].strip().split(" << ")
    return int(shifted[0], 0) << int(shifted[1]) if len(shifted) == 2 else int(shifted[0], 0)


def test_verdicts_and_reasons_have_the_same_order() -> None:
    assert enumerators(MAPS, "zs_verdict") == [verdict.name for verdict in layout.VERDICT_CODES] + ["VERDICTS"]
    assert enumerators(MAPS, "zs_reason") == [reason.name for reason in layout.REASON_CODES] + ["REASONS"]


def test_state_bits_and_limits_are_the_same() -> None:
    assert {name: number(MAPS, f"STATE_{name}") for name in layout.State.__members__} == dict(layout.State.__members__)
    assert number(MAPS, "SLOTS") == layout.SLOTS
    assert number(MAPS, "SAMPLE_EVERY") == layout.SAMPLE_EVERY
    assert number(PARSE, "MAX_VLAN_TAGS") == packet.MAX_VLAN_TAGS
    assert number(PARSE, "MAX_EXTENSIONS") == packet.MAX_EXTENSIONS
