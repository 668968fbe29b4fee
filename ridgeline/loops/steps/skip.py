"""Skip: leave out blocks of rows that a mask sets to minus infinity.

Where a causal mask hides a whole block of columns from a whole block of rows, its scores are minus
infinity, their exponentials zero, and nothing of it reaches a maximum or a sum. The step follows
the masked values through every stage and refuses if one of them is not left unchanged. What a
hidden column is multiplied with is taken to be finite. Loops that only write such values to memory
write the number that a hidden piece holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.analysis.index_bounds import bounds
from ridgeline.loops.build import affine, map_children, op, sequence, substitute
from ridgeline.loops.steps.regions import Ranges, loop_ranges
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, loops_named

_HIDDEN = -math.inf


@dataclass(frozen=True, slots=True)
class Skip(Step):
    """Run the named loops only over blocks that a mask does not hide entirely.

    The first axis runs over the blocks that are masked; the others over the same blocks of the
    scratch computed from them. Only loops around that scratch decide what is skipped.
    """

    axes: tuple[str, ...]
    name: ClassVar[str] = "skip"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Find the mask, follow what it hides, and guard every loop."""
        for axis in self.axes:
            loops_named(kernel, axis)
        return replace(kernel, body=self._by_case(kernel.body, frozenset()))

    def _by_case(self, statement: ir.Stmt, around: frozenset[str]) -> ir.Stmt:
        """Go through the loops outside all scratch; a last block of rows is a case of its own."""
        if isinstance(statement, ir.For) and statement.name not in self.axes:
            inner = self._by_case(statement.body, around | {statement.name})
            return replace(statement, body=inner)
        cases = statement.body if isinstance(statement, ir.Seq) else (statement,)
        if not all(isinstance(case, ir.If) for case in cases):
            return self._skipped(statement, around)
        return sequence(
            *(replace(c, body=self._by_case(c.body, around)) for c in cases if isinstance(c, ir.If))
        )

    def _skipped(self, body: ir.Stmt, around: frozenset[str]) -> ir.Stmt:
        masks = self._masks(body)
        hidden = _Hidden(self.axes, masks, loop_ranges(body))
        hidden.check(body)
        first = self.axes[0]
        seen = [_possible(body, mask, around | {first}) for mask in masks]
        guard = reduce(partial(op, "or"), dict.fromkeys(seen))
        for axis in self.axes:
            here = substitute(guard, {ir.Var.make(first): ir.Var.make(axis)})
            body = at_loops(body, axis, partial(_guarded, here, hidden))
        return body

    def _masks(self, body: ir.Stmt) -> list[ir.OpExpr]:
        """The conditions under which the first loop stores something that is not hidden."""
        loops = [s for s in ir.statements(body) if isinstance(s, ir.For) and s.name == self.axes[0]]
        found = dict.fromkeys(
            e.args[0]
            for loop in loops
            for s in ir.statements(loop)
            if isinstance(s, ir.Store)
            for e in ir.subexpressions(s.value)
            if isinstance(e, ir.OpExpr) and e.name == "select" and _number(e.args[2]) == _HIDDEN
        )
        if not found:
            raise ScheduleError(f"loop {self.axes[0]!r} stores no masked values")
        masks = [m for m in found if isinstance(m, ir.OpExpr) and m.name in ("le", "lt")]
        if len(masks) < len(found):
            raise ScheduleError("a mask that is not a comparison of places")
        return masks


def _guarded(guard: ir.Expr, hidden: _Hidden, loop: ir.For) -> ir.Stmt:
    seen = ir.If(guard, loop.body)
    if not any(isinstance(s, ir.Store) and s.buffer.scope == "global" for s in ir.statements(loop)):
        return replace(loop, body=seen)
    unseen = ir.If(op("not", guard), hidden.filled(loop.body))
    return replace(loop, body=sequence(seen, unseen))


def _possible(body: ir.Stmt, mask: ir.OpExpr, kept: frozenset[str]) -> ir.Expr:
    """A condition on the block and on loops around the scratch, necessary for the mask to hold."""
    for side, joined in zip(mask.args, ("or", "and")):
        if isinstance(side, ir.OpExpr) and side.name == "min":  # the last row of a block, repeated
            cases = [substitute(mask, {side: case}) for case in side.args]
            return op(
                joined, *(_possible(body, c, kept) for c in cases if isinstance(c, ir.OpExpr))
            )
    ranges = loop_ranges(body)
    left, right = (affine(side) for side in mask.args)
    if left is None or right is None:
        raise ScheduleError("a mask whose places are not sums of loop variables")
    low: ir.Expr = ir.index(left.offset - right.offset)
    for name in sorted({*left.strides, *right.strides}):
        factor = left.strides.get(name, 0) - right.strides.get(name, 0)
        if name in kept:
            low = low + ir.Var.make(name) * ir.index(factor)
        elif name in ranges:
            low = low + ir.index(min(factor * ranges[name][0], factor * ranges[name][1]))
        else:
            raise ScheduleError(f"a mask that depends on {name!r}, whose length is not known")
    return low <= ir.index(0) if mask.name == "le" else low < ir.index(0)


