"""Runs and plans to test with, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from experiments.environment import Environment
from experiments.plan import Position
from experiments.runs import HttpChecks, Run

_ENVIRONMENT = Environment(
    model="Test board, 2 CPUs",
    kernel="6.12.0",
    interface="zs-edge0",
    driver="veth",
    mtu=1500,
    governor=None,
    temperature_c=None,
    lab=True,
)
_HTTP = HttpChecks(
    checks=4,
    successes=4,
    p50_ms=2.0,
    p95_ms=4.0,
    p99_ms=4.0,
    max_ms=4.0,
    latencies_ms=(1.0, 2.0, 3.0, 4.0),
    failures={},
)
_RUN = Run(
    schema=1,
    run_id="20261201-031500-lab/1",
    order=1,
    planned_runs=9,
    repetition=1,
    position=Position.USERSPACE,
    attach_mode="native",
    target_pps=50_000,
    actual_pps=50_000.0,
    delivered=True,
    burst=50,
    sent=500_000,
    refused_by_sender_kernel=0,
    dropped=0,
    received_userspace=500_000,
    lost=0,
    lost_where={"link": 0, "socket_buffer": 0, "unknown": 0},
    adds_up=True,
    waiting_bytes_at_stop=0,
    cpu_busy_percent=20.0,
    cpu_busy_percent_per_core=(25.0, 15.0),
    cpu_occupied_percent_per_core=(26.0, 16.0),
    steal_percent=0.0,
    net_rx_softirqs=1000,
    net_rx_softirqs_per_core=(400, 600),
    receiver_cpu_ns_per_packet=3000.0,
    receiver_cpu_ns={"napi": 600_000_000, "sink": 880_000_000, "softirq": 20_000_000, "server": 40_000_000},
    edge_core_others_percent=0.5,
    edge_core=0,
    client_core=1,
    http=_HTTP,
    duration_s=10.0,
    window_s=10.002,
    settle_s=2.0,
    latest_burst_ms=0.4,
    started_at="2026-12-01T03:15:00.000+00:00",
    environment=_ENVIRONMENT,
)


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """A sound user-space run at 50,000 pps, with the given fields changed; `http_` fields change its checks."""

    def make(**changes: Any) -> Run:
        http = {name.removeprefix("http_"): changes.pop(name) for name in list(changes) if name.startswith("http_")}
        return replace(_RUN, http=replace(_HTTP, **http), **changes)

    return make
