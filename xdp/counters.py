"""What a layer counted: one format for the filter, for nftables and for whoever reads them. It reads nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdp.policy import Reason, Verdict


@dataclass(frozen=True, slots=True)
class Count:
    """Packets and their bytes: whole Ethernet frames in the filter, IP packets in nftables."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.packets + other.packets, self.bytes + other.bytes)

    def __sub__(self, other: Count) -> Count:
        return Count(self.packets - other.packets, self.bytes - other.bytes)


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts by verdict and reason since the layer was put up; the difference of two is what happened between them.

    `samples_lost` counts the samples that found the filter's ring full.
    """

    by_outcome: Mapping[tuple[Verdict, Reason], Count] = field(default_factory=dict)
    samples_lost: int = 0

    def of(self, verdict: Verdict, reason: Reason) -> Count:
        """The count of one verdict for one reason."""
        return self.by_outcome.get((verdict, reason), Count())

    def total(self, verdict: Verdict) -> Count:
        """The count of one verdict for all reasons."""
        return sum((count for (v, _), count in self.by_outcome.items() if v is verdict), Count())

    @property
    def dropped(self) -> int:
        """Packets dropped."""
        return self.total(Verdict.DROP).packets

    @property
    def passed(self) -> int:
        """Packets passed."""
        return self.total(Verdict.PASS).packets

    def __sub__(self, earlier: Counters) -> Counters:
        outcomes = self.by_outcome.keys() | earlier.by_outcome.keys()
        difference = {outcome: self.of(*outcome) - earlier.of(*outcome) for outcome in outcomes}
        return Counters(difference, self.samples_lost - earlier.samples_lost)

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """`{verdict: {reason: {"packets": n, "bytes": n}}}`, for JSON."""
        return {
            verdict.value: {
                reason.value: {"packets": count.packets, "bytes": count.bytes}
                for reason in Reason
                for count in [self.of(verdict, reason)]
            }
            for verdict in Verdict
        }
