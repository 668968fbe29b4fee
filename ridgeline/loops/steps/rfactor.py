"""Rfactor: reduce an inner axis into separate accumulators, combined afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, map_children, sequence
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.steps.step import (
    ScheduleError,
    Step,
    free_name,
    known_extent,
    loops_named,
    widened,
)


@dataclass(frozen=True, slots=True)
class Rfactor(Step):
    """Reduce an inner axis into one accumulator per iteration, and combine these afterwards.

    This changes the order of summation, which associative monoids allow.
    """

    axis: str
    name: ClassVar[str] = "rfactor"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Give every reduction over the axis its own row of accumulators."""
        for loop in loops_named(kernel, self.axis):
            known_extent(loop)
            for group in _folds_over(loop, self.axis):
                for buffer in group:
                    free_name(kernel, _lanes_name(buffer), f"{buffer.name!r} is folded in parts")
        return replace(kernel, body=self._visit(kernel.body))

    def _visit(self, statement: ir.Stmt) -> ir.Stmt:
        if not isinstance(statement, ir.Seq):
            return map_children(statement, self._visit)
        parts: list[ir.Stmt] = []
        position = 0
        while position < len(statement.body):
            part = statement.body[position]
            folds = _folds_over(part, self.axis)
            if not folds or _touched_outside(part, self.axis, folds):
                parts.append(self._visit(part))
                position += 1
                continue
            run = [part]
            position += 1
            while position < len(statement.body):
                if _folds_over(statement.body[position], self.axis) != folds:
                    break
                run.append(statement.body[position])
                position += 1
            parts.append(self._factored(sequence(*run), folds))
        return sequence(*parts)

    def _factored(self, nest: ir.Stmt, folds: frozenset[tuple[ir.Buffer, ...]]) -> ir.Stmt:
        lanes = max(
            known_extent(s)
            for s in ir.statements(nest)
            if isinstance(s, ir.For) and s.name == self.axis
        )
        variable = ir.Var.make(self.axis)
        reduces = [s for s in ir.statements(nest) if isinstance(s, ir.Reduce)]
        before: list[ir.Stmt] = []
        after: list[ir.Stmt] = []
        result = nest
        allocated: list[ir.Buffer] = []
        in_order = dict.fromkeys(r.buffers for r in reduces)  # a set would give any order
        for buffers in (b for b in in_order if b in folds):
            example = next(r for r in reduces if r.buffers == buffers)
            inner = {s.name for s in ir.statements(nest) if isinstance(s, ir.For)}
            if any(free_vars(i) & inner for i in example.index):
                raise ScheduleError(
                    f"{buffers[0].name!r} has several elements inside loop {self.axis!r}",
                    help="rfactor before reordering",
                )
            monoid = MONOIDS[example.monoid]
            wide = tuple(
                replace(b, name=_lanes_name(b), shape=(ir.index(lanes), *b.shape)) for b in buffers
            )
            inits = monoid.init(tuple(b.dtype for b in buffers))
            starts = [ir.Store(w, (variable, *example.index), i) for w, i in zip(wide, inits)]
            before.append(ir.For(self.axis, ir.index(lanes), sequence(*starts)))
            values = tuple(ir.Load.make(w, (variable, *example.index)) for w in wide)
            join = ir.Reduce(buffers, example.index, example.monoid, values)
            after.append(ir.For(self.axis, ir.index(lanes), join, "reduce"))
            for old, new in zip(buffers, wide):
                result = widened(result, old, new, variable)
            allocated += wide
        body = sequence(*before, result, *after)
        for buffer in allocated:
            body = ir.Alloc(buffer, body)
        return body


def _lanes_name(buffer: ir.Buffer) -> str:
    return f"{buffer.name}v"


def _touched_outside(
    statement: ir.Stmt, axis: str, folds: frozenset[tuple[ir.Buffer, ...]]
) -> bool:
    """True if an accumulator is used outside the loops that reduce into it.

    Such a statement sees intermediate values, so the reduction is factored further inside.
    """
    buffers = {b for group in folds for b in group}
    if isinstance(statement, ir.For) and statement.name == axis:
        return False
    if isinstance(statement, (ir.Store, ir.Reduce)):
        written = (statement.buffer,) if isinstance(statement, ir.Store) else statement.buffers
        if buffers & set(written):
            return True
    reads = ir.subexpressions(*ir.expressions(statement))
    if any(isinstance(e, ir.Load) and e.buffer in buffers for e in reads):
        return True
    if isinstance(statement, ir.Seq):
        return any(_touched_outside(part, axis, folds) for part in statement.body)
    if isinstance(statement, (ir.For, ir.If, ir.Alloc, ir.Mma, ir.Pipe)):
        return _touched_outside(statement.body, axis, folds)
    return False


def _folds_over(statement: ir.Stmt, axis: str) -> frozenset[tuple[ir.Buffer, ...]]:
    """Outer accumulators that `statement` reduces into under a reduce loop of an axis."""
    found: set[tuple[ir.Buffer, ...]] = set()
    own = {s.buffer for s in ir.statements(statement) if isinstance(s, ir.Alloc)}
    stack: list[tuple[ir.Stmt, bool]] = [(statement, False)]
    while stack:
        current, under = stack.pop()
        if isinstance(current, ir.Reduce) and under and current.buffers[0] not in own:
            if not any(axis in free_vars(i) for i in current.index):
                found.add(current.buffers)
        elif isinstance(current, ir.Seq):
            stack.extend((part, under) for part in current.body)
        elif isinstance(current, ir.For):
            stack.append(
                (current.body, under or (current.name == axis and current.axis == "reduce"))
            )
        elif isinstance(current, (ir.If, ir.Alloc, ir.Mma, ir.Pipe)):
            stack.append((current.body, under))
    return frozenset(found)
