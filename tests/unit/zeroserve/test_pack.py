"""A directory becomes a site: the same bytes each time, scripts compiled, what cannot be held refused in one line."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zeroserve.compiler import find_compiler
from zeroserve.pack import PackSummary, pack_directory
from zeroserve.settings import ZeroserveError

SCRIPT = """
#include <zeroserve.h>
ZS_ENTRY zs_u64 handle(void) {
    zs_respond(200, ZS_STR("ok"));
    return 0;
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "public"
    write(tree, {"index.html": b"<p>hello", "b/style.css": b"p{}", "a-b/x.txt": b"x", "B.txt": b"", "b.txt": b"b"})
    return tree


def write(tree: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def pack(tree: Path) -> bytes:
    output = io.BytesIO()
    pack_directory(tree, output)
    return output.getvalue()


def members(site: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(site)) as archive:
        contents = {}
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None, f"{member.name} is not a file"
            contents[member.name] = content.read()
        return contents


def refusal(tree: Path) -> ZeroserveError:
    with pytest.raises(ZeroserveError) as caught:
        pack(tree)
    assert "\n" not in str(caught.value)
    return caught.value


def test_files_go_in_by_name_order_with_their_content(tree: Path) -> None:
    expected = {"B.txt": b"", "a-b/x.txt": b"x", "b.txt": b"b", "b/style.css": b"p{}", "index.html": b"<p>hello"}
    assert list(members(pack(tree)).items()) == list(expected.items())


def test_the_same_tree_gives_the_same_bytes_whoever_packs_it_where(tree: Path, tmp_path: Path) -> None:
    site = pack(tree)
    copy = tmp_path / "elsewhere" / "copy"
    # Created in another order, with other modes and another owner; only contents and times are the same.
    for path in sorted((path for path in tree.rglob("*") if path.is_file()), reverse=True):
        place = copy / path.relative_to(tree)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        place.chmod(0o600)
        status = path.stat()
        os.utime(place, ns=(0, status.st_mtime_ns))
        if os.geteuid() == 0:
            os.chown(place, 1234, 1234)
    assert pack(copy) == site
    (copy / "b.txt").write_bytes(b"c")
    assert pack(copy) != site


def test_owners_and_modes_are_left_out_and_times_are_whole_seconds(tree: Path) -> None:
    os.utime(tree / "index.html", (1_700_000_000.75, 1_700_000_000.75))
    with tarfile.open(fileobj=io.BytesIO(pack(tree))) as archive:
        for member in archive:
            assert (member.uid, member.gid, member.uname, member.gname, member.mode) == (0, 0, "", "", 0o644)
            assert "mtime" not in member.pax_headers
        assert archive.getmember("index.html").mtime == 1_700_000_000


def test_any_utf8_name_of_any_length_comes_back(tree: Path) -> None:
    names = {"ä ö/日本.txt": b"1", "d" * 120 + "/" + "n" * 200: b"2", "new\nline": b"3"}
    write(tree, names)
    site = pack(tree)
    assert names.items() <= members(site).items()
    # GNU tar reads it too.
    listed = subprocess.run(["tar", "-tf", "-"], input=site, capture_output=True, check=True).stdout
    assert b"d" * 120 + b"/" + b"n" * 200 in listed


def test_progress_counts_up_to_all_bytes(tree: Path) -> None:
    seen: list[tuple[int, int]] = []
    summary = pack_directory(tree, io.BytesIO(), lambda done, total: seen.append((done, total)))
    assert summary == PackSummary(files=5, scripts=0, content_bytes=13, hidden=0)
    assert seen[-1] == (13, 13)
    assert seen == sorted(seen) and {total for _, total in seen} == {13}


def test_compiled_objects_go_in_as_they_are(tree: Path) -> None:
    write(tree, {".zeroserve/scripts/10-a.o": b"\x7fELF object", ".zeroserve/scripts/lib/x.c": b"not a script"})
    output = io.BytesIO()
    assert pack_directory(tree, output).scripts == 1
    contents = members(output.getvalue())
    assert contents[".zeroserve/scripts/10-a.o"] == b"\x7fELF object"
    assert contents[".zeroserve/scripts/lib/x.c"] == b"not a script"


def test_a_c_file_outside_the_scripts_folder_is_content(tree: Path) -> None:
    write(tree, {"download/hello.c": b"int main;"})
    assert members(pack(tree))["download/hello.c"] == b"int main;"


class TestWithCompiler:
    @pytest.fixture(autouse=True)
    def compiler_is_here(self) -> None:
        try:
            find_compiler()
        except ZeroserveError as error:
            pytest.skip(str(error))

    def test_sources_are_compiled_and_left_out(self, tree: Path, tmp_path: Path) -> None:
        write(tree, {".zeroserve/scripts/10-a.c": SCRIPT.encode(), ".zeroserve/scripts/shared.h": b""})
        site = pack(tree)
        contents = members(site)
        assert contents[".zeroserve/scripts/10-a.o"][:4] == b"\x7fELF"
        assert b"zeroserve.request\0" in contents[".zeroserve/scripts/10-a.o"]
        assert ".zeroserve/scripts/10-a.c" not in contents
        shutil.copytree(tree, tmp_path / "elsewhere")
        assert pack(tmp_path / "elsewhere") == site, "the object must not say where it was compiled"

    def test_a_source_that_does_not_compile_is_named_with_its_line(self, tree: Path) -> None:
        write(tree, {".zeroserve/scripts/10-a.c": b"int x = ;\n"})
        with pytest.raises(ZeroserveError, match=r"10-a\.c:1:9: error"):
            pack(tree)

    def test_a_source_beside_its_object_is_refused(self, tree: Path) -> None:
        write(tree, {".zeroserve/scripts/10-a.c": SCRIPT.encode(), ".zeroserve/scripts/10-a.o": b"\x7fELF"})
        error = refusal(tree)
        assert "becomes .zeroserve/scripts/10-a.o too" in error.message
        assert error.hint == "keep the source or the object"


def test_a_link_within_the_site_goes_in_as_a_copy(tree: Path) -> None:
    (tree / "copy.html").symlink_to("index.html")
    (tree / "b/up.txt").symlink_to("../a-b/x.txt")
    (tree / "chain.html").symlink_to(tree / "copy.html")
    contents = members(pack(tree))
    assert contents["copy.html"] == contents["chain.html"] == b"<p>hello"
    assert contents["b/up.txt"] == b"x"


def test_hard_links_go_in_as_files(tree: Path) -> None:
    os.link(tree / "index.html", tree / "same.html")
    assert members(pack(tree))["same.html"] == b"<p>hello"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("../secret.txt", "is a link that leads out of the site, to"),
        ("/etc/passwd", "is a link that leads out of the site, to /etc/passwd"),
        ("missing", "is a link that leads nowhere"),
        ("link", "is a link that leads nowhere"),
        ("b", "is a link to a folder"),
        (".", "is a link to a folder"),
    ],
)
def test_a_link_to_anything_else_is_refused(tree: Path, target: str, message: str) -> None:
    (tree.parent / "secret.txt").write_text("secret")
    (tree / "link").symlink_to(target)
    assert f"{tree / 'link'} {message}" in refusal(tree).message


