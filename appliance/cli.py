"""`zs-appliance`: flags become settings, answers become text or JSON. Nothing else happens here."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from appliance import display
from appliance.settings import STATE_DIRECTORY, ApplianceError, Settings

RULES = (
    "rules of a policy, one a line: drop udp port N, drop tcp port N, "
    "drop from ADDRESS[/LENGTH] [for 500ms|60s|10m|2h|1d]; a # begins a comment. "
)
EXIT_CODES = "exit codes: 0 up, 1 up but degraded or without control process, 2 refused, 3 not up"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Errors are one line on stderr and exit code 2."""
    try:
        arguments = _parser().parse_args(argv)
        run: Callable[[argparse.Namespace], int] = arguments.run
        return run(arguments)
    except ApplianceError as error:
        print(f"zs-appliance: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("zs-appliance: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ApplianceError(message, f"see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="zs-appliance", description="The HTTPS edge appliance on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="bring the appliance up, or say where it is up", epilog=RULES + EXIT_CODES)
    where = up.add_mutually_exclusive_group()
    where.add_argument("--iface", metavar="IF", help="filter on this interface (default: that of the default route)")
    where.add_argument("--lab", action="store_true", help="in namespaces of its own, touching no real interface")
    up.add_argument("--site", type=Path, metavar="TAR", help="the site's tarball (default: a built-in welcome site)")
    up.add_argument("--policy", type=Path, metavar="FILE", help="what to drop (default: nothing); see below")
    up.add_argument("--force", action="store_true", help="also accept a policy that cuts off SSH or HTTPS")
    up.add_argument("--https-port", type=int, default=443, metavar="PORT", help="default: %(default)s")
    up.add_argument("--cert", type=Path, metavar="PEM", help="certificate chain (default: self-signed, kept)")
    up.add_argument("--key", type=Path, metavar="PEM", help="its private key")
    up.add_argument(
        "--state-dir", type=Path, default=STATE_DIRECTORY, metavar="DIR", help="logs, certificate (%(default)s)"
    )
    up.set_defaults(run=_up)

    status = commands.add_parser("status", help="where it is up, each layer, what was dropped", epilog=EXIT_CODES)
    status.add_argument("--json", action="store_true", help="for machines")
    status.set_defaults(run=_status)

    reload = commands.add_parser("reload", help="load site, certificate and policy again; bad ones change nothing")
    reload.set_defaults(run=_reload)

    down = commands.add_parser("down", help="take everything down, and clear what a killed process left")
    down.set_defaults(run=_down)

    doctor = commands.add_parser("doctor", help="check whether this machine has what the appliance needs")
    doctor.add_argument("--iface", metavar="IF", help="check this interface (default: that of the default route)")
    doctor.add_argument("--state-dir", type=Path, default=STATE_DIRECTORY, metavar="DIR", help="default: %(default)s")
    doctor.add_argument("--json", action="store_true", help="for machines")
    doctor.set_defaults(run=_doctor)
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    from appliance.interfaces import default_interface
    from appliance.lab import EDGE

    def resolved(path: Path | None) -> Path | None:
        return None if path is None else path.resolve()

    return Settings(
        interface=EDGE.interface if arguments.lab else arguments.iface or default_interface(),
        lab=arguments.lab,
        site=resolved(arguments.site),
        policy=resolved(arguments.policy),
        https_port=arguments.https_port,
        certificate=resolved(arguments.cert),
        key=resolved(arguments.key),
        state_directory=arguments.state_dir.resolve(),
        force=arguments.force,
    ).checked()


def _up(arguments: argparse.Namespace) -> int:
    _require_root("up")
    from appliance.launch import bring_up
    from appliance.supervisor import guarded_policy

    settings = _settings(arguments)
    guarded_policy(settings)  # refused here and now rather than by a process in the background
    console = Console()
    with console.status("bringing up the layers"):
        status, was_up = bring_up(settings, lambda layer: display.layer_line(console, layer))
    console.print(("already " if was_up else "") + display.where(status), soft_wrap=True, highlight=False, markup=False)
    return _exit_code(status)


def _status(arguments: argparse.Namespace) -> int:
    _require_root("status")
    from appliance.launch import running_status, site_is_unattended

    status = running_status()
    if status is not None:
        code = _exit_code(status)
        if arguments.json:
            _print_json({"state": "degraded" if code else "up", **status})
        else:
            display.show_status(Console(), status)
        return code
    left = site_is_unattended()
    if arguments.json:
        state = "down" if left is None else "unattended"
        _print_json({"state": state, "settings": left.settings.as_json() if left else None})
    elif left is None:
        print("not up")
    else:
        print("unattended: the site is served without a control process; repeat the `up` it was started with")
    return 3 if left is None else 1


def _reload(_arguments: argparse.Namespace) -> int:
    _require_root("reload")
    from appliance.control import ask

    if ask("reload", timeout_s=30.0) is None:
        raise ApplianceError("the appliance is not up, or its control process is gone", "zs-appliance up")
    print("reloading; what the server makes of it is in server.log")
    return 0


def _down(_arguments: argparse.Namespace) -> int:
    _require_root("down")
    from appliance.launch import take_down

    removed = take_down()
    print(f"down; removed {', '.join(removed)}" if removed else "nothing was up")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from appliance.doctor import Outcome, examine

    checks = examine(arguments.iface, arguments.state_dir)
    if arguments.json:
        _print_json([check.as_json() for check in checks])
    else:
        rows = [(check.name, check.outcome.value, check.detail, check.remedy) for check in checks]
        display.show_rows(Console(), ("check", "", "found", "what to do"), rows)
    return 1 if any(check.outcome is Outcome.FAIL for check in checks) else 0


def _exit_code(status: dict[str, Any]) -> int:
    return 0 if all(layer["condition"] == "up" for layer in status["layers"]) else 1


def _require_root(command: str) -> None:
    if os.geteuid() != 0:
        raise ApplianceError(f"{command} needs root", f"sudo zs-appliance {command}")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
