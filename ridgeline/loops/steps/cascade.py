"""Cascade: a long sum in blocks, whose sums are added up without loss.

An accumulator that takes a million additions loses a little in each, and more the larger it has
grown. Here a few additions make the sum of a block, and the total takes one addition a block and
keeps beside it what that loses (the monoid `compensated`). So the error is that of a block, however
long the loop is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import (
    add,
    floordiv,
    free_vars,
    map_children,
    map_expressions,
    minimum,
    mul,
    replace_variables,
    sequence,
    sub,
    substitution,
)
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Kernel,
    Load,
    Reduce,
    Stmt,
    Store,
    Var,
)
from ridgeline.loops.monoids import compensated_total
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, free_name, loops_named

Index = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Cascade(Step):
    """Sum floats along a reduce axis in blocks of so many iterations; `axis.b` counts the blocks.

    This changes the order of summation, which the monoid allows.
    """

    axis: str
    block: int
    name: ClassVar[str] = "cascade"

    def apply(self, kernel: Kernel) -> Kernel:
        """Cut every loop of the axis that sums floats, and compensate what it sums into."""
        if not isinstance(self.block, int) or self.block < 1:
            raise ScheduleError(f"cannot sum {self.axis!r} in blocks of {self.block!r}")
        summed = {b for loop in loops_named(kernel, self.axis) for b in sums_of(loop)}
        if not summed:
            raise ScheduleError(f"no sum of floats runs over {self.axis!r} alone")
        totals = _with_joined(kernel.body, summed)
        for buffer in totals:
            free_name(kernel, _lost(buffer).name, f"{buffer.name!r} is compensated")
            free_name(kernel, _block(buffer).name, f"{buffer.name!r} is summed in blocks")
        body = at_loops(kernel.body, self.axis, self._in_blocks)
        return replace(kernel, body=_compensated(body, totals))

    def _in_blocks(self, loop: For) -> Stmt:
        sums = sums_of(loop)
        if not sums:
            return replace(loop, body=at_loops(loop.body, self.axis, self._in_blocks))
        turn, block = Var.make(f"{self.axis}.b"), ir.index(self.block)
        start = mul(turn, block)
        count = floordiv(add(loop.extent, ir.index(self.block - 1)), block)
        left = sub(loop.extent, start)
        length = block if mul(count, block) == loop.extent else minimum(block, left)
        if count == ir.index(1):
            start, length = ir.index(0), loop.extent
        place = {self.axis: add(start, Var.make(self.axis))}
        body = replace_variables(_renamed(loop.body, sums), place)
        before = [_each(loop, Store(_block(b), i, ir.const(0, b.dtype))) for b, i in sums.items()]
        after = [_each(loop, _join(b, i)) for b, i in sums.items()]
        made: Stmt = sequence(*before, replace(loop, extent=length, body=body), *after)
        for buffer in sums:
            made = Alloc(_block(buffer), made)
        return made if count == ir.index(1) else For(turn.name, count, made, "reduce")


def sums_of(loop: For) -> dict[Buffer, Index]:
    """Accumulators of floats that a serial loop sums into and does not look at, and where."""
    if loop.axis != "reduce" or loop.kind != "serial":
        return {}
    found: dict[Buffer, Index] = {}
    refused: set[Buffer] = set()
    inside = {s.name for s in ir.statements(loop) if isinstance(s, For)}
    for statement in ir.statements(loop.body):
        read = {
            e.buffer for e in ir.subexpressions(*ir.expressions(statement)) if isinstance(e, Load)
        }
        refused |= read
        if isinstance(statement, (Store, Alloc)):
            refused.add(statement.buffer)
        if isinstance(statement, Reduce):
            buffer, index = statement.buffers[0], statement.index
            plain = all(isinstance(i, Var) or not free_vars(i) & inside for i in index)
            if found.setdefault(buffer, index) != index or not plain or not _is_sum(statement):
                refused.update(statement.buffers)
    return {b: i for b, i in found.items() if b not in refused and Var.make(loop.name) not in i}


def _is_sum(statement: Reduce) -> bool:
    buffer = statement.buffers[0]
    return statement.monoid == "sum" and buffer.scope == "reg" and buffer.dtype.kind == "float"


def _with_joined(body: Stmt, summed: Collection[Buffer]) -> set[Buffer]:
    """Accumulators, and those that lanes or parts of them are joined into."""
    joins = [
        (s.buffers[0], s.values[0].buffer) for s in ir.statements(body)
        if isinstance(s, Reduce) and _is_sum(s) and isinstance(s.values[0], Load)
    ]  # fmt: skip
    totals = set(summed)
    while fresh := {to for to, part in joins if part in totals} - totals:
        totals |= fresh
    return totals


def _lost(buffer: Buffer) -> Buffer:
    return replace(buffer, name=f"{buffer.name}_lost")


def _block(buffer: Buffer) -> Buffer:
    return replace(buffer, name=f"{buffer.name}_block")


def _renamed(statement: Stmt, sums: Collection[Buffer]) -> Stmt:
    """Sums into the accumulators of a block."""
    if isinstance(statement, Reduce) and statement.buffers[0] in sums:
        return replace(statement, buffers=(_block(statement.buffers[0]),))
    return map_children(statement, lambda child: _renamed(child, sums))


def _each(loop: For, statement: Store | Reduce) -> Stmt:
    """A statement at all elements of an accumulator, by loops like those inside `loop`."""
    inner = [s for s in ir.statements(loop.body) if isinstance(s, For)]
    buffer = statement.buffer if isinstance(statement, Store) else statement.buffers[0]
    made: Stmt = statement
    for variable, extent in reversed(list(zip(statement.index, buffer.shape))):
        like = next((s for s in inner if Var.make(s.name) == variable), None)
        if like is not None:
            made = For(like.name, extent, made, "spatial", like.kind)
    return made


def _join(buffer: Buffer, index: Index) -> Reduce:
    value = Load.make(_block(buffer), index)
    return Reduce((buffer, _lost(buffer)), index, "compensated", (value, _nothing(buffer)))


def _nothing(buffer: Buffer) -> Const:
    return ir.const(-0.0, buffer.dtype)  # leaves what it is added to as it is, -0.0 too


def _compensated(statement: Stmt, totals: Collection[Buffer]) -> Stmt:
    """All that is done with accumulators, with what their additions lose beside them."""
    inner = map_children(statement, lambda child: _compensated(child, totals))
    if isinstance(inner, Alloc) and inner.buffer in totals:
        return replace(inner, body=Alloc(_lost(inner.buffer), inner.body))
    if isinstance(inner, Store) and inner.buffer in totals:
        if inner.value != ir.const(0, inner.buffer.dtype):
            raise ScheduleError(f"{inner.buffer.name!r} is not only a sum")
        return sequence(inner, replace(inner, buffer=_lost(inner.buffer)))
    if isinstance(inner, Reduce) and inner.buffers[0] in totals and inner.monoid == "sum":
        (buffer,), (value,) = inner.buffers, inner.values
        lost: Expr = _nothing(buffer)
        if isinstance(value, Load) and value.buffer in totals:
            lost = Load.make(_lost(value.buffer), value.index)
        else:
            value = _with_lost(value, totals)
        return Reduce((buffer, _lost(buffer)), inner.index, "compensated", (value, lost))
    if isinstance(inner, Store):
        return map_expressions(inner, lambda expr: _with_lost(expr, totals))
    if isinstance(inner, Reduce) and inner.monoid != "compensated":
        return map_expressions(inner, lambda expr: _with_lost(expr, totals))
    return inner


def _with_lost(expr: Expr, totals: Collection[Buffer]) -> Expr:
    """An expression that reads totals, with what they lost."""
    found: dict[Expr, Expr] = {}
    for part in ir.subexpressions(expr):
        if isinstance(part, Load) and part.buffer in totals:
            lost = Load.make(_lost(part.buffer), part.index)
            found[part] = compensated_total(part, lost)
    return substitution(found)(expr) if found else expr
