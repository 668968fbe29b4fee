"""Cascade: sum in blocks, and add the sums of blocks in twice the precision.

An accumulator that takes a million additions loses a little in each, and more the larger it has
grown. Here a few additions make the sum of a block, and the total takes one addition a block in
twice the precision: float64 for float32, and for float64 what each addition loses is kept beside
the sum (the monoid `compensated`). So the error is that of a block, however long the loop is. A
block of one number has no sum of its own: the total takes all numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import mul
from typing import ClassVar

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.build import (
    free_vars,
    map_children,
    map_expressions,
    minimum,
    replace_variables,
    sequence,
    substitution,
)
from ridgeline.loops.monoids import compensated_total
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, free_name, loops_named
from ridgeline.loops.terms import cast

Index = tuple[ir.Expr, ...]


@dataclass(frozen=True, slots=True)
class Cascade(Step):
    """Sum floats along a reduce axis in blocks of so many iterations; `axis.b` counts the blocks.

    This changes the order of summation, which the monoid allows.
    """

    axis: str
    block: int
    name: ClassVar[str] = "cascade"

    @staticmethod
    def blocks(axis: str) -> str:
        """The name of the loop that counts the blocks of an axis."""
        return f"{axis}.b"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Cut every loop of the axis that sums floats, and widen its accumulators."""
        if not isinstance(self.block, int) or self.block < 1:
            raise ScheduleError(f"cannot sum {self.axis!r} in blocks of {self.block!r}")
        summed = {b for loop in loops_named(kernel, self.axis) for b in sums_of(loop)}
        if not summed:
            raise ScheduleError(f"no sum of floats runs over {self.axis!r} alone")
        names = {s.name for s in ir.statements(kernel.body) if isinstance(s, ir.For)}
        if self.blocks(self.axis) in names:
            raise ScheduleError(f"{self.axis!r} is cut into blocks already")
        totals = _with_joined(kernel.body, summed)
        for buffer in totals:
            free_name(kernel, _lost(buffer).name, f"{buffer.name!r} is compensated")
            free_name(kernel, _block_name(buffer), f"{buffer.name!r} is summed in blocks")
        body = kernel.body
        if self.block > 1:
            body = at_loops(body, self.axis, self._in_blocks)
        return replace(kernel, body=_held_precisely(body, totals))

    def _in_blocks(self, loop: ir.For) -> ir.Stmt:
        sums = sums_of(loop)
        if not sums:
            return replace(loop, body=at_loops(loop.body, self.axis, self._in_blocks))
        turn, block = ir.Var.make(self.blocks(self.axis)), ir.index(self.block)
        start = turn * block
        count = (loop.extent + ir.index(self.block - 1)) // block
        left = loop.extent - start
        length = block if (count * block) == loop.extent else minimum(block, left)
        if count == ir.index(1):
            start, length = ir.index(0), loop.extent
        moved = {self.axis: start + ir.Var.make(self.axis)}
        blocks = {b: _block_of(b, index, loop) for b, index in sums.items()}
        body = replace_variables(_renamed(loop.body, blocks), moved)
        begin = [
            _each(loop, b, ir.Store(*part, ir.const(0, b.dtype))) for b, part in blocks.items()
        ]
        end = [
            _each(loop, b, ir.Reduce((b,), index, "sum", (ir.Load.make(*blocks[b]),)))
            for b, index in sums.items()
        ]
        made: ir.Stmt = sequence(*begin, replace(loop, extent=length, body=body), *end)
        for buffer, _ in blocks.values():
            made = ir.Alloc(buffer, made)
        return made if count == ir.index(1) else ir.For(turn.name, count, made, "reduce")


def sums_of(loop: ir.For) -> dict[ir.Buffer, Index]:
    """Float accumulators that a loop only adds to, and at which index."""
    if loop.axis != "reduce" or loop.kind not in ("serial", "unroll"):
        return {}
    found: dict[ir.Buffer, Index] = {}
    refused: set[ir.Buffer] = set()
    inside = {s.name for s in ir.statements(loop) if isinstance(s, ir.For)}
    for statement in ir.statements(loop.body):
        read = {
            e.buffer
            for e in ir.subexpressions(*ir.expressions(statement))
            if isinstance(e, ir.Load)
        }
        refused |= read
        if isinstance(statement, (ir.Store, ir.Alloc)):
            refused.add(statement.buffer)
        if isinstance(statement, ir.Reduce):
            buffer, index = statement.buffers[0], statement.index
            plain = all(isinstance(i, ir.Var) or not free_vars(i) & inside for i in index)
            if found.setdefault(buffer, index) != index or not plain or not _is_sum(statement):
                refused.update(statement.buffers)
    return {b: i for b, i in found.items() if b not in refused and ir.Var.make(loop.name) not in i}


def _is_sum(statement: ir.Reduce) -> bool:
    buffer = statement.buffers[0]
    return statement.monoid == "sum" and buffer.scope == "reg" and buffer.dtype.kind == "float"


def _with_joined(body: ir.Stmt, summed: Collection[ir.Buffer]) -> set[ir.Buffer]:
    """Accumulators, and those that their lanes or parts are combined into."""
    joins = [
        (s.buffers[0], s.values[0].buffer) for s in ir.statements(body)
        if isinstance(s, ir.Reduce) and _is_sum(s) and isinstance(s.values[0], ir.Load)
    ]  # fmt: skip
    totals = set(summed)
    while fresh := {to for to, part in joins if part in totals} - totals:
        totals |= fresh
    return totals


# ---- the sums of blocks --------------------------------------------------------------------------


def _block_name(buffer: ir.Buffer) -> str:
    return f"{buffer.name}_block"


