"""The layers of the appliance, brought up in order (lab, filter, tables, server) and taken down in reverse.

Each layer's own work is done elsewhere (`xdp`, `appliance.server`, `appliance.lab`); here is the order, what is undone
when a step fails, what is taken over from a killed predecessor, and what the state of each layer is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from appliance import interfaces, record
from appliance.guard import protected_ports
from appliance.lab import Lab, has_ipv6
from appliance.namespace import in_thread
from appliance.process import ProcessIdentity
from appliance.record import Record
from appliance.server import ServerPlan, ServerProcess, https_status
from appliance.settings import ApplianceError, Settings
from appliance.welcome import kept_certificate, welcome_site
from xdp.filter import PIN_ROOT, Filter, mount_bpffs, remove_leftovers
from xdp.nftables import Table
from xdp.policy import Policy, XdpError

__all__ = ["Appliance", "Condition", "LayerState", "ServerPlan", "ServerProcess", "clear_leftovers", "guarded_policy"]

# A directory of its own, so that clearing up after an appliance touches no filter of an experiment.
PINS = PIN_ROOT / "appliance"


class Condition(StrEnum):
    """How a layer is: DEGRADED means that the site is served without what this layer would add."""

    UP = "up"
    DEGRADED = "degraded"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer as it is now: which, how, and one line that says what that means here."""

    name: str
    condition: Condition
    detail: str

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "condition": self.condition.value, "detail": self.detail}


def guarded_policy(settings: Settings) -> Policy:
    """The policy of the settings, which leaves the way in open unless forced.

    Errors: ApplianceError with file and line, or with the reason for the refusal.
    """
    try:
        policy = Policy() if settings.policy is None else Policy.load(settings.policy)
        return policy.guarded(protected_ports(settings.https_port), force=settings.force)
    except XdpError as error:
        raise ApplianceError(error.message, error.hint.replace("force it", "use --force")) from error


