"""Loading the filter program two ways, precompiled through libbpf and compiled on the spot by BCC: time and memory.

Each measurement is a process of its own. Prints a table; quoted by docs/decisions. Needs root, and for BCC the package
python3-bpfcc and kernel headers: without those it says what is missing.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from statistics import median

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

WAYS = ("nothing", "libbpf", "BCC")
TEXT = {name: (files("xdp") / name).read_text() for name in ("maps.h", "parse.h", "prefilter.bpf.c")}

# The same maps as maps.h, in the macros that BCC reads instead of BTF.
BCC_MAPS = """
BPF_TABLE("array", u32, struct zs_ports, ports_shape, 1);
BPF_LPM_TRIE(v4_shape, struct zs_prefix_v4, u64, 1 << 20);
BPF_LPM_TRIE(v6_shape, struct zs_prefix_v6, u64, 1 << 20);
BPF_ARRAY_OF_MAPS(zs_ports, "ports_shape", ZS_SLOTS);
BPF_ARRAY_OF_MAPS(zs_sources_v4, "v4_shape", ZS_SLOTS);
BPF_ARRAY_OF_MAPS(zs_sources_v6, "v6_shape", ZS_SLOTS);
BPF_ARRAY(zs_state, u64, 1);
BPF_PERCPU_ARRAY(zs_totals, struct zs_total, ZS_VERDICTS * ZS_REASONS);
BPF_PERCPU_ARRAY(zs_sampling, struct zs_sampling, 1);
BPF_RINGBUF_OUTPUT(zs_samples, 64);
"""
BCC_DIALECT = (
    (r"#include [<\"](?!linux/if_ether|linux/in\.|linux/ip)[^\n]*\n", ""),
    (r"bpf_map_lookup_elem\(&(\w+), (&\w+)\)", r"\1.lookup(\2)"),
    (r"bpf_ringbuf_reserve\(&(\w+), ([^;]+), 0\)", r"\1.ringbuf_reserve(\2)"),
    (r"bpf_ringbuf_submit\((\w+), 0\)", r"zs_samples.ringbuf_submit(\1, 0)"),
    (r"__noinline", "static __always_inline"),  # BCC loads one function, with everything in it
    (r'SEC\("xdp"\)\n', ""),
    (r"char _license[^\n]*\n", ""),
)


class BccUnavailableError(Exception):
    """BCC cannot compile here; the message says why and what to do."""


def bcc_source() -> str:
    """The filter's own source in BCC's dialect: other map declarations and calls, the same program."""
    layouts = TEXT["maps.h"].split("/* Templates of what the slots hold", 1)[0] + "#endif\n"
    text = layouts + BCC_MAPS + TEXT["parse.h"] + TEXT["prefilter.bpf.c"]
    for pattern, replacement in BCC_DIALECT:
        text = re.sub(pattern, replacement, text)
    return text


def header_flags() -> list[str]:
    """What BCC must be told to find kernel headers; raises where there are none.

    Debian splits them into two trees. Those of another kernel version will do here: the program reads no kernel
    structure, only what user space sees as well.
    """
    if Path(f"/lib/modules/{os.uname().release}/build").exists():
        return []
    for common in sorted(Path("/usr/src").glob("linux-headers-*-common"), reverse=True):
        version = common.name.removesuffix("-common")
        for own in sorted(common.parent.glob(f"{version}-*")):
            if own != common and (own / "include/generated").is_dir():
                os.environ["BCC_KERNEL_SOURCE"] = str(common)
                arch = {"x86_64": "x86", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
                generated = (f"arch/{arch}/include/generated", f"arch/{arch}/include/generated/uapi", "include")
                return [f"-I{own / path}" for path in (*generated, "include/generated/uapi")]
    raise BccUnavailableError("there are no kernel headers: install linux-headers-amd64 or linux-headers-arm64")


def load_with_bcc() -> object:
    """Compiles and loads; the result keeps the program alive."""
    try:
        from bcc import BPF
    except ImportError as error:
        raise BccUnavailableError(f"the bcc package is missing ({error}): install python3-bpfcc") from None
    program = BPF(text=bcc_source(), cflags=[*header_flags(), "-Wno-macro-redefined"])
    return program, program.load_func("zs_prefilter", BPF.XDP)


def load_with_libbpf() -> object:
    """Loads the object that was compiled at build time."""
    from xdp.prefilter import Prefilter

    return Prefilter.load()


def peak_mib() -> float:
    """The most memory this process has had resident."""
    status = Path("/proc/self/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    if peak is None:
        raise RuntimeError("/proc/self/status has no VmHWM line (proc_pid_status(5))")
    return int(peak[1]) / 1024


def measure(way: str) -> None:
    """Loads once and prints what it took as JSON; imports are part of the memory but not of the time."""
    load = {"nothing": object, "libbpf": load_with_libbpf, "BCC": load_with_bcc}[way]
    if way == "libbpf":
        import xdp.prefilter  # noqa: F401
    if way == "BCC":
        import bcc  # noqa: F401
    begun = time.perf_counter()
    kept = load()
    milliseconds = (time.perf_counter() - begun) * 1000
    print(json.dumps({"ms": milliseconds, "mib": peak_mib()}))
    del kept


def measured(way: str) -> dict[str, float]:
    """One measurement in a fresh process."""
    command = [sys.executable, str(Path(__file__)), "--measure", way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise BccUnavailableError((complaints or done.stderr.strip().splitlines() or ["no message"])[-1].strip())
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each way, in turn")
    parser.add_argument("--measure", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return 0
    if os.geteuid() != 0:
        print("loader.py: loading BPF programs needs root; run it with sudo", file=sys.stderr)
        return 2
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    failures: dict[str, str] = {}
    for _ in range(arguments.rounds):
        for way in WAYS:
            if way not in failures:
                try:
                    results[way].append(measured(way))
                except BccUnavailableError as error:
                    failures[way] = str(error)
    show(results, failures)
    return 0


def show(results: dict[str, list[dict[str, float]]], failures: dict[str, str]) -> None:
    bare = median(result["mib"] for result in results["nothing"])
    table = Table(box=SIMPLE, title="The filter program, loaded (medians)")
    for column in ("through", "load ms", "peak MiB", "above bare Python MiB"):
        table.add_column(column, justify="left" if column == "through" else "right")
    for way in WAYS[1:]:
        if way in failures:
            table.add_row(way, "failed", "", failures[way])
        else:
            milliseconds = median(result["ms"] for result in results[way])
            peak = median(result["mib"] for result in results[way])
            table.add_row(way, f"{milliseconds:,.1f}", f"{peak:,.1f}", f"{peak - bare:,.1f}")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
