"""The drop positions as context managers: inside, packets of the load end there; outside, nothing is dropped anywhere.

How the layers drop is the business of `xdp`; here is only which of them is told to, and how its count is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.namespace import Namespace
from experiments.plan import UDP_PORT, Position
from xdp.counters import Counters
from xdp.filter import Filter
from xdp.nftables import Table
from xdp.policy import DropPort, Mode, Policy, Protocol, Reason, Verdict

DROP_LOAD = Policy(Mode.PROTECT, (DropPort(Protocol.UDP, UDP_PORT),))
PASS_LOAD = DROP_LOAD.in_mode(Mode.MONITOR)
"""The same rules, so that the XDP program does the same look-ups in every position and only the verdict differs."""

TABLE_NAME = "zs_experiment"

DroppedSoFar = Callable[[], int]
"""Reads how many packets of the load the dropping layer has counted as dropped."""


@contextmanager
def enter(position: Position, edge: Namespace, xdp_filter: Filter) -> Iterator[DroppedSoFar]:
    """Drop the load at the position until the block ends. Raises XdpError when the layer refuses."""
    match position:
        case Position.XDP:
            xdp_filter.apply(DROP_LOAD)
            try:
                yield lambda: _of_load(xdp_filter.counters())
            finally:
                xdp_filter.apply(PASS_LOAD)
        case Position.NFT_INPUT:
            table = Table(DROP_LOAD, name=TABLE_NAME)

            def dropped() -> int:
                with edge.enter():
                    return _of_load(table.counters())

            try:
                with edge.enter():
                    table.apply()
                yield dropped
            finally:
                with edge.enter():
                    table.delete()
        case Position.USERSPACE:
            yield lambda: 0


def _of_load(counters: Counters) -> int:
    return counters.of(Verdict.DROP, Reason.PORT).packets
