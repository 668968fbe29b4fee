"""The timing model: warps of the first blocks on one multiprocessor, then waves of blocks.

Four schedulers issue one instruction a cycle each, warp w on scheduler w mod 4. A warp waits for
what it loaded before its next statement. Shared memory, L1, and the multiprocessor's part of L2 and
DRAM are servers that take requests in turn. What was busy longest bounds the kernel.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ridgeline.profile.gpus import Gpu
from ridgeline.profile.occupancy import Occupancy
from ridgeline.simt.launch import ThreadLaunch
from ridgeline.simt.model.costs import Mix, is_wait, reads_memory, statement_mix
from ridgeline.simt.model.counts import SECTOR, LaunchCounts, TraceStep
from ridgeline.simt.model.gpu_facts import SmFacts, sm_facts

_PARTITIONS = 4
_DEPENDENT = 4  # cycles until the next instruction of a warp may use a result
_DRAM_EFFICIENCY = 0.92


@dataclass(frozen=True)
class WarpStretch:
    """A stretch of a warp's time: what it did or waited for, at which instruction."""

    start: float
    end: float
    what: str  # "issue", "memory", "shared", "barrier", "scheduler"
    pc: int


@dataclass
class WarpTimeline:
    """The first blocks of a launch on one multiprocessor."""

    cycles: float
    warps: dict[int, list[WarpStretch]]
    busy: dict[str, float]  # cycles that each unit was in use
    stalls: dict[int, dict[str, float]] = field(default_factory=dict)
    first: float = 0.0  # when as many blocks as fit at once had ended


@dataclass(frozen=True)
class TimePrediction:
    """The predicted time of a launch, what bounds it, and the time each unit alone would need."""

    seconds: float
    bound: str
    units: dict[str, float]
    waves: float
    timeline: WarpTimeline
    bytes_in_flight: float
    bytes_needed: float


class _Server:
    """A unit that serves requests one after another."""

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def serve(self, now: float, cycles: float) -> float:
        """When a request that arrives now is done."""
        self.free = max(self.free, now) + cycles
        self.busy += cycles
        return self.free


