"""C sources become eBPF objects, or clang's own complaint with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from zeroserve.compiler import Compiler, compile_script, find_compiler, find_compilers
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
EVERYTHING = """
#include <zeroserve.h>

static ZS_INLINE int64_t twice(int64_t number) { return 2 * number; }

static void greet(char *out, size_t cap) {
    char number[12];
    zs_utoa10((unsigned int)twice((int64_t)zs_now_ms()), number, sizeof(number));
    char *end = zs_stpcpy(out, "Hello, ");
    zs_strncpy(end, number, cap - (size_t)(end - out));
}

ZS_CALL_ENTRY(add, input) {
    return twice(input) + 1;
}

ZS_TLS_ENTRY
zs_u64 hello(void) { return 0; }

ZS_ENTRY
zs_u64 entry(void) {
    char text[160], other[160];
    zs_req_method(text, sizeof(text));
    zs_req_path(text, sizeof(text));
    zs_req_normalized_path(text, sizeof(text));
    zs_req_uri(text, sizeof(text));
    zs_req_query(text, sizeof(text));
    zs_req_scheme(text, sizeof(text));
    zs_req_peer(text, sizeof(text));
    zs_req_header(ZS_STR("X"), text, sizeof(text));
    zs_req_query_param(ZS_STR("x"), text, sizeof(text));
    if (zs_req_query_param_matches(ZS_STR("x"), ZS_STR("*")) && zs_req_is_tls())
        zs_log(ZS_STR_WITH_NULL("x"));
    if (zs_req_proto_major() == 1 && zs_req_proto_minor() == ZS_MIN(0, ZS_MAX(1, 2)))
        return 0;
    zs_memset(other, 0, sizeof(other));
    zs_memcpy(other, text, sizeof(other));
    if (zs_memcmp(other, "/admin", 6) == 0 || zs_strcmp(other, text) || zs_strncmp(other, text, 3))
        zs_respond(403, 0, 0);
    if (zs_strrchr(text, '/'))
        zs_strcpy(other, "/");
    greet(text, sizeof(text));
    zs_meta_get(ZS_STR("key"), other, sizeof(other));
    zs_meta_set(ZS_STR("zs.response.header.x-greeting"), ZS_STR(text));
    zs_respond(200, ZS_STR(text));
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


@pytest.mark.parametrize("compiler", find_compilers(), ids=lambda compiler: Path(compiler.path).name)
def test_each_compiler_of_this_machine_takes_a_script_that_uses_everything(tmp_path: Path, compiler: Compiler) -> None:
    image = compile_script(write(tmp_path, EVERYTHING), compiler=compiler)
    for section in (b"zeroserve.request", b"zeroserve.tls", b"zeroserve.call.add"):
        assert section + b"\0" in image
    # What was not written as a call is none: neither what is inlined nor what a compiler likes to make of loops.
    for name in (b"greet", b"twice", b"memset", b"memcpy", b"strlen"):
        assert b"\0" + name + b"\0" not in image


def test_a_file_name_that_looks_like_a_flag_is_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "-version.c").write_text(HEALTH)
    monkeypatch.chdir(tmp_path)
    assert b"zeroserve.request\0" in compile_script(Path("-version.c"))


def test_a_script_may_bring_its_own_header(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text('#define ANSWER "own"\n')
    source = HEALTH.replace('ZS_STR("ok")', "ZS_STR(ANSWER)").replace(
        "<zeroserve.h>", '<zeroserve.h>\n#include "own.h"'
    )
    assert b"own\0" in compile_script(write(tmp_path, source))


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


@pytest.mark.parametrize("compiler", find_compilers(), ids=lambda compiler: Path(compiler.path).name)
def test_a_frame_may_be_as_large_as_the_compiler_can_be_told(tmp_path: Path, compiler: Compiler) -> None:
    large = write(tmp_path, HEALTH.replace("char path[64]", "char path[3000]"))
    if compiler.has_large_frames:
        assert compile_script(large, compiler=compiler)
        large = write(tmp_path, HEALTH.replace("char path[64]", "char path[5000]"))
    with pytest.raises(ZeroserveError) as refusal:
        compile_script(large, compiler=compiler)
    assert ("4096 bytes of stack" if compiler.has_large_frames else "apt install clang-19") in refusal.value.hint


def test_without_clang_the_hint_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    find_compiler.cache_clear()
    try:
        with pytest.raises(ZeroserveError) as refusal:
            compile_script(write(tmp_path, HEALTH))
    finally:
        find_compiler.cache_clear()
    assert "apt install clang" in refusal.value.hint


def test_a_clang_without_bpf_is_not_taken_for_one_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "clang"
    fake.write_text("#!/bin/sh\necho 'unknown target triple' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    find_compiler.cache_clear()
    try:
        with pytest.raises(ZeroserveError) as refusal:
            compile_script(write(tmp_path, HEALTH))
    finally:
        find_compiler.cache_clear()
    assert f"{fake} cannot make eBPF" in refusal.value.message
    assert "version 14 or newer" in refusal.value.hint
