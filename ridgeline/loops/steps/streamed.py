"""Streamed: online softmax by the threads of a row, each over its part, combined at the end.

`Online` merges the two folds of one thread; here every thread of a row keeps a maximum and sums of
its own, corrected as it goes, and at the end the threads agree on the maximum and add up their
sums relative to it. A turn is summed for itself, and added with what that loses, as a block of a
`Cascade` is. A row that is too long to be held is then read once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import map_buffers, map_children, op, select, sequence, substitute
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Kernel, Load, Reduce, Seq, Stmt, Store, Var
from ridgeline.loops.monoids import compensated_total
from ridgeline.loops.steps.online import correction, folded_peak, relative_sums
from ridgeline.loops.steps.step import ScheduleError, Step, loops_named, widened


@dataclass(frozen=True, slots=True)
class Streamed(Step):
    """Merge a maximum and sums relative to it, folded by loops `thread` and, inside, `turn`."""

    thread: str
    turn: str
    name: ClassVar[str] = "streamed"

    def apply(self, kernel: Kernel) -> Kernel:
        """Merge the first such pair of every sequence."""
        loops_named(kernel, self.thread)
        body = self._visit(kernel.body)
        if body == kernel.body:
            raise ScheduleError(f"no maximum over {self.thread!r} is followed by sums of its kind")
        return replace(kernel, body=body)

    def _visit(self, statement: Stmt) -> Stmt:
        inner = map_children(statement, self._visit)
        if not isinstance(inner, Seq):
            return inner
        turns = [i for i, part in enumerate(inner.body) if self._turns(part) is not None]
        for first, second in pairwise(turns):
            merged = self._merged(inner.body[first : second + 1])
            if merged is not None:
                return sequence(*inner.body[:first], merged, *inner.body[second + 1 :])
        return inner

    def _turns(self, part: Stmt) -> For | None:
        """The loop over turns of a fold over threads."""
        if isinstance(part, For) and (part.name, part.axis) == (self.thread, "reduce"):
            turns = part.body
            if isinstance(turns, For) and turns.name == self.turn:
                return turns
        return None

    def _merged(self, parts: tuple[Stmt, ...]) -> Stmt | None:
        top, between, sums = parts[0], parts[1:-1], parts[-1]
        assert isinstance(top, For) and isinstance(sums, For)
        highs, totals = self._turns(top), self._turns(sums)
        peak = folded_peak(top)
        if highs is None or totals is None or peak is None or highs.extent != totals.extent:
            return None
        if not all(isinstance(p, Store) and p.buffer != peak and not _loads(p) for p in between):
            return None
        try:
            relative = relative_sums(totals, peak)
        except ScheduleError:
            return None
        lane = Var.make(self.thread)
        lost = {b: replace(b, name=f"{b.name}_lost") for b in relative}
        own = {b: _each(b, top.extent) for b in (peak, *relative, *lost.values())}
        mine = {b: Load.make(w, (lane,)) for b, w in own.items()}
        old = Buffer(f"{peak.name}_old", (), peak.dtype, "reg")
        shrink = [correction(p, s, old, peak) for b, s in relative.items() for p in (b, lost[b])]
        body = sequence(Store(old, (), mine[peak]), highs.body, *shrink, _turn(totals.body, lost))
        for buffer, wide in own.items():
            body = widened(body, buffer, wide, lane)
        zeros = [Store(own[b], (lane,), ir.const(0, b.dtype)) for b in own if b != peak]
        start = sequence(Store(own[peak], (lane,), ir.const(-math.inf, peak.dtype)), *zeros)
        turns = For(self.turn, highs.extent, Alloc(old, body), "carried")
        sweep = replace(top, axis="spatial", body=sequence(start, turns))
        agree = replace(top, body=Reduce((peak,), (), "max", (mine[peak],)))
        joins: list[Stmt] = []
        for b, s in relative.items():
            total = compensated_total(mine[b], mine[lost[b]])
            value = _rebased(total, s.shift, Load.make(peak, ()), mine[peak])
            joins.append(replace(top, body=Reduce((b,), (), "sum", (value,))))
        result = sequence(*between, sweep, agree, *joins)
        for wide in own.values():
            result = Alloc(wide, result)
        return result


def _each(buffer: Buffer, threads: Expr) -> Buffer:
    return replace(buffer, name=f"{buffer.name}_each", shape=(threads,))


def _turn(sums: Stmt, lost: dict[Buffer, Buffer]) -> Stmt:
    """The sums of one turn, each added to the sum so far with its rounding error."""
    blocks = {b: replace(b, name=f"{b.name}_block") for b in lost}
    starts = [Store(block, (), ir.const(0, block.dtype)) for block in blocks.values()]
    joins = [
        Reduce((b, lost[b]), (), "compensated", (Load.make(block, ()), ir.const(-0.0, b.dtype)))
        for b, block in blocks.items()
    ]
    within = map_buffers(sums, lambda buffer: blocks.get(buffer, buffer))
    made: Stmt = sequence(*starts, within, *joins)
    for block in blocks.values():
        made = Alloc(block, made)
    return made


def _loads(statement: Store) -> bool:
    return any(isinstance(e, Load) for e in ir.subexpressions(*ir.expressions(statement)))


def _rebased(total: Expr, shift: Expr, common: Load, own: Load) -> Expr:
    """A thread's sum relative to the common maximum; zero if it met only -inf."""
    lowest = ir.const(-math.inf, common.dtype)
    scaled = total * op("exp", substitute(shift, {common: own}) - shift)
    nothing = own.eq(lowest) & op("ne", common, lowest)
    return select(nothing, ir.const(0, total.dtype), scaled)