class _Hidden:
    """The contents of hidden blocks of scratch: minus infinity or zero, by buffer."""

    def __init__(self, axes: tuple[str, ...], masks: list[ir.OpExpr], ranges: Ranges) -> None:
        self.axes, self.masks, self.ranges = axes, masks, ranges
        self.held: dict[ir.Buffer, float] = {}
        self.written: dict[ir.Store, float] = {}  # to memory, when its turn came
        self.reach: dict[
            ir.Buffer, list[tuple[ir.Expr, ...]]
        ] = {}  # the places where pieces are stored

    def check(self, body: ir.Stmt) -> None:
        """Follow all statements in order; refuse if something hidden would matter."""
        for statement, inside in self._in_order(body, False):
            if inside:
                self._settle(statement)
            elif not all(self._is_beyond(load) for load in _loads(statement)):
                raise ScheduleError("a masked row is also read outside the loops to be guarded")

    def _is_beyond(self, load: ir.Load) -> bool:
        """True for what lies behind all blocks, such as the rest of a row."""
        if load.buffer not in self.held:
            return True
        pairs = zip(load.index, *self.reach[load.buffer])
        return any(self._comes_after(coordinate, stored) for coordinate, *stored in pairs)

    def _comes_after(self, coordinate: ir.Expr, stored: list[ir.Expr]) -> bool:
        low, _ = bounds(coordinate, self.ranges)
        return all(low > bounds(s, self.ranges)[1] for s in stored)

    def _in_order(self, statement: ir.Stmt, inside: bool) -> Iterator[tuple[ir.Stmt, bool]]:
        if isinstance(statement, ir.Store | ir.Reduce):
            yield statement, inside
            return
        inside = inside or (isinstance(statement, ir.For) and statement.name in self.axes)
        children: list[ir.Stmt] = []

        def note(child: ir.Stmt) -> ir.Stmt:
            children.append(child)
            return child

        map_children(statement, note)
        for child in children:
            yield from self._in_order(child, inside)

    def _settle(self, statement: ir.Stmt) -> None:
        if isinstance(statement, ir.Reduce):
            neutral = {"max": _HIDDEN, "sum": 0.0}.get(statement.monoid)
            values = [self._value(v) for v in statement.values]
            if statement.buffers[0].scope == "reg" and values != [neutral]:
                if not any(load.buffer in self.held for load in _loads(statement)):
                    return  # a sum of its own, for one element of the masked row
                raise ScheduleError(f"what is hidden changes the {statement.monoid} of a row")
            return
        assert isinstance(statement, ir.Store)
        if statement.buffer.scope == "reg":
            return
        value = self._value(statement.value)
        if value is None:
            if self._is_copy(statement):
                return
            raise ScheduleError(f"{statement.buffer.name!r} must be written where it is hidden")
        if statement.buffer.scope == "global":
            self.written[statement] = value
        if statement.buffer.scope == "local":
            self.held[statement.buffer] = value
            self.reach.setdefault(statement.buffer, []).append(statement.index)

    def filled(self, statement: ir.Stmt) -> ir.Stmt:
        """Loops that write to memory, writing the contents of a hidden block."""
        if isinstance(statement, ir.Store) and statement.buffer.scope == "global":
            value = ir.const(self.written[statement], statement.buffer.dtype)
            return replace(statement, value=value)
        if isinstance(statement, ir.For | ir.Seq):
            return map_children(statement, self.filled)
        raise ScheduleError("a loop that writes to memory where it is hidden does nothing else")

    def _is_copy(self, store: ir.Store) -> bool:
        """Scratch that holds an operand is not part of any row."""
        return store.buffer.scope == "local" and isinstance(store.value, ir.Load)

    def _value(self, expr: ir.Expr) -> float | None:
        """The value of an expression in a hidden block, if it is known."""
        if isinstance(expr, ir.Load):
            return self.held.get(expr.buffer)
        if isinstance(expr, ir.Const):
            return _number(expr)
        if not isinstance(expr, ir.OpExpr):
            return None
        if expr.name == "select" and expr.args[0] in self.masks:
            return self._value(expr.args[2])
        values = [self._value(a) for a in expr.args]
        if expr.name == "cast":
            return values[0]
        if expr.name == "exp" and values[0] == _HIDDEN:
            return 0.0
        if expr.name == "sub" and values[0] == _HIDDEN:
            return _HIDDEN
        if expr.name == "mul" and 0.0 in values:
            return 0.0
        if expr.name == "div" and values[0] == 0.0:
            return 0.0
        return None


def _number(expr: ir.Expr) -> float | None:
    if isinstance(expr, ir.OpExpr) and expr.name == "cast":
        return _number(expr.args[0])
    return float(expr.value) if isinstance(expr, ir.Const) else None


def _loads(statement: ir.Stmt) -> list[ir.Load]:
    return [e for e in ir.subexpressions(*ir.expressions(statement)) if isinstance(e, ir.Load)]
