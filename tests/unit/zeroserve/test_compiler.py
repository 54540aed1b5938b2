"""C sources become eBPF objects, or clang's own complaint with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeroserve import compiler
from zeroserve.compiler import compile_script, find_compiler
from zeroserve.settings import ZeroserveError

HEALTH = """
#include <zeroserve.h>

static int is_health(const char *path) { return zs_strcmp(path, "/health") == 0; }

ZS_ENTRY zs_u64 handle(void) {
    char path[64];
    zs_req_path(path, sizeof path);
    if (is_health(path))
        zs_respond(200, ZS_STR("ok"));
    return 0;
}
"""
ELF_RELOCATABLE, ELF_BPF = 1, 247


@pytest.fixture(autouse=True)
def compiler_is_here() -> None:
    try:
        find_compiler()
    except ZeroserveError as error:
        pytest.skip(str(error))


def write(folder: Path, text: str) -> Path:
    source = folder / "10-script.c"
    source.write_text(text)
    return source


def test_a_script_becomes_a_relocatable_bpf_object_with_its_entry(tmp_path: Path) -> None:
    image = compile_script(write(tmp_path, HEALTH))
    assert image[:4] == b"\x7fELF"
    assert int.from_bytes(image[16:18], "little") == ELF_RELOCATABLE
    assert int.from_bytes(image[18:20], "little") == ELF_BPF
    assert b"zeroserve.request\0" in image
    # The static function was inlined: a section of its own could not be called.
    assert b"is_health" not in image


def test_compiling_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write(tmp_path, HEALTH)
    assert compile_script(source) == compile_script(source)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ZS_ENTRY zs_u64 handle(void) { return 0 }", "10-script.c:2"),
        ("ZS_ENTRY zs_u64 handle(void) { return zs_no_such_helper(); }", "zs_no_such_helper"),
        ("#include <stdio.h>\n", "stdio.h"),
    ],
)
def test_an_error_shows_the_place_and_clangs_words(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ZeroserveError) as refusal:
        compile_script(write(tmp_path, "#include <zeroserve.h>\n" + text))
    assert complaint in refusal.value.message
    assert refusal.value.hint == "put the source right and pack again"


def test_a_frame_may_be_as_large_as_the_compiler_can_be_told(tmp_path: Path) -> None:
    large = HEALTH.replace("char path[64]", "char path[3000]")
    if find_compiler().has_large_frames:
        assert compile_script(write(tmp_path, large))
    else:
        with pytest.raises(ZeroserveError) as refusal:
            compile_script(write(tmp_path, large))
        assert "apt install clang-19" in refusal.value.hint


def test_without_clang_the_hint_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    find_compiler.cache_clear()
    try:
        with pytest.raises(ZeroserveError) as refusal:
            compile_script(write(tmp_path, HEALTH))
    finally:
        compiler.find_compiler.cache_clear()
    assert "apt install clang" in refusal.value.hint
