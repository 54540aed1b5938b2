"""One loaded copy of the filter program with its maps: apply a policy, read what was counted and sampled.

It knows nothing of interfaces: attaching is filter.py's. There may be many readers, but one writer at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from types import TracebackType
from typing import Self

from xdp import layout
from xdp.counters import Count, Counters
from xdp.errors import XdpError
from xdp.layout import Sample, State
from xdp.libbpf import Map, MapType, Object, Program, RingBuffer, TestRun
from xdp.policy import Mode, Policy, Reason, Verdict, source_expiries

_PROGRAM = "zs_prefilter"
_ZERO = layout.INDEX.pack(0)
_SOURCES = {4: ("zs_sources_v4", State.SOURCES_V4), 6: ("zs_sources_v6", State.SOURCES_V6)}


class Prefilter:
    """The program and its maps, held open by descriptors of this object's own."""

    def __init__(self, program: Program, maps: Mapping[str, Map]) -> None:
        self.program = program
        self._maps = maps
        self._ring: RingBuffer | None = None

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Loads the package's object, or the one at `path`, with no rules, in monitor mode; raises `XdpError`."""
        if path is None:
            with as_file(files("xdp") / "prefilter.bpf.o") as packaged:
                return cls.load(packaged)
        if not path.is_file():
            raise XdpError(f"the BPF object {path} is missing", "build it with `make bpf`")
        with Object.load(path) as loaded:
            maps = {name: loaded.map(name) for name in layout.SHAPES}
            prefilter = cls(loaded.program(_PROGRAM), maps)
        for name, shape in layout.SHAPES.items():
            if (maps[name].key_size, maps[name].value_size) != shape:
                prefilter.close()
                raise XdpError(f"the map {name} in {path} has another layout", "rebuild it with `make bpf`")
        return prefilter

    @classmethod
    def pinned(cls, directory: Path, program: Program) -> Self:
        """The copy whose maps `pin` put into `directory`; raises `OSError`."""
        return cls(program, {name: Map.pinned(directory / name) for name in layout.SHAPES})

    def pin(self, directory: Path) -> None:
        """Pins all maps into `directory`, which must lie on a bpffs; raises `OSError`."""
        for name, each in self._maps.items():
            each.pin(directory / name)

    def close(self) -> None:
        """Lets go of the program and the maps; an attached program runs on."""
        if self._ring:
            self._ring.close()
            self._ring = None
        for each in self._maps.values():
            each.close()
        if self.program.fd >= 0:
            os.close(self.program.fd)
            self.program.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def mode(self) -> Mode:
        """The mode in force."""
        return Mode.PROTECT if self._state() & State.PROTECT else Mode.MONITOR

    @property
    def policies_applied(self) -> int:
        """How many times `apply` has switched since the program was loaded."""
        return self._state() >> 32

    def apply(self, policy: Policy) -> None:
        """Puts `policy` in force for all packets at once. Counters go on.

        The rules go into fresh maps in the slot that is not in use, are read back and compared, and then one 64-bit
        store switches mode and slot together. On return no packet is judged by the old policy any more. Raises
        `XdpError`, with the old policy still in force.
        """
        before = self._state()
        slot = 0 if before & State.SLOT else 1
        state = State(0) if slot == 0 else State.SLOT
        if policy.mode is Mode.PROTECT:
            state |= State.PROTECT
        try:
            state |= self._fill_ports(policy, slot) | self._fill_sources(policy, slot)
            word = layout.STATE.pack(((before >> 32) + 1) << 32 | state)
            self._maps["zs_state"].update(_ZERO, word)
            self._wait_for_packets_in_flight(slot)
        except OSError as error:
            raise XdpError(
                f"cannot apply the policy ({error.strerror})", "the policy before it stays in force"
            ) from None
        if self._maps["zs_state"].lookup(_ZERO) != word:
            raise XdpError("another process applied a policy meanwhile", "apply it again, from one process only")

    def _state(self) -> int:
        (word,) = layout.STATE.unpack(self._maps["zs_state"].lookup(_ZERO) or bytes(layout.STATE.size))
        return int(word)

    def _fill_ports(self, policy: Policy, slot: int) -> State:
        value = layout.ports_value(policy)
        shape = {"key_size": layout.INDEX.size, "value_size": layout.PORTS_BYTES, "max_entries": 1}
        with Map.create(MapType.ARRAY, "zs_ports", **shape) as inner:
            inner.update(_ZERO, value)
            if inner.lookup(_ZERO) != value:
                raise XdpError("the kernel holds other port rules than it was given", "the old policy stays in force")
            self._maps["zs_ports"].hold(slot, inner)
        return State.PORTS if any(value) else State(0)

    def _fill_sources(self, policy: Policy, slot: int) -> State:
        entries: dict[int, dict[bytes, bytes]] = {4: {}, 6: {}}
        for prefix, expires_at_ns in source_expiries(policy).items():
            expiry = layout.NEVER_NS if expires_at_ns is None else expires_at_ns
            entries[prefix.version][layout.prefix_key(prefix)] = layout.EXPIRY.pack(expiry)
        state = State(0)
        for family, (name, flag) in _SOURCES.items():
            if entries[family]:
                self._fill_trie(name, family, entries[family], slot)
                state |= flag
        return state

    def _fill_trie(self, name: str, family: int, entries: dict[bytes, bytes], slot: int) -> None:
        if len(entries) > layout.SOURCES_MAX:
            raise XdpError(f"{len(entries)} IPv{family} prefixes are too many", f"{layout.SOURCES_MAX} is the most")
        shape = {"key_size": layout.prefix_key_bytes(family), "value_size": layout.EXPIRY.size}
        with Map.create(MapType.LPM_TRIE, name[:15], **shape, max_entries=layout.SOURCES_MAX) as inner:
            inner.update_all(entries)
            if inner.entries() != entries:
                raise XdpError("the kernel holds other source rules than it was given", "the old policy stays in force")
            self._maps[name].hold(slot, inner)

    def _wait_for_packets_in_flight(self, slot: int) -> None:
        # Writing to an array of maps waits for an RCU grace period (maybe_wait_bpf_programs in kernel/bpf/syscall.c),
        # which no running program outlives: after it, the other slot may be overwritten by the next policy.
        inner = self._maps["zs_ports"].held(slot)
        if inner is not None:
            with inner:
                self._maps["zs_ports"].hold(slot, inner)

    def counters(self) -> Counters:
        """What was counted since the program was loaded, summed over the CPUs."""
        outcomes = {(verdict, reason): self._count(verdict, reason) for verdict in Verdict for reason in Reason}
        lost = sum(layout.SAMPLING.unpack(value)[1] for value in self._maps["zs_sampling"].lookup_per_cpu(_ZERO))
        return Counters(outcomes, samples_lost=lost)

    def _count(self, verdict: Verdict, reason: Reason) -> Count:
        per_cpu = self._maps["zs_totals"].lookup_per_cpu(layout.total_index(verdict, reason))
        return sum((Count(*layout.TOTAL.unpack(value)) for value in per_cpu), Count())

    def samples(self, wait_ms: int = 0) -> list[Sample]:
        """The sampled packets that nobody has read yet, after waiting at most `wait_ms` for the first."""
        return [layout.unpack_sample(record) for record in self._open_ring().read(wait_ms)]

    def samples_fileno(self) -> int:
        """A descriptor that is readable when samples wait, for an event loop."""
        return self._open_ring().fileno()

    def _open_ring(self) -> RingBuffer:
        if self._ring is None:
            self._ring = RingBuffer(self._maps["zs_samples"])
        return self._ring

    def test_run(self, frame: bytes, *, repeat: int = 1) -> TestRun:
        """Gives the program one frame of at least 14 bytes through BPF_PROG_TEST_RUN; it is counted like any other."""
        return self.program.test_run(frame, repeat=repeat)
