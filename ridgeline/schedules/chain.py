"""Chains of contractions: a block of rows passes through all stages while it is in cache.

A task is a block of rows. Its scores are register tiles over packed columns, its folds run in
lanes along each row, and its weighted sums are register tiles again, over the outputs. Pieces of
the columns that a causal mask hides from the whole block are skipped.
"""

from __future__ import annotations

from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, Const, For, Kernel, Reduce
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import (
    CacheRead,
    Reorder,
    Rfactor,
    SetKind,
    Skip,
    Split,
    Step,
    attempt,
    replay,
)
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.machine import Machine

_BLOCKS = (64, 32, 16)  # rows of a task, as many as leave room in the cache
_TILE = 4  # rows of a register tile


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Steps for a chain."""
    return _Plan(lowered, machine).steps()


class _Plan:
    """The steps chosen so far, and the current names of loops."""

    def __init__(self, lowered: Lowered, machine: Machine) -> None:
        assert lowered.chain is not None
        self.lowered, self.chain, self.machine = lowered, lowered.chain, machine
        self.kernel = lowered.kernel
        self.lengths = {
            s.name: int(s.extent.value)
            for s in ir.statements(self.kernel.body)
            if isinstance(s, For) and isinstance(s.extent, Const)
        }
        self.chosen: list[Step] = []
        self.scheduled, self.applied = self.kernel, 0  # the kernel after so many chosen steps
        self.width = machine.lanes(4) * (4 if machine.registers >= 32 else 2)

    def steps(self) -> list[Step]:
        """Cut all axes, nest them by stage, and set how each runs."""
        chain = self.chain
        tasks = [a.name for a in self.lowered.rows[:-1]]
        block, within, tile = self._cut_rows()
        scores = [self._cut_columns(stage.columns) for stage in chain.scores]
        # only scores may be masked, and only then are there pieces to skip
        heaps: list[tuple[list[str], str]] = [
            self._cut_columns(stage.columns) if chain.scores else ([], stage.columns)
            for stage in chain.weighted
        ]
        results = [self._cut_columns(stage.others[-1]) for stage in chain.weighted if stage.others]
        folds = [self._cut_columns(name) for name in chain.folded]
        self._fold_in_lanes(_inner(folds))
        summed = [name for stage in chain.scores for name in stage.others]
        others = [name for stage in chain.weighted for name in stage.others[:-1]]
        order = [
            *tasks, *block, *_outer(scores), *others, *_outer(results), *within, *summed,
            *(n for outer, inner in heaps for n in (*outer, inner)),
            tile, *_inner(scores), *_inner(results),
            *(n for outer, inner in folds for n in (*outer, inner)),
        ]  # fmt: skip
        self.chosen.append(Reorder(tuple(order)))
        self.chosen.append(SetKind(tile, "unroll"))
        vectors = [*_inner(scores), *_inner(results), *_inner(folds)]
        self.chosen += [SetKind(name, "vector") for name in vectors]
        self._skip([*_outer(scores), *_outer(folds), *_outer(heaps)])
        for stage, lanes in zip(chain.scores, _inner(scores)):
            if len(stage.others) == 1:
                self._pack(within, stage.columns, stage.others[0], (*stage.others, lanes))
            self._turn(within, tile, stage.columns, lanes)
        several = [(stage, cut) for stage, cut in zip(chain.weighted, heaps) if stage.others]
        for (stage, (heap, item)), lanes in zip(several, _inner(results)):
            self._pack(within, stage.others[-1], stage.columns, (*heap, item, lanes))
        self.chosen += [SetKind(name, "parallel") for name in (*tasks, *block)]
        return self.chosen

    def _block(self) -> int:
        """Rows that fit into half of a core's cache with all they keep in scratch."""
        kept = [
            s.buffer for s in ir.statements(self.kernel.body)
            if isinstance(s, Alloc) and s.buffer.scope == "local"
        ]  # fmt: skip
        size = sum(self.lengths[self.chain.columns] * b.dtype.itemsize for b in kept)
        room = self.machine.l2_bytes // 2
        return next((rows for rows in _BLOCKS if rows * size <= room), _BLOCKS[-1])

    def _cut_rows(self) -> tuple[list[str], list[str], str]:
        """Blocks of rows and tiles in them, with one body for all, since it is long.

        The last tile repeats the last row if rows are missing, and the last block tests which tiles
        exist.
        """
        length, tiles = self.lengths["m"], self._block() // _TILE
        if length <= _TILE:
            return [], [], "m"
        self.chosen.append(Split("m", _TILE, "repeat"))
        if length <= tiles * _TILE:
            return [], ["m.0"], "m.1"
        self.chosen.append(Split("m.0", tiles, "guard"))
        return ["m.0.0"], ["m.0.1"], "m.1"

    def _cut_columns(self, name: str) -> tuple[list[str], str]:
        """Split an axis that is longer than a piece; its outer name, if any, and its inner one."""
        if self.lengths[name] <= self.width:
            return [], name
        self.chosen.append(Split(name, self.width))
        return [f"{name}.0"], f"{name}.1"

    def _fold_in_lanes(self, names: list[str]) -> None:
        """Reductions over columns keep one accumulator per lane; stores along them need none."""
        now = self._now()
        folded = {
            s.name for s in ir.statements(now.body)
            if isinstance(s, For) and s.name in names
            and any(isinstance(r, Reduce) for r in ir.statements(s.body))
        }  # fmt: skip
        self.chosen += [Rfactor(name) for name in names if name in folded]

    def _skip(self, pieces: list[str]) -> None:
        if pieces:
            self._attempt(Skip(tuple(pieces)))

    def _pack(self, within: list[str], column: str, summed: str, axes: tuple[str, ...]) -> None:
        """Transpose a matrix with strided columns once for all rows of the block."""
        if not within or not column:
            return
        touched = [a for a in accesses(self.kernel) if a.stride(column) not in (0, None)]
        apart = [a for a in touched if not a.is_store and a.stride(summed) == 1]
        if len(apart) != 1:
            return
        square = self.machine.lanes(apart[0].buffer.dtype.itemsize)
        self._attempt(CacheRead(apart[0].buffer.name, within[0], axes, square))

    def _turn(self, within: list[str], tile: str, column: str, lanes: str) -> None:
        """Transpose what is combined with scores in another order, such as a mask in a gradient."""
        if not within:
            return
        for access in accesses(self.kernel):
            if (
                not access.is_store
                and access.stride("m") == 1
                and access.stride(column) not in (0, 1)
            ):
                self._attempt(
                    CacheRead(access.buffer.name, within[0], (*within, tile, lanes), _TILE)
                )

    def _attempt(self, step: Step) -> None:
        """Add an optional step, if it applies."""
        made = attempt(self._now(), step)
        if made is not None:
            self.chosen.append(step)
            self.scheduled, self.applied = made, len(self.chosen)

    def _now(self) -> Kernel:
        """The kernel after all steps chosen so far."""
        self.scheduled = replay(self.scheduled, self.chosen[self.applied :])
        self.applied = len(self.chosen)
        return self.scheduled


def _outer(cut: list[tuple[list[str], str]]) -> list[str]:
    """The outer loops of axes, where they are cut."""
    return [name for outer, _ in cut for name in outer]


def _inner(cut: list[tuple[list[str], str]]) -> list[str]:
    """The inner loops of axes."""
    return [name for _, name in cut]