def test_sockets_pipes_and_devices_are_refused(tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "s"))
        assert refusal(tree).message == f"{tree / 's'} is a socket, which a site cannot hold"
    (tree / "s").unlink()
    os.mkfifo(tree / "b" / "p")
    assert refusal(tree).message == f"{tree / 'b/p'} is a named pipe, which a site cannot hold"
    (tree / "b" / "p").unlink()
    (tree / "null").symlink_to("/dev/null")
    assert "leads out of the site, to /dev/null" in refusal(tree).message


def test_a_name_that_is_not_utf8_is_refused(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9.txt")).write_bytes(b"")
    error = refusal(tree)
    assert "caf\\xe9.txt': the name is not UTF-8" in error.message


def test_a_directory_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path).message == f"--pack {tmp_path}: there is no file in it"


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(tmp_path / name).message == f"--pack {tmp_path / name}: not a directory"


def test_a_file_that_shrinks_while_it_is_packed_is_refused(tree: Path) -> None:
    content = tree / "z.bin"
    content.write_bytes(bytes(1 << 20))

    class Shrinking(io.BytesIO):
        """An output that cuts the file when its first block is written, as another process might."""

        def write(self, data: bytes, /) -> int:  # type: ignore[override]
            if len(data) > 10_000:
                os.truncate(content, 10)
            return super().write(data)

    with pytest.raises(ZeroserveError) as caught:
        pack_directory(tree, Shrinking())
    assert str(caught.value) == f"{content}: unexpected end of data; pack again when nothing writes to it"


