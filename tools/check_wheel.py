"""Checks that a wheel carries all that the installed product opens, and nothing that only the build needs.

It looks at names only; that the contents work is what the tests are for.
"""

import sys
import zipfile
from collections.abc import Iterator, Set
from pathlib import Path

PACKAGES = ("zeroserve", "xdp", "appliance", "experiments")
ENGINE_SOURCES = Path("zeroserve/engine")
# Products of a build that lie among the sources.
BUILT_SUFFIXES = frozenset({".o", ".pyc", ".so", ".tar"})


def expected_names(root: Path) -> Iterator[str]:
    """Yield what a wheel built from the tree at `root` must hold, as paths inside it."""
    yield "zeroserve/_engine.abi3.so"
    yield "appliance/site.tar"
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            name = path.relative_to(root)
            if ENGINE_SOURCES in name.parents or name.suffix in BUILT_SUFFIXES or not path.is_file():
                continue
            yield str(name)
            if name.name.endswith(".bpf.c"):
                yield str(name.with_suffix(".o"))


def unwanted_names(names: Set[str]) -> Iterator[str]:
    """Yield the names that have no business in a wheel."""
    for name in sorted(names):
        path = Path(name)
        built_from = ENGINE_SOURCES in path.parents or path.suffix in {".rs", ".pyc"} or "__pycache__" in path.parts
        foreign = path.parts[0] not in PACKAGES and not path.parts[0].endswith(".dist-info")
        if built_from or foreign:
            yield name


def complaints(wheel: Path, root: Path) -> list[str]:
    """Return what is wrong with `wheel`, one line each, against the source tree at `root`."""
    with zipfile.ZipFile(wheel) as archive:
        names = frozenset(archive.namelist())
    missing = sorted(set(expected_names(root)) - names)
    return [f"missing: {name}" for name in missing] + [f"unwanted: {name}" for name in unwanted_names(names)]


def main() -> int:
    wheel = Path(sys.argv[1])
    found = complaints(wheel, Path(__file__).parents[1])
    for line in found:
        print(f"error: {wheel.name}: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
