"""The timing model: warps of the first blocks on one multiprocessor, then waves of blocks.

Four schedulers issue one instruction a cycle each, warp w on scheduler w mod 4, into pipes that
take a warp's lanes at their own rates. A warp waits where it reads a variable whose value is not
there yet; loads that the compiler wrote out several times in a loop are waited for together, unless
one leads to the next. Shared memory, L1, and the multiprocessor's part of L2 and DRAM are servers
that take requests in turn. What was busy longest bounds the kernel.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from ridgeline.profile.gpus import Gpu
from ridgeline.profile.occupancy import Occupancy
from ridgeline.simt.ir import FragmentMultiply
from ridgeline.simt.launch import ThreadLaunch
from ridgeline.simt.model.costs import is_wait, result_latency, statement_mix
from ridgeline.simt.model.counts import SECTOR, LaunchCounts, TraceStep
from ridgeline.simt.model.dependence import dependences
from ridgeline.simt.model.gpu_facts import sm_facts
from ridgeline.simt.simulator.instructions import Instruction

_PARTITIONS = 4
_MOST_AHEAD = 8  # loads of a loop that the compiler issues before it uses the first
_ARITHMETIC = ("fma", "fp64", "half", "int", "sfu")
_DRAM_EFFICIENCY = 0.85  # of the data sheet's bandwidth: on an H200 a copy has 4.06 of 4.8 TB/s


@dataclass(frozen=True)
class CompiledSteps:
    """By line: what a step of it issues as compiled, and how often its loop has it written out."""

    mixes: Mapping[int, Mapping[str, float]]
    copies: Mapping[int, float]


ESTIMATED = CompiledSteps({}, {})


@dataclass(frozen=True)
class WarpStretch:
    """A stretch of a warp's time: what it did or waited for, at which instruction."""

    start: float
    end: float
    what: str  # "issue", "memory", "shared", "barrier", "scheduler", "arithmetic", "tensor"
    pc: int


@dataclass
class WarpTimeline:
    """The first blocks of a launch on one multiprocessor."""

    cycles: float
    warps: dict[int, list[WarpStretch]]
    busy: dict[str, float]  # cycles that each unit was in use
    stalls: dict[int, dict[str, float]] = field(default_factory=dict)
    first: float = 0.0  # when as many blocks as fit at once had ended
    flight: float = 0.0  # bytes under way beyond L1, times the cycles that they took


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


@dataclass
class _Pending:
    """When a variable's value is there, and what it comes from."""

    time: float
    what: str


