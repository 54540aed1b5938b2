"""Carries a plan out: run after run on the rig, each measured between two readings of the counters and recorded.

The protocol of a run is `_measure`; what the numbers mean together is for `analysis`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from experiments.counters import CpuSnapshot, CpuWindow, LossSnapshot
from experiments.dialogue import Message
from experiments.interrupts import Interrupts
from experiments.plan import PROBE_INTERVAL_S, Plan, PlannedRun
from experiments.positions import DroppedSoFar, enter
from experiments.probe import percentile
from experiments.rig import Rig, assemble
from experiments.runs import SCHEMA, HttpChecks, Run, RunFile, is_delivered

PROBE_TIMEOUT_S = 3.0
"""Longer than the second after which a lost SYN is sent again: such a check is slow, not failed."""
_MARGIN_S = 30.0
"""How much longer than expected a process may take to answer before the experiment is given up."""
_OVERHEAD_OF_RUN_S = 0.5
"""About what a run takes besides settling and sending: switching the position, draining, writing the record."""
START_S = 4.0
"""About what building the rig takes."""


class Observer(Protocol):
    """Who watches the experiment: hears of each step as it begins and of each run as it ends."""

    def announce(self, step: str) -> None: ...

    def begin(self, planned: PlannedRun) -> None: ...

    def end(self, run: Run) -> None: ...


def expected_s(plan: Plan) -> float:
    """About how long the plan will take in seconds, with building the lab."""
    return START_S + len(plan.runs()) * expected_run_s(plan)


def expected_run_s(plan: Plan) -> float:
    """About how long one run of the plan will take in seconds."""
    return plan.settle_s + plan.duration_s + _OVERHEAD_OF_RUN_S


def carry_out(plan: Plan, results: Path, interrupts: Interrupts, observer: Observer) -> None:
    """Make every run of the plan and append each to `results`/runs.jsonl as it ends.

    Raises ExperimentError, ApplianceError, XdpError, OSError or Interrupted; the runs that ended before are kept, and
    everything that was built is taken down.
    """
    lifetime_s = 2 * expected_s(plan) + 120
    with RunFile(results) as file, assemble(results, lifetime_s, observer.announce) as rig:
        for planned in plan.runs():
            observer.begin(planned)
            with enter(planned.position, rig.lab.edge, rig.xdp_filter) as dropped_so_far:
                interrupts.sleep(plan.settle_s)
                seen = _measure(rig, plan, planned, dropped_so_far, interrupts)
            run = _record(rig, plan, planned, seen, results.name)
            file.append(run)
            observer.end(run)


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of packets that only grow: what the layer dropped, what the sink read and refused, what was lost."""

    dropped: int
    received: int
    refused_by_buffer: int
    losses: LossSnapshot


@dataclass(frozen=True, slots=True)
class Account:
    """Where the packets of one run ended: sent = dropped + received + lost."""

    dropped: int
    received: int
    lost: int
    lost_where: Mapping[str, int]


def account(sent: int, before: Totals, after: Totals) -> Account:
    """Close the books of a run: the rest is lost, split over the counters that grew; what none explains is unknown."""
    dropped = after.dropped - before.dropped
    received = after.received - before.received
    lost = sent - dropped - received
    where = before.losses.losses_until(after.losses)
    where["socket_buffer"] = after.refused_by_buffer - before.refused_by_buffer
    where["unknown"] = lost - sum(where.values())
    return Account(dropped, received, lost, where)


@dataclass(frozen=True, slots=True)
class _Observed:
    """One run as it was seen: what sender and prober said, the CPU meanwhile, and where the packets ended."""

    started_at: str
    sent: Message
    probed: Message
    window: CpuWindow
    waiting_bytes: int
    packets: Account


def _measure(
    rig: Rig, plan: Plan, planned: PlannedRun, dropped_so_far: DroppedSoFar, interrupts: Interrupts
) -> _Observed:
    """One run: read, send and probe, read the CPU at once, let the sink drain, read the packet counters."""
    before = _read_totals(rig, dropped_so_far)
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    cpu_before = CpuSnapshot.read(rig.processes())
    rig.sender.send("start", rate_pps=planned.target_pps, burst=planned.burst, duration_s=plan.duration_s)
    rig.prober.send("start", duration_s=plan.duration_s, interval_s=PROBE_INTERVAL_S, timeout_s=PROBE_TIMEOUT_S)
    with interrupts.welcome():
        sent = rig.sender.receive("sent", plan.duration_s + _MARGIN_S)
    cpu_after = CpuSnapshot.read(rig.processes())
    waiting_bytes = rig.read_waiting_bytes()
    with interrupts.welcome():
        probed = rig.prober.receive("probed", PROBE_TIMEOUT_S + _MARGIN_S)
    after = _read_totals(rig, dropped_so_far)
    return _Observed(
        started_at=started_at,
        sent=sent,
        probed=probed,
        window=CpuWindow.between(cpu_before, cpu_after),
        waiting_bytes=waiting_bytes,
        packets=account(int(sent["sent"]), before, after),
    )


