"""Directory to site: the tarball with its scripts compiled. The same tree always gives the same bytes."""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from zeroserve.settings import ZeroserveError

SCRIPTS = Path(".zeroserve/scripts")
# Other names with a dot are an editor's, a version control's or a secret's, and must not become public unasked.
PACKED_HIDDEN = frozenset({".zeroserve", ".well-known"})
# A key may stand behind its parameters or its certificates.
KEY_BYTES = 16 << 10
Progress = Callable[[int, int], None]
# What writing runs into, and reading does not.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class PackSummary:
    """What a packed site holds."""

    files: int
    scripts: int
    content_bytes: int
    hidden: int
    """Files and folders with a dot before their names, which were left out."""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    source: Path
    is_script_source: bool
    size: int
    mtime: int


def pack_directory(
    directory: Path,
    output: BinaryIO,
    progress: Progress | None = None,
    *,
    leave_out: tuple[int, int] | None = None,
) -> PackSummary:
    """Write `directory` as a site.

    Names are sorted; owners are left out, modes are 0644, and modification times (whole seconds) stay, since browsers
    are told them. `.zeroserve/scripts/*.c` are compiled and go in as `.o`; the sources stay out. A link to a file
    within the directory goes in as a copy of that file. `progress` is called with the bytes done and all bytes.
    Hidden files and folders are left out, but for `.zeroserve` and `.well-known`; so is the file whose device and
    inode `leave_out` names: the tarball itself, when it is being written into the directory.

    Raises ZeroserveError for what a site cannot hold: private keys in public places, links to elsewhere, devices,
    sockets, names that are not UTF-8, a script that does not compile, files that change meanwhile; OSError when there
    is no room for the output. What was written by then is no site.
    """
    try:
        members, hidden = _collect(directory, leave_out)
    except OSError as error:
        raise _unreadable(error.filename, error) from None
    total = sum(member.size for member in members)
    done = scripts = 0
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            _add(archive, member)
            scripts += member.name.startswith(f"{SCRIPTS}/") and member.name.endswith(".o")
            done += member.size
            if progress is not None:
                progress(done, total)
    return PackSummary(len(members), scripts, total, hidden)


def _collect(directory: Path, leave_out: tuple[int, int] | None) -> tuple[list[_Member], int]:
    if not directory.is_dir():
        raise ZeroserveError(f"--pack {directory}: not a directory", "name the directory that holds the site")
    members: dict[str, _Member] = {}
    paths, hidden = _walk(directory)
    for path in paths:
        status = path.lstat()
        if (status.st_dev, status.st_ino) == leave_out:
            continue
        member = _member(directory, path, status)
        if member.name in members:
            raise ZeroserveError(
                f"{path}: {members[member.name].source} becomes {member.name} too", "keep the source or the object"
            )
        members[member.name] = member
    if not members:
        raise ZeroserveError(f"--pack {directory}: there is no file in it", "put an index.html there, for a start")
    return [members[name] for name in sorted(members)], hidden


def _walk(directory: Path) -> tuple[list[Path], int]:
    """What is to be packed, and how many hidden names are not."""
    found: list[Path] = []
    hidden = 0

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(directory, onerror=refuse):
        spared = PACKED_HIDDEN if Path(folder) == directory else frozenset()
        for names in (folders, files):
            shown = [name for name in names if not name.startswith(".") or name in spared]
            hidden += len(names) - len(shown)
            # In place: what is not in `folders` is not entered.
            names[:] = shown
        found += [Path(folder, name) for name in files]
        # A link to a folder is listed as a folder and not entered; it must not vanish without a word.
        found += [Path(folder, name) for name in folders if Path(folder, name).is_symlink()]
    return found, hidden


def _member(directory: Path, path: Path, status: os.stat_result) -> _Member:
    source = path
    if stat.S_ISLNK(status.st_mode):
        source = _target(directory, path)
        status = source.lstat()
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something that is no file")
    if kind:
        raise ZeroserveError(f"{path} is {kind}, which a site cannot hold", "put a file there, or take it away")
    name = path.relative_to(directory).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ZeroserveError(f"{os.fsencode(path)!r}: the name is not UTF-8", "rename the file") from None
    is_source = path.suffix == ".c" and path.relative_to(directory).parent == SCRIPTS
    return _Member(
        name=f"{name[:-2]}.o" if is_source else name,
        source=source,
        is_script_source=is_source,
        size=status.st_size,
        mtime=int(status.st_mtime),
    )


def _target(directory: Path, link: Path) -> Path:
    """The file that a link stands for; it may not lead out of the directory, nor to a folder, which could hold it."""
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a circle, before Python 3.13
        raise ZeroserveError(f"{link} is a link that leads nowhere", "put the file there, or take it away") from None
    if not target.is_relative_to(directory.resolve()):
        raise ZeroserveError(f"{link} is a link that leads out of the site, to {target}", "put a copy there instead")
    if target.is_dir():
        raise ZeroserveError(f"{link} is a link to a folder", "put a copy there instead")
    return target


_KINDS = {
    stat.S_IFREG: "",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


def _add(archive: tarfile.TarFile, member: _Member) -> None:
    header = tarfile.TarInfo(member.name)
    header.mode = 0o644
    header.mtime = member.mtime
    if member.is_script_source:
        # Imported here: a site without sources needs no compiler.
        from zeroserve.compiler import compile_script

        image = compile_script(member.source)
        header.size = len(image)
        archive.addfile(header, BytesIO(image))
        return
    try:
        with member.source.open("rb") as content:
            header.size = os.fstat(content.fileno()).st_size
            if not member.name.startswith(".zeroserve/"):
                _refuse_private_key(member.source, content)
            archive.addfile(header, content)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        raise _unreadable(member.source, error) from None


def _refuse_private_key(source: Path, content: BinaryIO) -> None:
    """Whoever packs the folder that the certificate lies in would publish its key with it."""
    beginning = content.read(KEY_BYTES)
    content.seek(0)
    if beginning.startswith(b"-----BEGIN ") and b"PRIVATE KEY-----" in beginning:
        raise ZeroserveError(f"{source} is a private key, and would be public", "move it out of the site")


def _unreadable(source: Path | str, error: OSError) -> ZeroserveError:
    # Without a number it is tarfile's own, for a file that has become shorter.
    has_changed = error.errno in (None, errno.ENOENT)
    hint = "pack again when nothing writes to it" if has_changed else "make it readable"
    return ZeroserveError(f"{source}: {error.strerror or error}", hint)
