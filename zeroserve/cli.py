"""The `zeroserve` command: flags become settings or a packed site. Nothing else happens here."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from zeroserve.settings import DEFAULT_PLAIN_ADDRESS, Address, ServerSettings, ZeroserveError

if TYPE_CHECKING:
    from zeroserve.pack import PackSummary

STANDARD_OUTPUT = 1
STANDARD_ERROR = 2
USAGE = """zeroserve --pack DIRECTORY > new.tar && mv new.tar site.tar
       zeroserve [--addr A:P] [--tls-addr A:P --cert F --key F] [--workers N] site.tar"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ZeroserveError(message, "see zeroserve --help")


def _parser() -> argparse.ArgumentParser:
    defaults = ServerSettings(Path(), plain_addresses=(Address.parse(DEFAULT_PLAIN_ADDRESS, "--addr"),))
    parser = _Parser(
        prog="zeroserve",
        usage=USAGE,
        description="Serve a website that is one tarball: content, TLS and eBPF scripts. SIGHUP swaps it.",
        allow_abbrev=False,
    )
    parser.add_argument("site", nargs="?", type=Path, metavar="site.tar", help="the site to serve")
    parser.add_argument("--version", action="store_true", help="print the version")

    site = parser.add_argument_group("making a site")
    site.add_argument("--pack", type=Path, metavar="DIRECTORY", help="write the directory as a site to stdout")

    listen = parser.add_argument_group("listening (each may be given several times)")
    listen.add_argument(
        "--addr", action="append", default=[], metavar="A:P", help=f"without TLS (default {DEFAULT_PLAIN_ADDRESS})"
    )
    listen.add_argument("--tls-addr", action="append", default=[], metavar="A:P", help="with TLS 1.3")
    listen.add_argument("--cert", type=Path, metavar="FILE", help="PEM certificate chain, leaf first")
    listen.add_argument("--key", type=Path, metavar="FILE", help="PEM private key")

    life = parser.add_argument_group("running (times in seconds)")
    life.add_argument("--workers", type=int, default=defaults.workers, metavar="N", help="threads (0: one a core)")
    for flag, default, meaning in (
        ("--header-timeout", defaults.header_timeout_s, "for a handshake, and for a request to arrive"),
        ("--keep-alive-timeout", defaults.keep_alive_timeout_s, "between two requests"),
        ("--stall-timeout", defaults.stall_timeout_s, "for a client to take what was sent"),
        ("--drain-timeout", defaults.drain_timeout_s, "for requests in flight after SIGTERM"),
    ):
        life.add_argument(flag, type=float, default=default, metavar="S", help=f"{meaning} (default {default:g})")
    life.add_argument(
        "--preempt-timer-interval-ms",
        type=int,
        default=defaults.preempt_interval_ms,
        metavar="MS",
        help="how long a script may run before others get a turn (default %(default)s)",
    )
    return parser


def _settings(arguments: argparse.Namespace) -> ServerSettings:
    plain = arguments.addr or ([] if arguments.tls_addr else [DEFAULT_PLAIN_ADDRESS])
    return ServerSettings(
        site=arguments.site,
        plain_addresses=tuple(Address.parse(text, "--addr") for text in plain),
        tls_addresses=tuple(Address.parse(text, "--tls-addr") for text in arguments.tls_addr),
        cert=arguments.cert,
        key=arguments.key,
        workers=arguments.workers,
        header_timeout_s=arguments.header_timeout,
        keep_alive_timeout_s=arguments.keep_alive_timeout,
        stall_timeout_s=arguments.stall_timeout,
        drain_timeout_s=arguments.drain_timeout,
        preempt_interval_ms=arguments.preempt_timer_interval_ms,
    )


def _pack(directory: Path) -> int:
    if os.isatty(STANDARD_OUTPUT):
        raise ZeroserveError("--pack writes a tarball, and this is a terminal", "add > site.tar")
    try:
        summary = _pack_to_standard_output(directory)
    except OSError as error:
        hint = f"see where > leads, and that {tempfile.gettempdir()} has room for the site too"
        raise ZeroserveError(f"the tarball cannot be written: {error.strerror}", hint) from None
    contents = f"{summary.files} file(s), {summary.scripts} of them script(s), {summary.content_bytes} bytes"
    hidden = f"; {summary.hidden} hidden left out" if summary.hidden else ""
    print(f"zeroserve: packed {contents} of content{hidden}", file=sys.stderr)
    return 0


def _pack_to_standard_output(directory: Path) -> PackSummary:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from zeroserve.pack import pack_directory

    columns = (TextColumn("packing"), BarColumn(), DownloadColumn())
    # Whole first, then out: what fails must leave nothing that looks like a site.
    with tempfile.TemporaryFile() as whole:
        with Progress(
            *columns, console=Console(stderr=True), transient=True, disable=not os.isatty(STANDARD_ERROR)
        ) as bar:
            task = bar.add_task("packing")
            # The shell has made the output already, perhaps inside the directory; a site does not hold itself.
            output = os.fstat(STANDARD_OUTPUT)
            summary = pack_directory(
                directory,
                whole,
                lambda done, total: bar.update(task, completed=done, total=total),
                leave_out=(output.st_dev, output.st_ino),
            )
        whole.seek(0)
        with open(STANDARD_OUTPUT, "wb", closefd=False) as site:
            shutil.copyfileobj(whole, site)
    return summary


def _fill_standard_descriptors() -> None:
    """Put /dev/null where the parent has closed one of the first three, or the next socket becomes standard error."""
    for number in (0, STANDARD_OUTPUT, STANDARD_ERROR):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given, and those below have just been seen to be taken.
            os.open(os.devnull, os.O_RDWR)


def _dispatch(argv: Sequence[str] | None) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.version:
        from importlib.metadata import version

        print(f"zeroserve {version('zeroserve')}")
        return 0
    if arguments.pack is not None:
        if arguments.site is not None:
            raise ZeroserveError("--pack and a site to serve are given together", "do one after the other")
        return _pack(arguments.pack)
    if arguments.site is None:
        raise ZeroserveError("no site is named", "zeroserve site.tar, or zeroserve --pack DIRECTORY > site.tar")
    settings = _settings(arguments)
    # Imported here: packing needs neither the engine nor the event loop.
    from zeroserve.control import run

    return run(settings)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 when the input was refused."""
    _fill_standard_descriptors()
    try:
        return _dispatch(argv)
    except ZeroserveError as error:
        print(f"zeroserve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
