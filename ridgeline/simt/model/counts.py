"""Counts while a launch is simulated: per line, and a trace of the first blocks' warps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline.simt.ir import SourcePlace
from ridgeline.simt.simulator.lanes import AnyArray, IntArray, Lanes
from ridgeline.simt.simulator.storage import HeldArray

SECTOR, BANKS = 32, 32
_MOST_TRACED = 400_000  # steps of all traced warps together


@dataclass
class LineCounts:
    """What one line of the source did."""

    warps: int = 0  # times a warp issued a step of it
    lanes: int = 0  # lanes that took part
    requests: int = 0  # global memory: a warp's access
    sectors: int = 0
    ideal_sectors: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    branches: int = 0
    divergent: int = 0

    @property
    def active(self) -> float:
        """Lanes of 32 that took part, on average."""
        return self.lanes / self.warps if self.warps else 0.0


@dataclass
class TraceStep:
    """One step of one warp: its instruction, and what it asked of the memory."""

    pc: int
    shared: int = 0  # wavefronts
    l1: int = 0  # sectors found there
    l2: int = 0
    dram: int = 0


@dataclass
class LaunchCounts:
    """Counts of a launch; made empty, filled by the simulator."""

    traced_blocks: int = 8
    lines: dict[SourcePlace, LineCounts] = field(default_factory=lambda: defaultdict(LineCounts))
    instruction_warps: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    traces: dict[int, list[TraceStep]] = field(default_factory=lambda: defaultdict(list))
    code: list[Any] = field(default_factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    steps: int = 0  # of the traced blocks' warps
    recorded: int = 0  # of these, those that are in their traces

    def begin(self, machine: Any, first: int) -> None:
        """A batch of blocks starts."""
        self.machine, self.code = machine, machine.code
        self.padded = machine.crew.padded
        fresh = np.zeros(self.traced_blocks * self.padded // 32, bool)
        self.full: AnyArray = getattr(self, "full", fresh)  # warps whose trace is long enough
        self.longest = _MOST_TRACED // len(self.full)
        self.before = first * self.padded // 32  # warps of earlier batches
        self.places = [_place(instruction) for instruction in self.code]
        self.pending: dict[int, TraceStep] = {}
        self.seen_by: set[tuple[int, int]] = getattr(self, "seen_by", set())
        self.touched: dict[str, AnyArray] = getattr(self, "touched", {})

    def instruction(self, pc: int, lanes: Lanes) -> None:
        """Threads carry out an instruction."""
        warps = lanes.ids >> 5
        distinct = warps[np.flatnonzero(np.diff(warps, prepend=-1))]
        line = self.lines[self.places[pc]]
        line.warps += len(distinct)
        line.lanes += lanes.count
        self.instruction_warps[pc] += len(distinct)
        self.pending = {}
        traced = distinct[distinct < len(self.full) - self.before] + self.before
        self.steps += len(traced)
        for warp in traced[~self.full[traced]].tolist():
            step = TraceStep(pc)
            self.pending[warp - self.before] = step
            trace = self.traces[warp]
            trace.append(step)
            self.recorded += 1
            self.full[warp] = len(trace) >= self.longest

    def divergence(self, pc: int, lanes: Lanes, holds: AnyArray) -> None:
        """A branch parts threads."""
        warps = lanes.ids >> 5
        _, rows = np.unique(warps, return_inverse=True)
        taken = np.bincount(rows, weights=holds)
        total = np.bincount(rows)
        line = self.lines[self.places[pc]]
        line.branches += len(total)
        line.divergent += int(((taken > 0) & (taken < total)).sum())

    def access(
        self, site: int, stored: HeldArray, at: IntArray, lanes: Lanes, what: str, width: int = 1
    ) -> None:
        """Threads access `width` elements each, from places on."""
        place = self.machine.accesses.sites[site]
        line = self.lines[place]
        size = stored.array.dtype.itemsize
        if stored.array.space == "shared":
            start = 0 if stored.start is None else stored.start[lanes.ids]
            self._shared(line, stored.address + (at - start) * size, lanes, size * width)
        elif stored.array.space == "global":
            self._global(line, stored, stored.address + at * size, lanes, size * width, what)

    def _shared(self, line: LineCounts, address: IntArray, lanes: Lanes, size: int) -> None:
        words = max(1, size // 4)
        group = (lanes.ids >> 5) * words + (lanes.ids & 31) * words // 32
        keys = [(group << 32) | ((address >> 2) + step) for step in range(words)]
        distinct = np.unique(np.concatenate(keys) if words > 1 else keys[0])
        groups, rows = np.unique(distinct >> 32, return_inverse=True)
        banks = np.bincount(rows * BANKS + (distinct & (BANKS - 1)), minlength=len(groups) * BANKS)
        waves = banks.reshape(len(groups), BANKS).max(axis=1)
        line.shared_requests += len(np.unique(lanes.ids >> 5))
        line.wavefronts += int(waves.sum())
        line.ideal_wavefronts += len(groups)
        for warp, count in zip((groups // words).tolist(), waves.tolist()):
            if warp in self.pending:
                self.pending[warp].shared += count

    def _global(
        self, line: LineCounts, stored: HeldArray, address: IntArray, lanes: Lanes, size: int,
        what: str,
    ) -> None:  # fmt: skip
        warps = lanes.ids >> 5
        keys = [(warps << 40) | (address + byte) // SECTOR for byte in range(0, size, SECTOR)]
        distinct = np.unique(np.concatenate(keys) if len(keys) > 1 else keys[0])
        owners = distinct >> 40
        active = np.bincount(warps)
        asked = -(-active[np.unique(warps)] * size // SECTOR)
        found = np.bincount(owners)[np.unique(owners)]
        line.requests += len(asked)
        line.sectors += len(distinct)
        line.ideal_sectors += int(np.minimum(asked, found).sum())
        if what == "write":
            self.written_bytes += len(distinct) * SECTOR
        else:
            self.read_bytes += len(distinct) * SECTOR
        self._levels(stored, owners, distinct & ((1 << 40) - 1), what)

    def _levels(self, stored: HeldArray, owners: IntArray, sectors: IntArray, what: str) -> None:
        """Where each traced sector is found: in L1 if its block had it, in L2 if anyone had it."""
        name = stored.array.name
        if name not in self.touched:
            self.touched[name] = np.zeros(-(-stored.data.nbytes // SECTOR) + 1, bool)
        local = sectors - stored.address // SECTOR
        fresh = ~self.touched[name][local]
        _, first = np.unique(local, return_index=True)
        once = np.zeros(len(local), bool)
        once[first] = True
        fresh &= once
        self.touched[name][local] = True
        for place, warp in enumerate(owners.tolist()):
            step = self.pending.get(warp)
            if step is None:
                if not self.pending:
                    return
                continue
            key = ((warp + self.before) * 32 // self.padded, int(sectors[place]))
            if fresh[place]:
                step.dram += 1
            elif key in self.seen_by and what == "read":
                step.l1 += 1
            else:
                step.l2 += 1
            self.seen_by.add(key)

    @property
    def dram_bytes(self) -> int:
        """Bytes of memory that the simulated blocks touched at all."""
        return sum(int(touched.sum()) for touched in self.touched.values()) * SECTOR

    def all_dram_bytes(self, times: float) -> float:
        """Bytes that so many times as many blocks touch, of each array no more than it has."""
        return SECTOR * sum(
            min(float(len(touched)), int(touched.sum()) * times)
            for touched in self.touched.values()
        )


def _place(instruction: Any) -> SourcePlace:
    statement = getattr(instruction, "statement", None)
    found = instruction.place if statement is None else statement.place
    assert isinstance(found, SourcePlace)
    return found
