"""What stands during a whole experiment: the lab, the attached XDP program, the service, and the measuring processes.

Built in order on entry, taken down in reverse on exit, whatever happened. What is measured with it is in `runner`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.lab import Lab, NapiThread
from appliance.settings import RUN_DIRECTORY
from appliance.supervisor import ServerPlan, ServerProcess
from appliance.welcome import kept_certificate, welcome_site
from experiments.counters import LossSnapshot, parse_udp_waiting
from experiments.dialogue import Agent
from experiments.environment import Environment, read_environment
from experiments.plan import PROBE_PATH, UDP_PORT
from experiments.positions import PASS_LOAD
from xdp.filter import Filter
from xdp.policy import Mode

HTTPS_PORT = 443
SERVER_LOG = "server.log"

_STATE = RUN_DIRECTORY / "experiment"
"""Certificate and packed site of the service; there is one lab on a machine, so one experiment, so one directory."""


_HIGHEST_PRIORITY = -20


@dataclass(frozen=True, slots=True)
class Cores:
    """The edge's core receives, filters, serves and reads the socket; the client's sends and probes."""

    edge: int
    client: int

    @classmethod
    def choose(cls) -> Cores:
        """The first two CPUs that this process may use; on a single one, both roles share it."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(edge=usable[0], client=usable[min(1, len(usable) - 1)])


@dataclass(frozen=True, slots=True)
class Rig:
    """The standing parts. Everything is owned by `assemble`, nothing by whoever holds this."""

    lab: Lab
    xdp_filter: Filter
    cores: Cores
    napi: tuple[NapiThread, ...]
    server: ServerProcess
    sink: Agent
    sender: Agent
    prober: Agent

    def processes(self) -> dict[str, tuple[int, ...]]:
        """The receiving side's processes and kernel threads by name, as `counters.CpuSnapshot.read` takes them."""
        return {
            "napi": tuple(thread.pid for thread in self.napi),
            "sink": (self.sink.pid,),
            "server": (self.server.pid,),
        }

    def read_losses(self) -> LossSnapshot:
        """The counters of packets lost on the way, now."""
        return LossSnapshot.read(
            client_pid=self.sender.pid,
            client_link=self.lab.client.interface,
            edge_pid=self.sink.pid,
            edge_link=self.lab.edge.interface,
        )

    def read_waiting_bytes(self) -> int:
        """Socket memory of the datagrams of the load that the sink has not read yet, now."""
        return parse_udp_waiting(Path(f"/proc/{self.sink.pid}/net/udp").read_text(), UDP_PORT)

    def read_environment(self) -> Environment:
        """The environment of the edge, now."""
        with self.lab.edge.socket() as in_edge:
            return read_environment(self.lab.edge.interface, in_edge, lab=True)


@contextmanager
def assemble(results: Path, lifetime_s: float, announce: Callable[[str], None]) -> Iterator[Rig]:
    """Build the rig in the lab; `announce` hears what is being done. No process of it outlives `lifetime_s` by itself.

    Raises ApplianceError, XdpError or ExperimentError, with everything already built taken down again.
    """
    cores = Cores.choose()
    with ExitStack() as undo:
        announce("building the lab")
        lab = undo.enter_context(Lab.create(purpose="zs-experiment"))
        undo.enter_context(_away_from(cores.edge))
        xdp_filter = undo.enter_context(_attached_filter(lab))
        napi = tuple(lab.set_threaded_napi(True))
        for thread in napi:
            thread.pin(cores.edge)
            # As an interrupt would, receiving goes before processes; otherwise a busy core loses packets on the link.
            os.setpriority(os.PRIO_PROCESS, thread.pid, _HIGHEST_PRIORITY)
        announce("starting the service")
        server = undo.enter_context(_service(lab, cores, results, undo))
        announce("starting sender, sink and prober")
        lifetime = ("--lifetime", f"{lifetime_s:.0f}")
        traffic = "experiments.traffic"
        address = ("--address", lab.edge.ipv4)
        sink = undo.enter_context(Agent("sink", lab.edge, [traffic, "sink", *address, *lifetime], cpu=cores.edge))
        sender = undo.enter_context(
            Agent("sender", lab.client, [traffic, "sender", *address, *lifetime], cpu=cores.client)
        )
        prober = undo.enter_context(
            Agent("prober", lab.client, [*_prober_argv(lab, server), *lifetime], cpu=cores.client)
        )
        yield Rig(lab, xdp_filter, cores, napi, server, sink, sender, prober)


@contextmanager
def _away_from(core: int) -> Iterator[None]:
    """Keep this process off the edge's core while the block lasts, if there is another."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - {core} or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _attached_filter(lab: Lab) -> Iterator[Filter]:
    with lab.edge.enter():
        xdp_filter = Filter.attach(lab.edge.interface, mode=Mode.MONITOR)
    try:
        xdp_filter.apply(PASS_LOAD)
        yield xdp_filter
    finally:
        with lab.edge.enter():
            xdp_filter.detach()


def _service(lab: Lab, cores: Cores, results: Path, undo: ExitStack) -> ServerProcess:
    """The HTTPS service on the edge's core, serving the appliance's own site."""
    shutil.rmtree(_STATE, ignore_errors=True)
    _STATE.mkdir(parents=True, mode=0o700)
    undo.callback(shutil.rmtree, _STATE, ignore_errors=True)
    certificate, key = kept_certificate(_STATE, (lab.edge.ipv4,))
    return ServerProcess.start(
        ServerPlan(
            site=welcome_site(_STATE),
            certificate=certificate,
            key=key,
            tls_addresses=(f"{lab.edge.ipv4}:{HTTPS_PORT}",),
            log=results / SERVER_LOG,
            workers=1,
            namespace=lab.edge,
            cpu=cores.edge,
        )
    )


def _prober_argv(lab: Lab, server: ServerProcess) -> list[str]:
    return [
        *("experiments.probe", "--address", lab.edge.ipv4, "--port", str(HTTPS_PORT)),
        *("--server-name", "localhost", "--path", PROBE_PATH, "--trusted", str(server.plan.certificate)),
    ]