class SmModel:
    """One multiprocessor at work on traced blocks."""

    def __init__(
        self, counts: LaunchCounts, gpu: Gpu, warps_per_block: int, factors: Mapping[int, float]
    ) -> None:
        self.counts, self.facts, self.gpu = counts, sm_facts(gpu), gpu
        self.factors = [factors.get(place.line, 1.0) for place in counts.places]
        self.mixes = [statement_mix(instruction) for instruction in counts.code]
        self.waits = [is_wait(instruction) for instruction in counts.code]
        self.loads = [reads_memory(instruction) for instruction in counts.code]
        self.warps_per_block = warps_per_block
        clock = gpu.boost_ghz * 1e9
        self.dram_rate = gpu.bandwidth * 1e9 * _DRAM_EFFICIENCY / clock / gpu.sms
        self.l2_rate = self.facts.l2_bytes_per_cycle / gpu.sms
        self.schedulers = [_Server() for _ in range(_PARTITIONS)]
        self.units = {name: _Server() for name in ("shared", "l1", "l2", "dram", "tensor")}

    def run(self, blocks: list[int], resident: int) -> WarpTimeline:
        """Run the traced warps of blocks, so many at once; the next starts where one ends."""
        traces = {
            warp: steps
            for warp, steps in self.counts.traces.items()
            if warp // self.warps_per_block in blocks
        }
        members: dict[int, list[int]] = {block: [] for block in blocks}
        for warp in sorted(traces):
            members[warp // self.warps_per_block].append(warp)
        left = {block: len(warps) for block, warps in members.items()}
        later = blocks[resident:]
        queue = [(0.0, warp, 0) for block in blocks[:resident] for warp in members[block]]
        heapq.heapify(queue)
        found: dict[int, list[WarpStretch]] = {warp: [] for warp in traces}
        stalls: dict[int, dict[str, float]] = {}
        arrived: dict[int, list[tuple[float, int, int]]] = {block: [] for block in blocks}
        ends: list[float] = []
        now = 0.0
        while queue:
            now, warp, place = heapq.heappop(queue)
            block = warp // self.warps_per_block
            if place >= len(traces[warp]):
                left[block] -= 1
                if left[block] == 0:
                    ends.append(now)
                    if later:
                        for other in members[later.pop(0)]:
                            heapq.heappush(queue, (now, other, 0))
                continue
            step = traces[warp][place]
            done = self._step(now, warp, step, found[warp], stalls)
            if not self.waits[step.pc]:
                heapq.heappush(queue, (done, warp, place + 1))
                continue
            arrived[block].append((done, warp, place))
            if len(arrived[block]) == left[block]:
                self._open(arrived[block], queue, found, stalls, step.pc)
                arrived[block] = []
        busy = {name: server.busy for name, server in self.units.items()}
        busy["issue"] = sum(server.busy for server in self.schedulers) / _PARTITIONS
        ends.sort()
        first = ends[min(resident, len(ends)) - 1] if ends else now
        return WarpTimeline(now, found, busy, stalls, first)

    def _open(
        self, waiting: list[tuple[float, int, int]], queue: list[tuple[float, int, int]],
        found: dict[int, list[WarpStretch]], stalls: dict[int, dict[str, float]], pc: int,
    ) -> None:  # fmt: skip
        last = max(done for done, _, _ in waiting) + self.facts.barrier_cycles / 2
        for done, warp, place in waiting:
            found[warp].append(WarpStretch(done, last, "barrier", pc))
            _add(stalls, pc, "barrier", last - done)
            heapq.heappush(queue, (last, warp, place + 1))

    def _step(
        self, now: float, warp: int, step: TraceStep, stretches: list[WarpStretch],
        stalls: dict[int, dict[str, float]],
    ) -> float:  # fmt: skip
        mix = self.mixes[step.pc]
        cycles = issue_cycles(mix, self.facts) * getattr(self.counts.code[step.pc], "share", 1.0)
        cycles *= self.factors[step.pc]
        scheduler = self.schedulers[warp % _PARTITIONS]
        issued = scheduler.serve(now, cycles)
        start = issued - cycles
        if start > now:
            _add(stalls, step.pc, "scheduler", start - now)
        stretches.append(WarpStretch(start, issued, "issue", step.pc))
        depth = math.sqrt(max(1, sum(mix.values()) - mix["lsu"]))
        done = issued + _DEPENDENT * depth * min(1.0, cycles)
        ready = self._memory(issued, step)
        if mix["tensor"]:
            ready = max(ready, self.units["tensor"].serve(issued, 16 * mix["tensor"]) + 16)
        if ready > done and (self.loads[step.pc] or mix["tensor"]):
            what = "memory" if step.dram or step.l2 or step.l1 else "shared"
            stretches.append(WarpStretch(done, ready, what, step.pc))
            _add(stalls, step.pc, what, ready - done)
            done = ready
        return done

    def _memory(self, now: float, step: TraceStep) -> float:
        facts, units, ready = self.facts, self.units, now
        sectors = step.l1 + step.l2 + step.dram
        if step.shared:
            ready = units["shared"].serve(now, step.shared) + facts.shared_latency
        if not sectors:
            return ready
        served = units["l1"].serve(now, max(2.0, sectors / 4))
        latency = facts.l1_latency
        if step.l2 or step.dram:
            beyond = (step.l2 + step.dram) * SECTOR
            served = max(served, units["l2"].serve(now, beyond / self.l2_rate))
            latency = facts.l2_latency
        if step.dram:
            served = max(served, units["dram"].serve(now, step.dram * SECTOR / self.dram_rate))
            latency = facts.dram_latency
        return max(ready, served + latency)


def issue_cycles(mix: Mix, facts: SmFacts) -> float:
    """Cycles that a scheduler needs to issue a statement of one warp."""
    total = 0.0
    for unit, count in mix.items():
        rate = facts.rates.get(unit, 32.0) / _PARTITIONS
        total += count * max(1.0, 32 / rate) if unit != "tensor" else count
    return max(1.0, total)


def _add(stalls: dict[int, dict[str, float]], pc: int, what: str, cycles: float) -> None:
    line = stalls.setdefault(pc, {})
    line[what] = line.get(what, 0.0) + cycles


def predict(
    counts: LaunchCounts, gpu: Gpu, launch: ThreadLaunch, occupancy: Occupancy, simulated: int,
    factors: Mapping[int, float],
) -> TimePrediction:  # fmt: skip
    """The time of a launch whose caches are cold, from the counts of its `simulated` blocks.

    `factors` says by line how many instructions the compiler made of one that the source has.
    """
    warps_per_block = -(-launch.threads // 32)
    per_sm = max(1, min(occupancy.blocks, -(-launch.blocks // gpu.sms)))
    resident = min(per_sm, counts.traced_blocks, launch.blocks)
    traced = min(counts.traced_blocks, launch.blocks, simulated)
    timeline = SmModel(counts, gpu, warps_per_block, factors).run(list(range(traced)), resident)
    clock = gpu.boost_ghz * 1e9
    sms = min(gpu.sms, launch.blocks)
    rounds = launch.blocks / (sms * resident)
    cycles = timeline.first
    if rounds > 1 and traced > resident:  # what a further round of blocks adds
        added = (timeline.cycles - timeline.first) * resident / (traced - resident)
        cycles += (rounds - 1) * added
    elif rounds > 1:
        cycles *= rounds
    serial = cycles / clock
    share = launch.blocks / traced
    units = {name: busy * share / sms / clock for name, busy in timeline.busy.items()}
    touched = counts.dram_bytes * launch.blocks / simulated
    units["dram"] = max(units["dram"], touched / (gpu.bandwidth * 1e9 * _DRAM_EFFICIENCY))
    busiest = max(units, key=lambda name: units[name])
    seconds = max(serial, units[busiest])
    bound = busiest if units[busiest] > 0.5 * seconds else "latency"
    facts = sm_facts(gpu)
    needed = gpu.bandwidth * 1e9 * facts.dram_latency / clock / gpu.sms
    flight = _bytes_in_flight(timeline, counts)
    return TimePrediction(seconds, bound, units, rounds, timeline, flight, needed)


def _bytes_in_flight(timeline: WarpTimeline, counts: LaunchCounts) -> float:
    """Bytes of DRAM and L2 that were under way on one multiprocessor, on average."""
    total = 0.0
    for warp, stretches in timeline.warps.items():
        waits: dict[int, list[float]] = {}
        for stretch in stretches:
            if stretch.what == "memory":
                waits.setdefault(stretch.pc, []).append(stretch.end - stretch.start)
        for pc, lengths in waits.items():
            steps = [step for step in counts.traces[warp] if step.pc == pc]
            mean = sum(s.dram + s.l2 for s in steps) / len(steps) * SECTOR
            total += mean * sum(lengths)
    return total / timeline.cycles if timeline.cycles else 0.0