def _block_of(buffer: ir.Buffer, index: Index, loop: ir.For) -> tuple[ir.Buffer, Index]:
    """The accumulator of a block, and its index: as large as one run of `loop` needs."""
    inside = {ir.Var.make(s.name) for s in ir.statements(loop.body) if isinstance(s, ir.For)}
    varying = [dim for dim, variable in enumerate(index) if variable in inside]
    shape = tuple(buffer.shape[dim] for dim in varying)
    block = replace(buffer, name=_block_name(buffer), shape=shape)
    return block, tuple(index[dim] for dim in varying)


def _renamed(statement: ir.Stmt, blocks: Mapping[ir.Buffer, tuple[ir.Buffer, Index]]) -> ir.Stmt:
    """Sums redirected into the accumulators of a block."""
    if isinstance(statement, ir.Reduce) and statement.buffers[0] in blocks:
        block, index = blocks[statement.buffers[0]]
        return replace(statement, buffers=(block,), index=index)
    return map_children(statement, lambda child: _renamed(child, blocks))


def _each(loop: ir.For, summed: ir.Buffer, statement: ir.Store | ir.Reduce) -> ir.Stmt:
    """A statement at all elements that `loop` sums into, under similar loops and conditions."""
    inner = [s for s in ir.statements(loop.body) if isinstance(s, ir.For)]
    buffer = statement.buffer if isinstance(statement, ir.Store) else statement.buffers[0]
    around = [
        next((s for s in inner if ir.Var.make(s.name) == variable), None)
        for variable in statement.index
    ]
    left_out = {loop.name, *(s.name for s in inner if s not in around)}
    made: ir.Stmt = statement
    for condition in _conditions(loop.body, summed) or ():
        if not free_vars(condition) & left_out:
            made = ir.If(condition, made)
    for like, extent in reversed(list(zip(around, buffer.shape))):
        if like is not None:
            made = ir.For(like.name, extent, made, "spatial", like.kind)
    return made


def _conditions(statement: ir.Stmt, summed: ir.Buffer) -> list[ir.Expr] | None:
    """Conditions under which all sums into a buffer run; None if there is no such sum."""
    if isinstance(statement, ir.Reduce):
        return [] if statement.buffers[0] == summed else None
    if isinstance(statement, ir.Seq):
        found = [c for part in statement.body if (c := _conditions(part, summed)) is not None]
        return [c for c in found[0] if all(c in other for other in found)] if found else None
    if isinstance(statement, (ir.For, ir.If, ir.Alloc, ir.Mma, ir.Pipe)):
        inside = _conditions(statement.body, summed)
        if inside is not None and isinstance(statement, ir.If):
            return [statement.guard, *inside]
        return inside
    return None


# ---- totals in twice the precision ---------------------------------------------------------------


def _held_precisely(statement: ir.Stmt, totals: Collection[ir.Buffer]) -> ir.Stmt:
    """A statement with accumulators replaced by wider ones."""
    inner = map_children(statement, lambda child: _held_precisely(child, totals))
    if isinstance(inner, ir.Alloc) and inner.buffer in totals:
        body = inner.body
        for buffer in reversed(_holders(inner.buffer)):
            body = ir.Alloc(buffer, body)
        return body
    if isinstance(inner, ir.Store) and inner.buffer in totals:
        if inner.value != ir.const(0, inner.buffer.dtype):
            raise ScheduleError(f"{inner.buffer.name!r} is not only a sum")
        holders = _holders(inner.buffer)
        return sequence(*(ir.Store(b, inner.index, ir.const(0, b.dtype)) for b in holders))
    if isinstance(inner, ir.Reduce) and inner.buffers[0] in totals and inner.monoid == "sum":
        holders = _holders(inner.buffers[0])
        monoid = "compensated" if len(holders) > 1 else "wide_sum"
        return ir.Reduce(holders, inner.index, monoid, _added(inner.values[0], totals))
    if isinstance(inner, (ir.Store, ir.Reduce)):
        return map_expressions(inner, lambda expr: _with_rounded(expr, totals))
    return inner


def _holders(buffer: ir.Buffer) -> tuple[ir.Buffer, ...]:
    """The form of a total: one wider number, or the sum and its rounding errors."""
    if buffer.dtype is dtypes.float64:
        return buffer, _lost(buffer)
    return (replace(buffer, dtype=dtypes.float64),)


def _lost(buffer: ir.Buffer) -> ir.Buffer:
    return replace(buffer, name=f"{buffer.name}_lost")


def _added(value: ir.Expr, totals: Collection[ir.Buffer]) -> tuple[ir.Expr, ...]:
    """A number in the form of a total, to be added to it."""
    if isinstance(value, ir.Load) and value.buffer in totals:
        return tuple(ir.Load.make(b, value.index) for b in _holders(value.buffer))
    value = _with_rounded(value, totals)
    if value.dtype is dtypes.float64:
        return value, ir.const(-0.0, value.dtype)  # leaves what it is added to as it is, -0.0 too
    if (
        isinstance(value, ir.OpExpr) and value.name == "mul"
    ):  # not rounded, and added by one instruction
        return (mul(*(cast(factor, dtypes.float64) for factor in value.args)),)
    return (cast(value, dtypes.float64),)


def _with_rounded(expr: ir.Expr, totals: Collection[ir.Buffer]) -> ir.Expr:
    """An expression over totals, reading their rounded values."""
    found: dict[ir.Expr, ir.Expr] = {}
    for part in ir.subexpressions(expr):
        if isinstance(part, ir.Load) and part.buffer in totals:
            held = [ir.Load.make(b, part.index) for b in _holders(part.buffer)]
            found[part] = compensated_total(*held) if len(held) > 1 else cast(held[0], part.dtype)
    return substitution(found)(expr) if found else expr
