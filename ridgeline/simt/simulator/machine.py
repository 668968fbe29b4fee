"""Threads of a batch of blocks, run as sets that stand at the same instruction.

The set at the smallest instruction runs first, which brings threads that branched apart together
again. A set that only loops while others could go on rests after a while, so that a thread that
waits for another one lets it run: every thread makes progress, as on GPUs since Volta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.simt.ir import Atomic, Barrier, SourcePlace, ThreadProgram, Variable, WarpOp
from ridgeline.simt.simulator import warp_ops
from ridgeline.simt.simulator.debug import KernelDebugger
from ridgeline.simt.simulator.findings import FindingKind, KernelFinding
from ridgeline.simt.simulator.instructions import (
    Do,
    Exit,
    Instruction,
    Jump,
    JumpUnless,
    Wait,
    instructions,
)
from ridgeline.simt.simulator.lanes import IntArray, Lanes, spread
from ridgeline.simt.simulator.ready import Place, ReadySets, parts_of
from ridgeline.simt.simulator.statements import Actions
from ridgeline.simt.simulator.storage import MemoryChecks
from ridgeline.simt.simulator.waits import BarrierWaits, Crew, WarpWaits

_SPIN_TURNS = 3  # iterations that a loop with atomics takes before others go on
_LONG_TURNS = 50_000  # the same of a loop that looks like work
_SPIN_WEIGHT = 8  # iterations that one of a loop with atomics counts for
_LIGHT_THREADS = 1024  # that run an iteration in about the time of one


class Stopped(Exception):
    """The batch was stopped: threads wait for what never comes."""


@dataclass
class StepLimits:
    """How long a launch may run: iterations of loops, over all sets of threads."""

    iterations: int = 400_000


class ThreadMachine:
    """One batch of blocks in execution."""

    def __init__(
        self, program: ThreadProgram, actions: Actions, crew: Crew, everyone: int,
        limits: StepLimits, shuffled: np.random.Generator | None,
    ) -> None:  # fmt: skip
        self.code, _ = instructions(program)
        self.counts_turns = any(isinstance(i, Wait) and i.turns for i in self.code)
        self.actions, self.crew, self.everyone, self.limits = actions, crew, everyone, limits
        self.accesses: MemoryChecks = actions.accesses
        clocks, log = self.accesses.clocks, self.accesses.log
        self.barriers = BarrierWaits(crew, clocks, log)
        self.warps = WarpWaits(crew, clocks, log)
        threads = len(crew.exists)
        self.ready = ReadySets(self.accesses.order, parts_of(threads, crew.padded), shuffled)
        self.lane_operations = 0
        self.iterations = 0.0
        self.changes_at_rest = -1
        self.random = None if self.ready.ranks is not None else shuffled
        self.signals = [isinstance(i, Do) and isinstance(i.statement, Atomic) for i in self.code]
        self.steps = [self._step(pc, instruction) for pc, instruction in enumerate(self.code)]

    def run(self) -> None:
        """Run until all threads have ended or wait for what never comes."""
        ready = self.ready
        ready.park(0, np.flatnonzero(self.crew.exists).astype(np.int64))
        while True:
            while ready:
                if ready.all_rest:
                    self._check_progress({})
                    ready.wake()
                rests = self._run_set(*ready.take())
                if not ready.in_source_order and not rests:
                    ready.wake()  # who goes first looks again after each of the others
            if not self._stuck():
                return

    def _check_progress(self, running: dict[Place, IntArray]) -> None:
        """Stop where every set loops and nothing has changed since the last time."""
        accesses = self.accesses
        if accesses.watch and accesses.changes == self.changes_at_rest:
            self._report_endless("waits for a change that no thread makes", running)
            raise Stopped
        accesses.watch = True
        self.changes_at_rest = accesses.changes

    def _run_set(self, pc: int, ids: IntArray) -> bool:
        """Run one set of threads until it ends, waits, or others have to catch up.

        True where it loops and rests for others.
        """
        turns = 0
        ready, end = self.ready, len(self.code)
        lanes = Lanes(ids, self.everyone)
        stop = ready.stops_at(end)
        debugger = self.actions.debugger
        while True:
            self.lane_operations += lanes.count
            instruction = self.code[pc]
            if debugger is not None and debugger.steps:
                self._show(debugger, instruction, lanes)
            if self.accesses.counter is not None:
                self.accesses.counter.instruction(pc, lanes)
            following = self.steps[pc](lanes)
            if following is None:
                return False
            target, ids = following
            if target <= pc:
                turns += 1
                assert isinstance(instruction, Jump)
                self._count_iteration(instruction, ids)
                if ready and turns > (_SPIN_TURNS if instruction.spins else _LONG_TURNS):
                    ready.rest(target, ids)
                    return True
                if not ready and turns % 1024 == 0:
                    self._check_progress({(target, 0): ids})
            came_from, pc = pc, target
            if ready:
                ids = ready.joined(pc, ids)
            if ids is not lanes.ids:
                lanes = Lanes(ids, self.everyone)
                stop = ready.stops_at(end)
            if self.signals[came_from] and ready.gives_way(pc, ids):
                return False
            if pc > stop or (self.random is not None and self.random.random() < 0.05):
                ready.park(pc, lanes.ids)
                return False

    def _show(self, debugger: KernelDebugger, instruction: Instruction, lanes: Lanes) -> None:
        """Stop at the next line of the thread that is looked at."""
        holder = instruction.statement if isinstance(instruction, (Do, Wait)) else instruction
        if debugger.is_due(holder.place, lanes.ids):
            self.actions.pause(lanes, holder.place)

    def _count_iteration(self, jump: Jump, ids: IntArray) -> None:
        """Stop after too many iterations; those of many threads, or with atomics, take longer."""
        self.iterations += (_SPIN_WEIGHT if jump.spins else 1) + len(ids) / _LIGHT_THREADS
        if self.iterations > self.limits.iterations * self.ready.ways:
            running = {(jump.target, 0): ids}
            what = f"still loops, with limit={self.limits.iterations}"
            self._report_endless(what, running, "never ends" if jump.endless else "not finished")
            raise Stopped

    def _step(self, pc: int, instruction: Instruction) -> Any:
        """The function of an instruction: where its threads go next, or None where they stay."""
        match instruction:
            case Do():
                action = self.actions.of(instruction.statement)

                def do(lanes: Lanes) -> tuple[int, IntArray]:
                    action(lanes)
                    return pc + 1, lanes.ids

                return do
            case Jump():
                return lambda lanes: (instruction.target, lanes.ids)
            case JumpUnless():
                return self._branch(pc, instruction)
            case Wait():
                if isinstance(instruction.statement, Barrier):
                    return self._barrier(pc, instruction.statement, instruction.turns)
                return self._warp_op(pc, instruction.statement)
            case Exit():
                return lambda lanes: self._exit(pc, lanes)

    def _branch(self, pc: int, instruction: JumpUnless) -> Any:
        condition = self.actions.evaluators.of(instruction.condition)

        def branch(lanes: Lanes) -> tuple[int, IntArray] | None:
            holds = condition(lanes)
            if not isinstance(holds, np.ndarray) or holds.ndim == 0:
                return (pc + 1 if holds else instruction.target), lanes.ids
            if holds.all():
                return pc + 1, lanes.ids
            if not holds.any():
                return instruction.target, lanes.ids
            if self.accesses.counter is not None:
                self.accesses.counter.divergence(pc, lanes, holds)
            self.ready.park(instruction.target, lanes.ids[~holds])
            if not self.ready.in_source_order:  # the thread that goes first may be in either
                self.ready.park(pc + 1, lanes.ids[holds])
                return None
            return pc + 1, lanes.ids[holds]

        return branch

    def _barrier(self, pc: int, statement: Barrier, turns: tuple[Variable, ...]) -> Any:
        value = None if statement.value is None else self.actions.evaluators.of(statement.value)
        counters = [self.actions.variables[turn.name] for turn in turns]

        def barrier(lanes: Lanes) -> tuple[int, IntArray] | None:
            votes = None if value is None else value(lanes)
            if self.counts_turns:
                self.barriers.turn[lanes.ids] = 0
            for counter in counters:
                self.barriers.turn[lanes.ids] *= 1 << 20
                self.barriers.turn[lanes.ids] += counter[lanes.ids]
            members = self.barriers.arrive(pc, statement, lanes.ids, votes)
            if not len(members):
                return None
            return self._released(self.barriers.places(members), members, pc)

        return barrier

    def _released(
        self, places: IntArray, members: IntArray, pc: int
    ) -> tuple[int, IntArray] | None:
        """Threads go on from where they waited; those of this instruction at once."""
        self.accesses.changes += 1
        for place in np.unique(places):
            there = members[places == place]
            statement = self.code[int(place)]
            if isinstance(statement, Wait) and isinstance(statement.statement, Barrier):
                barrier = statement.statement
                if barrier.vote is not None and barrier.target is not None:
                    self.actions.variables[barrier.target.name][there] = self.barriers.voted(
                        barrier, there
                    )
            if place != pc or not self.ready.in_source_order:
                self.ready.park(int(place) + 1, there)
        here = members[places == pc] if self.ready.in_source_order else members[:0]
        return (pc + 1, here) if len(here) else None

    def _warp_op(self, pc: int, op: WarpOp) -> Any:
        mask = None if op.mask is None else self.actions.evaluators.of(op.mask)
        runner = WarpRunner(self, op)

        def warp_op(lanes: Lanes) -> tuple[int, IntArray] | None:
            if op.name == "activemask":
                runner.active(lanes.ids)
                return pc + 1, lanes.ids
            masks = warp_ops.FULL if mask is None else mask(lanes)
            members = self.warps.arrive(pc, op, lanes.ids, spread(masks, lanes.count))
            if not len(members):
                return None
            self.warps.check_skipped(members)
            runner.carry_out(members)
            return self._released(self.warps.places(members), members, pc)

        return warp_op

    def _exit(self, pc: int, lanes: Lanes) -> None:
        """Threads end; barriers and warp operations may have waited for them alone."""
        self.crew.alive[lanes.ids] = False
        self.crew.left_at[lanes.ids] = pc
        self.accesses.changes += 1
        if (self.barriers.waiting >= 0).any():
            scopes = {self.barriers.statements[int(place)].scope
                      for place in np.unique(self.barriers.waiting) if place >= 0}  # fmt: skip
            for scope in scopes:
                members = self.barriers.complete(scope, lanes.ids)
                if len(members):
                    self._released(self.barriers.places(members), members, -1)
        if (self.warps.waiting >= 0).any():
            self._retry_warps(np.unique(lanes.ids >> 5))

    def _retry_warps(self, warps: IntArray) -> None:
        for place in np.unique(self.warps.waiting):
            if place < 0:
                continue
            members = self.warps.ready(warps, int(place))
            if len(members):
                instruction = self.code[int(place)]
                assert isinstance(instruction, Wait) and isinstance(instruction.statement, WarpOp)
                self.warps.check_skipped(members)
                WarpRunner(self, instruction.statement).carry_out(members)
                self._released(self.warps.places(members), members, -1)

    def _stuck(self) -> bool:
        """No set can run: true if threads that waited were let go after a report."""
        if (self.warps.waiting >= 0).any():
            self.warps.report_stuck()
            raise Stopped
        waiting = np.flatnonzero(self.barriers.waiting >= 0)
        if not len(waiting):
            return False
        places = np.unique(self.barriers.waiting[waiting])
        statement = self.barriers.statements[int(places[0])]
        self._report(statement.place, int(waiting[0]), "divergent barrier",
                     f"{len(waiting)} threads wait at barriers that the others never reach",
                     "let all threads reach the same barrier")  # fmt: skip
        raise Stopped

    def _report_endless(
        self, what: str, running: dict[Place, IntArray], kind: FindingKind = "never ends"
    ) -> None:
        """Name the lines where warps loop, those that run and those that rest."""
        sets = {**self.ready.sets, **running}
        for (pc, _), ids in sorted(sets.items(), key=lambda item: item[0]):
            place = self._loop_place(pc)
            warps = len(np.unique(ids >> 5))
            self._report(place, int(ids[0]), kind, f"a set of {warps} warps {what}",
                         "some thread has to make the loop's condition false; raise limit= if "
                         "it only takes long")  # fmt: skip
        for pc in np.unique(self.barriers.waiting[self.barriers.waiting >= 0]).tolist():
            ids = np.flatnonzero(self.barriers.waiting == pc)
            self._report(self.barriers.statements[pc].place, int(ids[0]), kind,
                         f"a set of {len(np.unique(ids >> 5))} warps waits at the barrier",
                         "threads in a loop that never ends do not reach it")  # fmt: skip

    def _loop_place(self, pc: int) -> SourcePlace:
        """The loop that begins at an instruction, or what stands there."""
        for instruction in self.code[pc:]:
            if isinstance(instruction, Jump) and instruction.target == pc:
                return instruction.place
        for instruction in self.code[pc:]:
            if isinstance(instruction, Do):
                return instruction.statement.place
            if isinstance(instruction, (Jump, JumpUnless, Exit)):
                return instruction.place
        return self.code[-1].place  # type: ignore[union-attr]

    def _report(
        self, place: SourcePlace, thread: int, kind: FindingKind, message: str, help: str
    ) -> None:
        name = self.accesses.log.name(thread + self.accesses.clocks.first)
        text = f"{name}: {message}"
        self.accesses.log.add((kind, place), KernelFinding(kind, text, place, name, help))


class WarpRunner:
    """Carries one warp operation out, once all its lanes are there."""

    def __init__(self, machine: ThreadMachine, op: WarpOp) -> None:
        self.machine, self.op = machine, op
        evaluators = machine.actions.evaluators
        self.value = None if op.value is None else evaluators.of(op.value)
        self.argument = None if op.argument is None else evaluators.of(op.argument)

    def active(self, ids: IntArray) -> None:
        """The lanes of each warp that run together now."""
        assert self.op.target is not None
        masks = warp_ops.present_masks(ids, len(self.machine.crew.exists) // 32)
        self.machine.actions.variables[self.op.target.name][ids] = masks[ids >> 5]

    def carry_out(self, ids: IntArray) -> None:
        """All lanes that the masks name are there."""
        op, machine = self.op, self.machine
        masks = machine.warps.participants(ids)
        if op.name == "sync":
            machine.accesses.clocks.warp_sync(ids, masks)
            return
        lanes = Lanes(ids, machine.everyone)
        assert self.value is not None and op.target is not None
        values = np.array(spread(self.value(lanes), lanes.count))
        machine.actions.variables[op.target.name][ids] = self._result(lanes, values, masks)

    def _result(self, lanes: Lanes, values: Any, masks: Any) -> Any:
        op, ids = self.op, lanes.ids
        if op.name.startswith("shfl"):
            assert self.argument is not None
            argument = spread(self.argument(lanes), lanes.count)
            sources = warp_ops.shuffle_sources(op, ids, argument)
            missing = (masks >> sources.astype(np.uint32)) & np.uint32(1) == 0
            if missing.any():
                self._report_missing(ids, sources, missing)
            table, rows = warp_ops.matrix(ids, values)
            return np.where(missing, values, table[rows, sources])
        if op.name in ("ballot", "any", "all"):
            return warp_ops.vote(op.name, ids, values, masks)
        if op.name == "match":
            return warp_ops.match(ids, values, masks)
        return warp_ops.reduce(op.name, ids, values, masks)

    def _report_missing(self, ids: IntArray, sources: IntArray, missing: Any) -> None:
        first = int(np.flatnonzero(missing)[0])
        machine = self.machine
        name = machine.accesses.log.name(int(ids[first]) + machine.accesses.clocks.first)
        message = (
            f"{name} reads lane {int(sources[first])} by {self.op.name}, and that lane has left, "
            "does not exist or is not in the mask"
        )
        finding = KernelFinding(
            "shuffle", message, self.op.place, name,
            "keep all lanes in the warp until then, and choose sources among the mask",
        )  # fmt: skip
        machine.accesses.log.add(("shuffle", self.op.place), finding, int(missing.sum()))
