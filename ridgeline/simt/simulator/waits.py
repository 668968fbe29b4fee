"""Threads that wait: at barriers for their block, cluster or grid, at warp operations for lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ridgeline.simt.ir import Barrier, SourcePlace, WarpOp
from ridgeline.simt.simulator import warp_ops
from ridgeline.simt.simulator.clocks import Clocks
from ridgeline.simt.simulator.findings import FindingLog, KernelFinding
from ridgeline.simt.simulator.lanes import AnyArray, IntArray, spread

NOWHERE = -1


@dataclass
class Crew:
    """The threads of a batch: which exist, which still run, and where the others left."""

    exists: AnyArray
    padded: int
    cluster: int
    alive: AnyArray = field(init=False)
    left_at: AnyArray = field(init=False)

    def __post_init__(self) -> None:
        self.alive = self.exists.copy()
        self.left_at = np.full(len(self.exists), NOWHERE, np.int32)

    def group_size(self, scope: str) -> int:
        """Threads, with padding, that a barrier of a scope waits for."""
        if scope == "grid":
            return len(self.exists)
        return self.padded * (self.cluster if scope == "cluster" else 1)


class BarrierWaits:
    """Barriers: who has arrived where, and when a group may go on."""

    def __init__(self, crew: Crew, clocks: Clocks, log: FindingLog) -> None:
        self.crew, self.clocks, self.log = crew, clocks, log
        self.waiting = np.full(len(crew.exists), NOWHERE, np.int32)
        self.ballots = np.zeros(len(crew.exists), bool)
        self.turn = np.zeros(len(crew.exists), np.int64)  # of the loops around, where they matter
        self.statements: dict[int, Barrier] = {}

    def arrive(self, pc: int, statement: Barrier, ids: IntArray, votes: Any) -> IntArray:
        """Threads reach a barrier; those that may go on, from here or from other barriers."""
        self.statements[pc] = statement
        self.waiting[ids] = pc
        if votes is not None:
            self.ballots[ids] = spread(votes, len(ids))
        return self.complete(statement.scope, ids)

    def complete(self, scope: str, near: IntArray) -> IntArray:
        """Threads of groups of which all that still run have arrived; they go on."""
        size = self.crew.group_size(scope)
        groups = np.unique(near // size)
        inside = (groups[:, None] * size + np.arange(size)[None, :]).ravel()
        arrived = (self.waiting[inside] >= 0).reshape(len(groups), size)
        alive = self.crew.alive[inside].reshape(len(groups), size)
        ready = (arrived == alive).all(axis=1) & alive.any(axis=1)
        if not ready.any():
            return np.empty(0, np.int64)
        picked = inside.reshape(len(groups), size)[ready]
        self._check(picked, alive[ready])
        members = picked.ravel()[alive[ready].ravel()]
        self._pass(scope, members)
        return np.asarray(members)

    def _pass(self, scope: str, members: IntArray) -> None:
        if scope == "block":
            self.clocks.block_barrier(members, members // self.crew.padded)
        elif scope == "cluster":
            self.clocks.cluster_barrier(members)
        else:
            self.clocks.grid_barrier(members)

    def places(self, members: IntArray) -> AnyArray:
        """Where threads that go on were waiting; they wait no more."""
        found = self.waiting[members].copy()
        self.waiting[members] = NOWHERE
        return found

    def voted(self, statement: Barrier, members: IntArray) -> AnyArray:
        """What a voting barrier gives each thread."""
        blocks = members // self.crew.padded
        first = int(blocks.min())
        counts = np.bincount(blocks - first, weights=self.ballots[members]).astype(np.int32)
        threads = np.bincount(blocks - first)
        own = counts[blocks - first]
        if statement.vote == "count":
            return own
        return own > 0 if statement.vote == "or" else own == threads[blocks - first]

    def _check(self, picked: AnyArray, alive: AnyArray) -> None:
        """Report barriers that not all threads of a group reach, or reach in different places."""
        places = self.waiting[picked]
        first = places.max(axis=1)
        mixed = ((places != first[:, None]) & alive).any(axis=1)
        for row in np.flatnonzero(mixed)[:1]:
            self._report_mixed(picked[row], places[row], alive[row])
        turns = np.where(alive, self.turn[picked], self.turn[picked].max(axis=1, keepdims=True))
        apart = ~mixed & (turns != turns[:, :1]).any(axis=1)
        for row in np.flatnonzero(apart)[:1]:
            self._report_turns(picked[row], int(first[row]), turns[row])
        gone = self.crew.exists[picked] & ~alive
        if gone.any():
            self._report_gone(picked, first, gone, alive)

    def _report_mixed(self, members: AnyArray, places: AnyArray, alive: AnyArray) -> None:
        one, other = np.unique(places[alive])[:2]
        first, second = self.statements[int(one)].place, self.statements[int(other)].place
        counts = [int((places == pc).sum()) for pc in (one, other)]
        thread = self.log.name(int(members[places == one][0]) + self.clocks.first)
        self.log.add(
            ("mixed", one, other),
            KernelFinding(
                "divergent barrier",
                f"{counts[0]} threads of a block wait at line {first.line} and {counts[1]} at line "
                f"{second.line}, and a barrier is one place that all reach",
                first, thread,
                "move the barrier out of the branch, so that all threads reach the same one",
                second,
            ),
        )  # fmt: skip

    def _report_turns(self, members: AnyArray, pc: int, turns: AnyArray) -> None:
        place = self.statements[pc].place
        thread = self.log.name(int(members[np.argmin(turns)]) + self.clocks.first)
        self.log.add(
            ("turns", pc),
            KernelFinding(
                "divergent barrier",
                f"{thread} reaches the barrier in an earlier iteration of its loop than others, "
                "which passed it by",
                place, thread,
                "let all threads reach it in every iteration: guard the work instead",
            ),
        )  # fmt: skip

    def _report_gone(
        self, picked: AnyArray, places: AnyArray, gone: AnyArray, alive: AnyArray
    ) -> None:
        left = self.crew.left_at[picked]
        skipped = gone & (left > places[:, None])
        for mask, kind in ((skipped, "divergent barrier"), (gone & ~skipped, "barrier after exit")):
            rows = np.flatnonzero(mask.any(axis=1))
            if not len(rows):
                continue
            row = rows[0]
            place = self.statements[int(places[row])].place
            exists = int(self.crew.exists[picked[row]].sum())
            missing = self.log.name(int(picked[row][mask[row]][0]) + self.clocks.first)
            reached = int(alive[row].sum())
            self.log.add(
                (kind, int(places[row])),
                KernelFinding(
                    kind,  # type: ignore[arg-type]
                    f"the barrier is reached by {reached} of {exists} threads; {missing} "
                    + ("goes past it" if kind == "divergent barrier" else "has returned before it"),
                    place, missing,
                    "let all threads reach it: move it out of the branch or loop, and guard the "
                    "work instead",
                ),
                len(rows),
            )  # fmt: skip


class WarpWaits:
    """Warp operations: which lanes have arrived, and which their masks still wait for."""

    def __init__(self, crew: Crew, clocks: Clocks, log: FindingLog) -> None:
        self.crew, self.clocks, self.log = crew, clocks, log
        self.waiting = np.full(len(crew.exists), NOWHERE, np.int32)
        self.masks = np.zeros(len(crew.exists), np.uint32)
        self.names: dict[int, WarpOp] = {}

    def arrive(self, pc: int, op: WarpOp, ids: IntArray, masks: AnyArray) -> IntArray:
        """Lanes reach an operation; those that carry it out now, from here or waiting before."""
        self.names[pc] = op
        own = (masks & warp_ops.lane_bits(ids)) != 0
        if not own.all():
            self._report(op.place, ids[~own], "runs it with a mask that does not name its own lane",
                         "name every lane that runs it", "own")  # fmt: skip
            masks = masks | warp_ops.lane_bits(ids)
        self.waiting[ids] = pc
        self.masks[ids] = masks
        return self.ready(np.unique(ids >> 5), pc)

    def ready(self, warps: IntArray, pc: int) -> IntArray:
        """Lanes of warps whose masks are complete at an operation."""
        inside = ((warps << 5)[:, None] + np.arange(32)[None, :]).ravel()
        here = self.waiting[inside] == pc
        if self.names[pc].name == "sync":  # any syncwarp of the same lanes will do
            others = [p for p, op in self.names.items() if op.name == "sync"]
            here = np.isin(self.waiting[inside], others)
        bits = np.tile(np.uint32(1) << np.arange(32, dtype=np.uint32), len(warps))
        shape = (len(warps), 32)
        present = np.where(here, bits, 0).reshape(shape).sum(axis=1).astype(np.uint32)
        alive = np.where(self.crew.alive[inside], bits, 0).reshape(shape).sum(axis=1)
        needed = self.masks[inside] & np.repeat(alive.astype(np.uint32), 32)
        done = here & ((needed & ~np.repeat(present, 32)) == 0)
        return np.asarray(inside[done])

    def check_skipped(self, members: IntArray) -> None:
        """Report masks that name lanes which ended past the operation without taking part."""
        warps = np.unique(members >> 5)
        lanes = ((warps << 5)[:, None] + np.arange(32)[None, :]).ravel()
        gone = self.crew.exists[lanes] & ~self.crew.alive[lanes]
        if not gone.any():
            return
        first = members[np.searchsorted(members >> 5, warps)]
        places = np.repeat(self.waiting[first], 32)
        named = (np.repeat(self.masks[first], 32) & warp_ops.lane_bits(lanes)) != 0
        skipped = gone & named & (self.crew.left_at[lanes] > places)
        if skipped.any():
            op = self.names[int(places[np.flatnonzero(skipped)[0]])]
            self._report(op.place, lanes[skipped], f"goes past {op.name}, whose mask names it",
                         "let all lanes of the mask reach it, or pass mask= of those that do",
                         "skipped")  # fmt: skip

    def places(self, members: IntArray) -> AnyArray:
        """Where lanes that go on were waiting; they wait no more."""
        found = self.waiting[members].copy()
        self.waiting[members] = NOWHERE
        return found

    def participants(self, ids: IntArray) -> AnyArray:
        """Masks of lanes, without those that have left or do not exist."""
        warps, rows = np.unique(ids >> 5, return_inverse=True)
        present = np.zeros(len(warps), np.uint32)
        np.bitwise_or.at(present, rows, warp_ops.lane_bits(ids))
        return self.masks[ids] & present[rows]

    def _report(self, place: SourcePlace, ids: IntArray, message: str, help: str, key: str) -> None:
        name = self.log.name(int(ids[0]) + self.clocks.first)
        finding = KernelFinding("warp mask", f"{name} {message}", place, name, help)
        self.log.add((key, place), finding, len(ids))

    def report_stuck(self) -> None:
        """Report operations whose masks name lanes that never come."""
        stuck = np.flatnonzero(self.waiting >= 0)
        for pc in np.unique(self.waiting[stuck]):
            op, ids = self.names[int(pc)], stuck[self.waiting[stuck] == pc]
            warp = ids[ids >> 5 == ids[0] >> 5]
            lanes = f"{len(warp)} lane{'' if len(warp) == 1 else 's'}"
            self._report(op.place, ids,
                         f"waits in {op.name} with {lanes} of its warp, and its mask names others "
                         "that never reach it",
                         "let all lanes of the mask reach it, or pass mask= of those that do",
                         "stuck")  # fmt: skip