def _read_totals(rig: Rig, dropped_so_far: DroppedSoFar) -> Totals:
    """The packet counters, the sink's first: it answers only when it has drained what was on the way."""
    rig.sink.send("read")
    sink = rig.sink.receive("totals", _MARGIN_S)
    return Totals(dropped_so_far(), int(sink["received"]), int(sink["refused_by_buffer"]), rig.read_losses())


def _record(rig: Rig, plan: Plan, planned: PlannedRun, seen: _Observed, results_id: str) -> Run:
    """The run as it is written down."""
    sent = int(seen.sent["sent"])
    actual_pps = sent / float(seen.sent["elapsed_s"])
    receiver_ns = _receiver_ns(seen.window, rig.cores.edge)
    return Run(
        schema=SCHEMA,
        run_id=f"{results_id}/{planned.order}",
        order=planned.order,
        planned_runs=len(plan.runs()),
        repetition=planned.repetition,
        position=planned.position,
        attach_mode=rig.xdp_filter.attach_mode.value,
        target_pps=planned.target_pps,
        actual_pps=round(actual_pps, 1),
        delivered=is_delivered(actual_pps, planned.target_pps),
        burst=planned.burst,
        sent=sent,
        refused_by_sender_kernel=int(seen.sent["refused"]),
        dropped=seen.packets.dropped,
        received_userspace=seen.packets.received,
        lost=seen.packets.lost,
        lost_where=seen.packets.lost_where,
        adds_up=seen.packets.lost >= 0,
        waiting_bytes_at_stop=seen.waiting_bytes,
        cpu_busy_percent=round(seen.window.busy_percent, 2),
        cpu_busy_percent_per_core=_rounded(seen.window.busy_percent_per_core),
        cpu_occupied_percent_per_core=_rounded(seen.window.occupied_percent_per_core),
        steal_percent=round(seen.window.steal_percent, 2),
        net_rx_softirqs=sum(seen.window.net_rx_per_core),
        net_rx_softirqs_per_core=seen.window.net_rx_per_core,
        receiver_cpu_ns_per_packet=_per_packet(receiver_ns, sent),
        receiver_cpu_ns=receiver_ns,
        edge_core_others_percent=round(_others_percent(seen.window, rig.cores.edge), 2),
        edge_core=rig.cores.edge,
        client_core=rig.cores.client,
        http=_http_checks(seen.probed),
        duration_s=round(float(seen.sent["elapsed_s"]), 4),
        window_s=round(seen.window.elapsed_s, 4),
        settle_s=plan.settle_s,
        latest_burst_ms=round(float(seen.sent["latest_burst_ms"]), 3),
        started_at=seen.started_at,
        environment=rig.read_environment(),
    )


def _receiver_ns(window: CpuWindow, edge_core: int) -> dict[str, int]:
    return {
        "napi": window.process_ns["napi"],
        "sink": window.process_ns["sink"],
        "softirq": round(window.softirq_s_per_core[edge_core] * 1e9),
        "server": window.process_ns["server"],
    }


def _others_percent(window: CpuWindow, edge_core: int) -> float:
    ours = 100 * sum(window.process_ns.values()) / (window.elapsed_s * 1e9)
    return window.occupied_percent_per_core[edge_core] - ours


def _per_packet(receiver_ns: Mapping[str, int], sent: int) -> float:
    """The server is left out: it works for the service, not for the load, and costs the same in every position."""
    spent = sum(ns for part, ns in receiver_ns.items() if part != "server")
    return round(spent / sent, 1) if sent else 0.0


def _http_checks(probed: Message) -> HttpChecks:
    latencies = tuple(float(latency) for latency in probed["latencies_ms"])
    ranked = sorted(latencies)
    return HttpChecks(
        checks=probed["checks"],
        successes=len(latencies),
        p50_ms=percentile(ranked, 0.50),
        p95_ms=percentile(ranked, 0.95),
        p99_ms=percentile(ranked, 0.99),
        max_ms=ranked[-1] if ranked else None,
        latencies_ms=latencies,
        failures=probed["failures"],
    )


def _rounded(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(value, 2) for value in values)
