"""C to eBPF: a script's source becomes the object in a site. What the object may do is the engine's business."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from zeroserve.settings import ZeroserveError

# Newest first. Debian 12's plain `clang` is version 14, and it offers 19 beside it.
CANDIDATES = ("clang-21", "clang-20", "clang-19", "clang-18", "clang")
FRAME_BYTES = 4096
"""What one function of a script may keep on its stack: the size of a frame in the engine's sandbox."""
SMALL_FRAME_BYTES = 512
"""The same under compilers that know only the kernel's limit."""
DEADLINE_S = 60

# Helpers of a script stay in its section only when they are inlined: sections are loaded apart from one another.
INLINE_ALL = ("-mllvm", "-inline-threshold=100000")
FLAGS = ("-target", "bpf", "-mcpu=v3", "-O2", "-ffreestanding", "-Wall", "-Werror=implicit-function-declaration")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A clang that can make eBPF, and whether it can be told of our stack."""

    path: str
    has_large_frames: bool

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags for every script."""
        frames = ("-mllvm", f"-bpf-stack-size={FRAME_BYTES}") if self.has_large_frames else ()
        return (*FLAGS, *INLINE_ALL, *frames)


@functools.cache
def find_compiler() -> Compiler:
    """The best clang on the PATH. Raises ZeroserveError when there is none that can make eBPF."""
    found = [path for name in CANDIDATES if (path := shutil.which(name))]
    usable = [Compiler(path, False) for path in found if _accepts(path, ())]
    for compiler in usable:
        if _accepts(compiler.path, ("-mllvm", f"-bpf-stack-size={FRAME_BYTES}")):
            return Compiler(compiler.path, True)
    if usable:
        return usable[0]
    raise ZeroserveError(
        "the site has scripts in C, and there is no clang that can compile them",
        "apt install clang, or put compiled .o files in .zeroserve/scripts",
    )


def _accepts(path: str, flags: tuple[str, ...]) -> bool:
    argv = [path, "-target", "bpf", *flags, "-x", "c", "-c", "-o", "/dev/null", "-"]
    return subprocess.run(argv, input=b"", capture_output=True, timeout=DEADLINE_S, check=False).returncode == 0


def compile_script(source: Path, *, include: Path | None = None) -> bytes:
    """Compile one C file to an eBPF object (ELF, relocatable).

    `include` stands in for the folder of `zeroserve.h`. Raises ZeroserveError with clang's own words, which name the
    line, when the source does not compile.
    """
    compiler = find_compiler()
    with as_file(files("zeroserve") / "sdk") as sdk, tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "script.o"
        argv = [compiler.path, *compiler.flags, "-I", str(include or sdk), "-c", str(source), "-o", str(output)]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if result.returncode == 0:
            return output.read_bytes()
    raise ZeroserveError(f"{source} does not compile:\n{result.stderr.strip()}\n", _advice(compiler, result.stderr))


def _advice(compiler: Compiler, complaint: str) -> str:
    if "stack limit" in complaint.lower() and not compiler.has_large_frames:
        return (
            f"{compiler.path} allows {SMALL_FRAME_BYTES} bytes of stack a function: "
            f"apt install clang-19 for {FRAME_BYTES}, or use smaller buffers"
        )
    return "put the source right and pack again"