class SmModel:
    """One multiprocessor at work on traced blocks."""

    def __init__(
        self, counts: LaunchCounts, gpu: Gpu, warps_per_block: int, compiled: CompiledSteps
    ) -> None:
        self.counts, self.facts, self.gpu = counts, sm_facts(gpu), gpu
        places = [place.line for place in counts.places]
        self.mixes = [
            _scaled(compiled.mixes.get(line), instruction)
            for line, instruction in zip(places, counts.code)
        ]
        self.latencies = [result_latency(instruction, self.facts) for instruction in counts.code]
        self.tensor = [_tensor_cycles(instruction, gpu) for instruction in counts.code]
        self.waits = [is_wait(instruction) for instruction in counts.code]
        self.order = dependences(counts.code)
        self.ahead = [
            1 if order.is_chased else max(1, min(_MOST_AHEAD, round(compiled.copies.get(line, 1))))
            for line, order in zip(places, self.order)
        ]
        self.turns: dict[tuple[int, int], int] = {}
        self.ready: dict[int, dict[str, _Pending]] = {}
        self.first_touched = 1.0  # of accesses that are the first here, those in the whole launch
        self.flight = 0.0  # bytes under way beyond L1, times the cycles that they took
        self.warps_per_block = warps_per_block
        clock = gpu.boost_ghz * 1e9
        self.dram_rate = gpu.bandwidth * 1e9 * _DRAM_EFFICIENCY / clock / gpu.sms
        self.l2_rate = self.facts.l2_bytes_per_cycle / gpu.sms
        self.schedulers = [_Server() for _ in range(_PARTITIONS)]
        self.pipes = [{unit: _Server() for unit in self.facts.rates} for _ in range(_PARTITIONS)]
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
        resumed: set[int] = set()  # warps that have waited for what their next step reads
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
                elif len(arrived[block]) == left[block]:  # the others wait for this one no more
                    self._open(arrived[block], queue, found, stalls)
                    arrived[block] = []
                continue
            step = traces[warp][place]
            if warp in resumed:
                resumed.remove(warp)
            elif (until := self._awaited(now, warp, step.pc, found[warp], stalls)) > now:
                resumed.add(warp)  # others are served before
                heapq.heappush(queue, (until, warp, place))
                continue
            done = self._step(now, warp, step, found[warp], stalls)
            if not self.waits[step.pc]:
                heapq.heappush(queue, (done, warp, place + 1))
                continue
            arrived[block].append((done, warp, place))
            if len(arrived[block]) == left[block]:
                self._open(arrived[block], queue, found, stalls)
                arrived[block] = []
        ends.sort()
        first = ends[min(resident, len(ends)) - 1] if ends else now
        return WarpTimeline(now, found, self.busy(), stalls, first, self.flight)

    def _open(
        self, waiting: list[tuple[float, int, int]], queue: list[tuple[float, int, int]],
        found: dict[int, list[WarpStretch]], stalls: dict[int, dict[str, float]],
    ) -> None:  # fmt: skip
        last = max(done for done, _, _ in waiting) + self.facts.barrier_cycles / 2
        for done, warp, place in waiting:
            pc = self.counts.traces[warp][place].pc
            found[warp].append(WarpStretch(done, last, "barrier", pc))
            _add(stalls, pc, "barrier", last - done)
            heapq.heappush(queue, (last, warp, place + 1))

    def _step(
        self, now: float, warp: int, step: TraceStep, stretches: list[WarpStretch],
        stalls: dict[int, dict[str, float]],
    ) -> float:  # fmt: skip
        """When the warp may go on; what it made may be there later."""
        mix, order = self.mixes[step.pc], self.order[step.pc]
        start = max(now, self.schedulers[warp % _PARTITIONS].free)
        if start > now:
            _add(stalls, step.pc, "scheduler", start - now)
        issued = self._issued(start, warp, mix)
        stretches.append(WarpStretch(start, issued, "issue", step.pc))
        made = max(issued, start + self.latencies[step.pc])
        pending = _Pending(made, "arithmetic")
        arrived = self._memory(issued, step, max(1, order.loads))
        if self.tensor[step.pc]:
            served = self.units["tensor"].serve(issued, self.tensor[step.pc])
            pending = _Pending(served + self.facts.tensor_latency, "tensor")
        elif order.loads:
            what = "memory" if step.dram or step.l2 or step.l1 else "shared"
            pending = _Pending(made - issued + arrived, what)
            if not order.writes and self._is_last(warp, step.pc):  # it uses what it loads itself
                _wait(issued, arrived, what, step.pc, stretches, stalls)
                issued = max(issued, arrived)
        for name in order.writes:
            self.ready[warp][name] = pending
        return issued

    def _issued(self, start: float, warp: int, mix: Mapping[str, float]) -> float:
        """When a scheduler has given all instructions of a step to their pipes."""
        partition = warp % _PARTITIONS
        issued = self.schedulers[partition].serve(start, sum(mix.values()))
        for unit, count in mix.items():
            if unit in self.facts.rates:
                cycles = 32 * _PARTITIONS / self.facts.rates[unit]  # until it takes the next
                taken = self.pipes[partition][unit].serve(start, count * cycles)
                issued = max(issued, taken - cycles + 1)
        return issued

    def _is_last(self, warp: int, pc: int) -> bool:
        """Whether a step is the last of those whose loads the compiler issues together."""
        turn = self.turns[warp, pc] = self.turns.get((warp, pc), 0) + 1
        return turn % self.ahead[pc] == 0

    def _awaited(
        self, now: float, warp: int, pc: int, stretches: list[WarpStretch],
        stalls: dict[int, dict[str, float]],
    ) -> float:  # fmt: skip
        """When what an instruction reads is there."""
        ready, order = self.ready.setdefault(warp, {}), self.order[pc]
        is_last = not order.writes or self._is_last(warp, pc)
        for name in order.reads:
            pending = ready.get(name)
            if pending is None or pending.time <= now:
                continue
            if pending.what in ("memory", "shared") and not is_last:
                continue
            _wait(now, pending.time, pending.what, pc, stretches, stalls)
            now = pending.time
        return now

    def _memory(self, now: float, step: TraceStep, depth: int) -> float:
        """When what a step asks of the memory is there; `depth` loads follow from one another."""
        facts, units, ready = self.facts, self.units, now
        sectors = step.l1 + step.l2 + step.dram
        if step.shared:
            ready = units["shared"].serve(now, step.shared) + facts.shared_latency * depth
        if not sectors:
            return ready
        served = units["l1"].serve(now, max(2.0, sectors / 4))
        latency = facts.l1_latency
        if step.l2 or step.dram:
            beyond = (step.l2 + step.dram) * SECTOR
            served = max(served, units["l2"].serve(now, beyond / self.l2_rate))
            latency = facts.l2_latency
        if step.dram:
            fetched = step.dram * SECTOR * self.first_touched
            served = max(served, units["dram"].serve(now, fetched / self.dram_rate))
            latency = facts.dram_latency
        arrived = served + latency * depth
        self.flight += (step.l2 + step.dram) * SECTOR * (arrived - now)
        return max(ready, arrived)

    def busy(self) -> dict[str, float]:
        """Cycles that each unit was in use; of schedulers and their pipes the busiest."""
        found = {name: server.busy for name, server in self.units.items()}
        slots = [sum(server.busy for server in self.schedulers)]
        for unit in _ARITHMETIC:
            slots.append(sum(pipes[unit].busy for pipes in self.pipes))
        found["issue"] = max(slots) / _PARTITIONS
        return found