class Appliance:
    """The layers while they are up. Made by `bring_up`; ended by `take_down`, or by `let_go`, which leaves everything
    running for a successor. `report` hears of every layer as it comes up, and may raise to
    stop that."""

    def __init__(self, settings: Settings, report: Callable[[LayerState], None]) -> None:
        self.settings = settings
        self.policy = Policy()
        self.server: ServerProcess | None = None
        self.server_restarts = 0
        self._report = report
        self._states: dict[str, LayerState] = {}
        self._undo = contextlib.ExitStack()
        self._record = Record(settings, _myself())
        self._lab: Lab | None = None
        self._filter: Filter | None = None
        self._table: Table | None = None

    def bring_up(self) -> None:
        """Bring up what is not up yet: layers that a killed predecessor with equal settings left are adopted as they
        are, without a packet or request lost. Errors: ApplianceError; everything is undone then."""
        self.policy = guarded_policy(self.settings)
        before = Record.load()
        if before is not None and before.settings != self.settings:
            message = "an appliance with other settings was left up by a control process that died"
            raise ApplianceError(message, "zs-appliance down, then up again")
        with contextlib.ExitStack() as undo:
            undo.callback(record.forget)
            self._record = Record(self.settings, _myself(), before.server if before else None)
            self._record.save()
            self._bring_up_lab(undo)
            undo.callback(_remove_pins)
            self._bring_up_filter(undo)
            self._bring_up_table(undo)
            self._bring_up_server(undo, before.server if before else None)
            self._undo = undo.pop_all()

    def take_down(self) -> None:
        """Take the layers down, last one first. Doing it twice does nothing."""
        self._undo.close()
        self._states.clear()

    def let_go(self) -> None:
        """Leave everything as it is for a successor: the filter is pinned, the server in a session of its own."""
        self._undo.pop_all()
        if self._lab is not None:
            self._lab.leave()
        if self._filter is not None:
            self._filter.close()
        if self.server is not None:
            self.server.let_go()

    def layers(self) -> list[LayerState]:
        """The state of each layer as it is now, in the order in which a packet meets them: what was brought up may have
        been taken away by someone else since."""
        server = self.server
        if server is not None and not server.identity.is_alive():
            self._states["server"] = LayerState("server", Condition.DOWN, f"ended: {server.last_log_line()}")
        with contextlib.suppress(XdpError, OSError), self._where_packets_arrive():
            if self._filter is not None and not self._filter.is_attached():
                self._states["filter"] = LayerState("filter", Condition.DOWN, "detached by someone else")
            if self._table is not None and not self._table.exists():
                self._states["tables"] = LayerState("tables", Condition.DOWN, "table deleted by someone else")
        return list(self._states.values())

    def counters(self) -> dict[str, Any]:
        """Packets and bytes by verdict and reason, for each dropping layer that can be read now."""
        read: dict[str, Any] = {}
        for name, layer in (("filter", self._filter), ("tables", self._table)):
            if layer is not None:
                with contextlib.suppress(XdpError, OSError), self._where_packets_arrive():
                    read[name] = layer.counters().as_dict()
        return read

    def urls(self) -> list[str]:
        """Where the site is reached."""
        port = "" if self.settings.https_port == 443 else f":{self.settings.https_port}"
        if self._lab is not None:
            addresses = [self._lab.edge.ipv4, *([self._lab.edge.ipv6] if has_ipv6() else [])]
        else:
            addresses = in_thread(lambda: interfaces.addresses(self.settings.interface)) or ["127.0.0.1"]
        return [f"https://{f'[{address}]' if ':' in address else address}{port}/" for address in addresses]

    def reload(self) -> None:
        """Read the policy file again and put it in force, and have the server load site and certificate again.

        Errors: ApplianceError; a policy that is refused changes nothing.
        """
        policy = guarded_policy(self.settings)
        failures = []
        for name, apply in (("filter", self._apply_to_filter), ("tables", self._apply_to_table)):
            try:
                with self._where_packets_arrive():
                    apply(policy)
            except (XdpError, OSError) as error:
                self._set(LayerState(name, Condition.DEGRADED, f"policy not applied: {error}"))
                failures.append(f"{name}: {error}")
        self.policy = policy
        if self.server is not None:
            self.server.reload()
        if failures:
            raise ApplianceError(
                f"the policy is not in force everywhere ({'; '.join(failures)})", "zs-appliance status"
            )

    def restart_server(self) -> None:
        """Start the server again after it died. Errors: ApplianceError; the other layers stay up."""
        if self.server is not None:
            self.server.stop()
        self.server_restarts += 1
        self._start_server()

    def _set(self, state: LayerState) -> None:
        self._states[state.name] = state
        self._report(state)

    def _where_packets_arrive(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._lab is None else self._lab.edge.enter()

    def _bring_up_lab(self, undo: contextlib.ExitStack) -> None:
        if self.settings.lab:
            self._lab = Lab.adopt() or Lab.create(purpose="zs-appliance up", kept=True)
            undo.callback(self._lab.close)
            where = f"{self._lab.client.name} {self._lab.client.ipv4} to {self._lab.edge.name} {self._lab.edge.ipv4}"
            self._set(LayerState("lab", Condition.UP, where))

    def _bring_up_filter(self, undo: contextlib.ExitStack) -> None:
        """Without a filter the site still comes up: what it would have dropped early, the tables drop later."""
        interface = self.settings.interface
        try:
            with self._where_packets_arrive():
                mount_bpffs()
                self._filter = _reopen(PINS / interface) or _attach(interface, self.policy)
        except (XdpError, OSError) as error:
            self._set(LayerState("filter", Condition.DEGRADED, f"no XDP filter: {error}"))
            return
        undo.callback(self._filter.detach)
        detail = f"{self._filter.attach_mode.value} XDP on {interface}, {self._filter.mode.value}"
        refusal = self._filter.native_refusal
        self._set(LayerState("filter", Condition.UP, f"{detail} (not native: {refusal})" if refusal else detail))

    def _apply_to_filter(self, policy: Policy) -> None:
        if self._filter is not None:
            self._filter.apply(policy)

    def _bring_up_table(self, undo: contextlib.ExitStack) -> None:
        try:
            with self._where_packets_arrive():
                table = Table(self.policy)
                if not table.exists():
                    table.apply()
        except (XdpError, OSError) as error:
            self._set(LayerState("tables", Condition.DEGRADED, f"no nftables table: {error}"))
            return
        self._table = table
        undo.callback(self._delete_table)
        count = len(self.policy.rules)
        rules = "1 rule" if count == 1 else f"{count} rules"
        self._set(LayerState("tables", Condition.UP, f"nftables input, {self.policy.mode.value}, {rules}"))

    def _apply_to_table(self, policy: Policy) -> None:
        if self._table is not None:
            self._table.apply(policy)

    def _delete_table(self) -> None:
        if self._table is not None:
            with self._where_packets_arrive():
                self._table.delete()

    def _bring_up_server(self, undo: contextlib.ExitStack, left: ProcessIdentity | None) -> None:
        undo.callback(self._stop_server)
        if left is not None:
            self.server = ServerProcess.adopt(self._plan(), left)
            if self.server is None:
                left.stop()  # alive but mute, or dead: either way not a server
        if self.server is None:
            self._start_server()
        else:
            self._set_server_state("adopted, ")
        self._check_from_outside()

    def _start_server(self) -> None:
        self.server = ServerProcess.start(self._plan())
        self._record = self._record.with_server(self.server.identity)
        self._record.save()
        self._set_server_state("")

    def _set_server_state(self, how: str) -> None:
        if self.server is not None:
            detail = f"{how}pid {self.server.pid}, serving {self.server.plan.site}"
            self._set(LayerState("server", Condition.UP, detail))

    def _stop_server(self) -> None:
        if self.server is not None:
            self.server.stop()

    def _plan(self) -> ServerPlan:
        settings = self.settings
        directory = settings.state_directory
        if settings.certificate is not None and settings.key is not None:
            certificate, key = settings.certificate, settings.key
        else:
            names = () if self._lab is None else (self._lab.edge.ipv4, self._lab.edge.ipv6)
            certificate, key = kept_certificate(directory, names)
        wildcards = ("0.0.0.0", "[::]") if has_ipv6() else ("0.0.0.0",)
        return ServerPlan(
            site=welcome_site(directory) if settings.site is None else settings.site,
            certificate=certificate,
            key=key,
            tls_addresses=tuple(f"{wildcard}:{settings.https_port}" for wildcard in wildcards),
            log=directory / "server.log",
            namespace=None if self._lab is None else self._lab.edge,
        )

    def _check_from_outside(self) -> None:
        """In the lab the client's way through filter and tables can be tried too; a machine cannot do that alone."""
        if self._lab is None or self.server is None:
            return
        address, port = self._lab.edge.ipv4, self.settings.https_port
        try:
            https_status(address, port, self.server.plan.certificate, namespace=self._lab.client)
        except OSError as error:
            # A policy may mean exactly this (it may name the client), so it is told, not undone.
            self._set(LayerState("lab", Condition.DEGRADED, f"the client gets no HTTPS from {address}: {error}"))


def clear_leftovers() -> list[str]:
    """Remove what an appliance or experiment that was killed left behind, and say what it was.

    What a living process owns (a lab in use, and the filters in it) is left alone and said so. Errors: none for things
    that are not there.
    """
    removed = []
    with contextlib.suppress(ApplianceError):  # a damaged record names nothing; the rest is found by its name
        left = Record.load()
        if left is not None and left.server is not None and left.server.stop():
            removed.append(f"server {left.server.pid}")
    with contextlib.suppress(XdpError, OSError):
        table = Table(Policy())
        if table.exists():
            table.delete()
            removed.append("nftables table zs_prefilter")
    removed += [f"filter {pin.name}" for pin in remove_leftovers(PINS)]
    try:
        removed += Lab.remove_leftovers(kept=True)
        removed += [f"filter {pin.name}" for pin in remove_leftovers()]
    except ApplianceError as error:
        removed.append(f"nothing of the lab: {error.message}")
    record.forget()
    return removed


def _remove_pins() -> None:
    """The directories that pinning made: they are ours once nothing is pinned in them."""
    remove_leftovers(PINS)
    with contextlib.suppress(OSError):
        PIN_ROOT.rmdir()


def _attach(interface: str, policy: Policy) -> Filter:
    """The filter with the policy in force; not attached when the policy cannot be applied."""
    attached = Filter.attach(interface, mode=policy.mode, pin=PINS / interface)
    try:
        attached.apply(policy)
    except BaseException:
        attached.detach()
        raise
    return attached


def _reopen(pin: Path) -> Filter | None:
    """The filter that a predecessor pinned, if it is whole and still attached; what is not is removed."""
    if not pin.exists():
        return None
    with contextlib.suppress(XdpError, OSError):
        found = Filter.reopen(pin)
        if found.is_attached():
            return found
        found.close()
    remove_leftovers(PINS)
    return None


def _myself() -> ProcessIdentity:
    identity = ProcessIdentity.of(os.getpid())
    if identity is None:
        raise ApplianceError("/proc does not show this process", "mount /proc")
    return identity