def test_the_tarball_itself_is_passed_over(tree: Path) -> None:
    expected = pack(tree)
    with (tree / "site.tar").open("wb") as output:
        status = os.fstat(output.fileno())
        pack_directory(tree, output, leave_out=(status.st_dev, status.st_ino))
    assert (tree / "site.tar").read_bytes() == expected


def test_a_file_that_goes_away_while_the_folder_is_read_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = os.walk

    def walk_and_remove(
        top: Path, onerror: Callable[[OSError], object]
    ) -> Iterator[tuple[str | Path, list[str], list[str]]]:
        listed = list(walk(top, onerror=onerror))
        (tree / "b.txt").unlink()
        return iter(listed)

    monkeypatch.setattr(os, "walk", walk_and_remove)
    assert str(refusal(tree)) == f"{tree}/b.txt: No such file or directory; pack again when nothing writes to it"


def test_a_path_longer_than_the_system_allows_is_refused_in_one_line(tree: Path) -> None:
    folder = os.open(tree, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("deep.txt", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    assert refusal(tree).message.endswith(": File name too long")


@pytest.mark.parametrize(
    ("redirect", "reason"),
    [
        (">/dev/full", "No space left on device"),
        (">&- 2>&-", None),
        ("| head -c 10 >/dev/null", "Broken pipe"),
    ],
)
def test_an_output_that_takes_no_tarball_is_one_line_and_status_2(
    tree: Path, redirect: str, reason: str | None
) -> None:
    write(tree, {"big.bin": bytes(1 << 20)})
    command = f'"{sys.executable}" -P -m zeroserve --pack "{tree}" {redirect}; echo "${{PIPESTATUS[0]}}" >&2'
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    if reason is None:
        # Closed is as good as /dev/null, which is what the shell's user will have meant.
        assert result.stderr.splitlines()[-1] == "0"
    else:
        first, status = result.stderr.splitlines()
        assert first.startswith(f"zeroserve: the tarball cannot be written: {reason}; ")
        assert status == "2"


def test_hidden_names_stay_out_and_are_counted(tree: Path) -> None:
    write(
        tree,
        {
            "index.html": b"x",
            ".env": b"SECRET",
            ".git/config": b"x",
            "docs/.draft.md": b"x",
            "docs/.zeroserve/x": b"x",
            ".well-known/security.txt": b"public",
            ".zeroserve/notes": b"kept, never served",
        },
    )
    output = io.BytesIO()
    summary = pack_directory(tree, output)
    output.seek(0)
    with tarfile.open(fileobj=output) as archive:
        names = set(archive.getnames())
    assert {".well-known/security.txt", ".zeroserve/notes", "index.html"} <= names
    assert not [name for name in names if ".env" in name or ".git" in name or "docs/." in name]
    assert summary.hidden == 4


@pytest.mark.parametrize("preamble", [b"", b"-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n"])
def test_a_private_key_in_a_public_place_is_refused(tree: Path, preamble: bytes) -> None:
    from zeroserve.certificates import self_signed

    key = preamble + self_signed(["localhost"]).key_pem
    write(tree, {".zeroserve/tls/key.pem": key, "about-keys.html": b"<pre>" + key})
    pack_directory(tree, io.BytesIO())
    write(tree, {"tls/key.pem": key})
    with pytest.raises(ZeroserveError, match=r"key\.pem is a private key, and would be public"):
        pack_directory(tree, io.BytesIO())
