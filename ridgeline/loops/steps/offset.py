"""Offset: packed signed bytes as unsigned ones, for instructions that take these.

(a + 128) · b is a · b + 128 · b, so the sums start at minus 128 times the totals of the other
operand's columns, which are summed once for all rows. In arithmetic modulo 2³² this is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.build import (
    cast,
    free_vars,
    map_buffers,
    map_children,
    op,
    sequence,
    substitute,
)
from ridgeline.loops.instructions import factors
from ridgeline.loops.steps.regions import extents_inside
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, free_name, loops_named

_SHIFT = 128


@dataclass(frozen=True, slots=True)
class Offset(Step):
    """Store a scratch buffer of signed bytes with 128 added, and correct the sums that read it.

    The column totals of the other factor, also scratch, are computed before the loop `before`.
    """

    buffer: str
    before: str
    name: ClassVar[str] = "offset"

    @property
    def totals(self) -> str:
        """The buffer with the column totals of the other factor."""
        return f"{self.buffer}_totals"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Rewrite the buffer, the sums and their initial values."""
        loops = loops_named(kernel, self.before)
        free_name(kernel, self.totals, f"{self.buffer!r} is offset")
        everything = list(ir.statements(kernel.body))
        held = [s.buffer for s in everything if isinstance(s, ir.Alloc)]
        if not any(b.name == self.buffer and b.dtype is dtypes.int8 for b in held):
            raise ScheduleError(f"there is no scratch {self.buffer!r} of signed bytes")
        readers = [s for s in everything if self._read_by(s)]
        if len(readers) > sum(len(self._sums(loop)) for loop in loops):
            raise ScheduleError(f"{self.buffer!r} is read outside sums inside {self.before!r}")
        if any(isinstance(s, ir.Reduce) and self.buffer in _names(s) for s in everything):
            raise ScheduleError(f"{self.buffer!r} is a sum itself")
        body = at_loops(kernel.body, self.before, self._corrected)
        return replace(kernel, body=self._unsigned(body))

    def _sums(self, loop: ir.For) -> list[ir.Reduce]:
        return [s for s in ir.statements(loop) if isinstance(s, ir.Reduce) and self._read_by(s)]

    def _corrected(self, loop: ir.For) -> ir.Stmt:
        sums = self._sums(loop)
        if not sums:
            return loop
        if len(sums) > 1 or sums[0].buffers[0].dtype is not dtypes.int32:
            raise ScheduleError(f"{self.buffer!r} enters other sums than one of int32")
        (found,) = sums
        read = factors(found)
        (other,) = [f for f in read or () if f.buffer.name != self.buffer] or (None,)
        if other is None or other.buffer.scope != "local":
            raise ScheduleError(f"{self.buffer!r} is not multiplied by a packed operand")
        return self._with_totals(loop, found, other)

    def _read_by(self, statement: ir.Stmt) -> bool:
        parts = ir.subexpressions(*ir.expressions(statement))
        return any(isinstance(e, ir.Load) and e.buffer.name == self.buffer for e in parts)

    def _with_totals(self, loop: ir.For, found: ir.Reduce, other: ir.Load) -> ir.Stmt:
        """Column totals of the other factor, and sums that start from them."""
        folds = {
            s.name for s in ir.statements(loop) if isinstance(s, ir.For) and s.axis == "reduce"
        }
        used = [v.name for v in other.index if isinstance(v, ir.Var)]
        columns = tuple(n for n in used if n not in folds)
        extents = extents_inside(loop, used, f"{self.buffer!r} is summed")
        if len(used) != len(other.index) or set(used) != set(extents):
            raise ScheduleError(f"{other.buffer.name!r} is not read whole inside {self.before!r}")
        index = tuple(ir.Var.make(n) for n in columns)
        shape = tuple(extents[n] for n in columns)
        totals = ir.Buffer(self.totals, shape, dtypes.int32, "local")
        kinds = {s.name: s.kind for s in ir.statements(loop) if isinstance(s, ir.For)}
        start = _around(ir.Store(totals, index, ir.const(0, dtypes.int32)), columns, extents, kinds)
        # loops of other names: later steps on the summed axis are not meant for the totals
        summed = {n: f"{n}.total" for n in used if n in folds}
        moved = substitute(other, {ir.Var.make(n): ir.Var.make(new) for n, new in summed.items()})
        term = cast(moved, dtypes.int32) * ir.const(_SHIFT, dtypes.int32)
        fold: ir.Stmt = ir.Reduce((totals,), index, "sum", (term,))
        fold = _around(fold, columns, extents, kinds)
        for name, new in reversed(summed.items()):
            fold = ir.For(new, extents[name], fold, "reduce")
        (acc,), negative = found.buffers, op("neg", ir.Load.make(totals, index))
        return ir.Alloc(totals, sequence(start, fold, _started(loop, acc, found.index, negative)))

    def _unsigned(self, statement: ir.Stmt) -> ir.Stmt:
        """The buffer as unsigned bytes: the sign bit of what is stored is flipped."""

        def changed(buffer: ir.Buffer) -> ir.Buffer:
            return replace(buffer, dtype=dtypes.uint8) if buffer.name == self.buffer else buffer

        def stored(current: ir.Stmt) -> ir.Stmt:
            inner = map_children(current, stored)
            if isinstance(inner, ir.Store) and inner.buffer.name == self.buffer:
                bits = cast(inner.value, dtypes.uint8)
                return replace(inner, value=op("xor", bits, ir.const(_SHIFT, dtypes.uint8)))
            return inner

        return map_buffers(stored(statement), changed)


def _names(statement: ir.Reduce) -> set[str]:
    return {buffer.name for buffer in statement.buffers}


def _around(
    body: ir.Stmt,
    names: tuple[str, ...],
    extents: dict[str, ir.Expr],
    kinds: dict[str, ir.LoopKind],
) -> ir.Stmt:
    for name in reversed(names):
        body = ir.For(name, extents[name], body, "spatial", kinds[name])
    return body


def _started(loop: ir.For, acc: ir.Buffer, index: tuple[ir.Expr, ...], start: ir.Expr) -> ir.Stmt:
    """The loop with sums that start from a given value instead of zero."""
    changed: list[ir.Store] = []

    def visit(current: ir.Stmt, bound: frozenset[str]) -> ir.Stmt:
        if isinstance(current, ir.For):
            bound |= {current.name}
        inner = map_children(current, lambda child: visit(child, bound))
        if not (isinstance(inner, ir.Store) and inner.buffer == acc):
            return inner
        zero = isinstance(inner.value, ir.Const) and not inner.value.value
        if inner.index != index or not zero or not free_vars(start) <= bound:
            raise ScheduleError(f"{acc.name!r} does not start at zero, column by column")
        changed.append(inner)
        return replace(inner, value=start)

    made = visit(loop, frozenset())
    if not changed:
        raise ScheduleError(f"{acc.name!r} does not start inside {loop.name!r}")
    return made