def _scaled(mix: Mapping[str, float] | None, instruction: Instruction) -> Mapping[str, float]:
    """What a step issues, by unit: as compiled, or else as its statement suggests."""
    found = statement_mix(instruction) if mix is None else mix
    share = getattr(instruction, "share", 1.0)
    return {unit: count * share for unit, count in found.items() if unit != "tensor"}


def _tensor_cycles(instruction: Instruction, gpu: Gpu) -> float:
    """Cycles for which a product of fragments keeps the tensor cores of a multiprocessor busy."""
    statement = getattr(instruction, "statement", None)
    if not isinstance(statement, FragmentMultiply):
        return 0.0
    a = statement.a
    rate = gpu.peak(a.dtype.name) * 1e3 / gpu.sms / gpu.boost_ghz
    return 2 * a.m * a.n * a.k / (rate * sm_facts(gpu).tensor_share)


def _wait(
    now: float, until: float, what: str, pc: int, stretches: list[WarpStretch],
    stalls: dict[int, dict[str, float]],
) -> None:  # fmt: skip
    if until > now:
        stretches.append(WarpStretch(now, until, what, pc))
        _add(stalls, pc, what, until - now)


def _add(stalls: dict[int, dict[str, float]], pc: int, what: str, cycles: float) -> None:
    line = stalls.setdefault(pc, {})
    line[what] = line.get(what, 0.0) + cycles


def predict(
    counts: LaunchCounts, gpu: Gpu, launch: ThreadLaunch, occupancy: Occupancy, simulated: int,
    compiled: CompiledSteps = ESTIMATED,
) -> TimePrediction:  # fmt: skip
    """The time of a launch whose caches are cold, from the counts of its `simulated` blocks.

    `compiled` says what the compiler made of the lines; else they are estimated.
    """
    warps_per_block = -(-launch.threads // 32)
    per_sm = max(1, min(occupancy.blocks, -(-launch.blocks // gpu.sms)))
    resident = min(per_sm, counts.traced_blocks, launch.blocks)
    traced = min(counts.traced_blocks, launch.blocks, simulated)
    touched = counts.all_dram_bytes(launch.blocks / simulated)
    model = SmModel(counts, gpu, warps_per_block, compiled)
    model.first_touched = touched / max(1.0, counts.dram_bytes * launch.blocks / simulated)
    timeline = model.run(list(range(traced)), resident)
    clock = gpu.boost_ghz * 1e9 * counts.recorded / max(1, counts.steps)  # of a longer trace
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
    units["dram"] = touched / (gpu.bandwidth * 1e9 * _DRAM_EFFICIENCY)  # first blocks touch more
    busiest = max(units, key=lambda name: units[name])
    seconds = max(serial, units[busiest])
    bound = busiest if units[busiest] > 0.5 * seconds else "latency"
    facts = sm_facts(gpu)
    needed = gpu.bandwidth * facts.dram_latency / gpu.boost_ghz / gpu.sms
    flight = timeline.flight / timeline.cycles if timeline.cycles else 0.0
    return TimePrediction(seconds, bound, units, rounds, timeline, flight, needed)
