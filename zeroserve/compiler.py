"""C to eBPF: a script's source becomes the object in a site. What the object may do is the engine's business."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from zeroserve.settings import ZeroserveError

# Newest first. Debian 12's plain `clang` is version 14, and it offers 19 beside it.
CANDIDATES = ("clang-21", "clang-20", "clang-19", "clang-18", "clang")
OLDEST = 14
FRAME_BYTES = 4096
"""What one function of a script may keep on its stack: the size of a frame in the engine's sandbox."""
SMALL_FRAME_BYTES = 512
"""The same under compilers that know only the kernel's limit."""
DEADLINE_S = 60

FLAGS = (
    *("-target", "bpf", "-mcpu=v3", "-O2"),
    # No libc: what looks like memcpy or strlen stays what the script wrote.
    "-ffreestanding",
    # Nor its headers, so that an object does not depend on what the machine has installed.
    "-nostdlibinc",
    *("-Wall", "-Werror=implicit-function-declaration"),
    # Sections are loaded apart from one another, so an entry has to have everything it calls inside it.
    *("-mllvm", "-inline-threshold=100000"),
)
LARGE_FRAMES = ("-mllvm", f"-bpf-stack-size={FRAME_BYTES}")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A clang that can make eBPF, and whether it can be told of our stack."""

    path: str
    has_large_frames: bool

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags for every script."""
        return (*FLAGS, *LARGE_FRAMES) if self.has_large_frames else FLAGS


@functools.cache
def find_compiler() -> Compiler:
    """The best clang on the PATH. Raises ZeroserveError when there is none that can make eBPF."""
    usable = find_compilers()
    if usable:
        return next((compiler for compiler in usable if compiler.has_large_frames), usable[0])
    present = [path for name in CANDIDATES if (path := shutil.which(name))]
    missing = f"{present[0]} cannot make eBPF" if present else "there is no clang to compile them"
    raise ZeroserveError(
        f"the site has scripts in C, and {missing}",
        f"apt install clang (version {OLDEST} or newer), or put compiled .o files in .zeroserve/scripts",
    )


def find_compilers() -> tuple[Compiler, ...]:
    """Every clang on the PATH that can make eBPF, newest first."""
    found = dict.fromkeys(path for name in CANDIDATES if (path := shutil.which(name)))
    usable = [path for path in found if _accepts(path, FLAGS)]
    return tuple(Compiler(path, _accepts(path, (*FLAGS, *LARGE_FRAMES))) for path in usable)


def _accepts(path: str, flags: tuple[str, ...]) -> bool:
    try:
        return _run((path, *flags, "-x", "c", "-c", "-o", os.devnull, os.devnull)).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S,
        check=False,
    )


def compile_script(source: Path, *, include: Path | None = None, compiler: Compiler | None = None) -> bytes:
    """Compile one C file to an eBPF object (ELF, relocatable).

    `include` stands in for the folder of `zeroserve.h`, and `compiler` for the best one. Raises ZeroserveError with
    clang's own words, which show the line, when the source does not compile.
    """
    compiler = compiler or find_compiler()
    with as_file(files("zeroserve") / "sdk") as sdk, tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "script.o"
        # A file's name may begin with a dash, which clang would take for a flag.
        name = f"./{source}" if str(source).startswith("-") else str(source)
        argv = (compiler.path, *compiler.flags, "-I", str(include or sdk), "-c", "-o", str(output), name)
        try:
            result = _run(argv)
        except subprocess.TimeoutExpired:
            raise ZeroserveError(
                f"{source}: {compiler.path} was not done after {DEADLINE_S} s", "make the script simpler"
            ) from None
        if result.returncode == 0:
            return output.read_bytes()
    raise ZeroserveError(f"{source} does not compile:\n{result.stderr.strip()}\n", _advice(compiler, result.stderr))


def _advice(compiler: Compiler, complaint: str) -> str:
    if "stack limit" not in complaint:
        return "put the source right and pack again"
    if compiler.has_large_frames:
        return f"a script has {FRAME_BYTES} bytes of stack, what is inlined included: use smaller buffers"
    return (
        f"{compiler.path} allows {SMALL_FRAME_BYTES} bytes of stack: "
        f"apt install clang-19 for {FRAME_BYTES}, or use smaller buffers"
    )
