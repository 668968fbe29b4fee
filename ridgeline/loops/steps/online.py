"""Online softmax: a maximum and sums relative to it, computed in one rescaling loop.

A maximum `m` over an axis, and then sums over the same axis of terms `w * exp(x - m)`: the terms
for a larger maximum are those for a smaller one times `exp(m - larger)`. So one loop over pieces of
the axis can keep the maximum so far and sums relative to it, and scale the sums whenever the
maximum grows. Rows are then read once instead of twice: logsumexp, cross-entropy, softmax and the
weighted sums of attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, map_children, op, select, sequence, substitute
from ridgeline.loops.steps.regions import (
    memory,
    read_memory,
    reads,
    targets,
    writes,
    written_memory,
)
from ridgeline.loops.steps.step import ScheduleError, Step, loops_named


@dataclass(frozen=True, slots=True)
class Online(Step):
    """Merge the maximum over an axis with the sums of exponentials relative to it."""

    axis: str
    name: ClassVar[str] = "online"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Merge every such pair of neighbouring loops."""
        loops_named(kernel, self.axis)
        body = self._visit(kernel.body)
        if body == kernel.body:
            raise ScheduleError(f"no maximum over {self.axis!r} is followed by sums relative to it")
        return replace(kernel, body=body)

    def _visit(self, statement: ir.Stmt) -> ir.Stmt:
        inner = map_children(statement, self._visit)
        if not isinstance(inner, ir.Seq):
            return inner
        folds = [i for i, part in enumerate(inner.body) if self._folds(part)]
        for first, second in pairwise(folds):
            merged = self._merged(inner.body[first : second + 1])
            if merged is not None:
                return sequence(*inner.body[:first], merged, *inner.body[second + 1 :])
        return inner

    def _folds(self, part: ir.Stmt) -> bool:
        plain = isinstance(part, ir.For) and part.axis == "reduce" and part.kind == "serial"
        return plain and isinstance(part, ir.For) and part.name == self.axis

    def _merged(self, parts: tuple[ir.Stmt, ...]) -> ir.Stmt | None:
        top, between, sums = parts[0], parts[1:-1], parts[-1]
        assert isinstance(top, ir.For) and isinstance(sums, ir.For)
        peak = folded_peak(top)
        if peak is None or top.extent != sums.extent:
            return None
        scaled = relative_sums(sums, peak)
        moved = set(map(memory, (peak, *scaled)))
        for part in between:
            if {memory(r.load.buffer) for r in reads(part)} & moved or memory(
                peak
            ) in written_memory(part):
                raise ScheduleError(f"what stands between the loops over {self.axis!r} needs them")
        old = ir.Buffer(f"{peak.name}_old", peak.shape, peak.dtype, "reg")
        before = ir.Store(old, (), ir.Load.make(peak, ()))
        corrections = [correction(b, sum_, old, peak) for b, sum_ in scaled.items()]
        body = sequence(before, top.body, *corrections, sums.body)
        return ir.Alloc(
            old, sequence(*between, ir.For(self.axis, top.extent, body, "carried", top.kind))
        )


def folded_peak(loop: ir.For) -> ir.Buffer | None:
    """The accumulator of a loop that only computes a maximum."""
    found = [w for w, _ in writes(loop)]
    own = {s.buffer for s in ir.statements(loop) if isinstance(s, ir.Alloc)}
    if own or not found or any(not isinstance(w, ir.Reduce) or w.monoid != "max" for w in found):
        return None
    buffers = {b for w in found for b in targets(w)}
    if len(buffers) != 1 or any(w.index for w in found):
        return None
    return buffers.pop() if next(iter(buffers)).dtype.kind == "float" else None


@dataclass(frozen=True, slots=True)
class RelativeSum:
    """A sum relative to the maximum: its accumulator, the loops around it, and its shift.

    `shift` is an expression of the maximum alone: the maximum itself, or what replaces it where it
    is infinite.
    """

    index: tuple[ir.Expr, ...]
    loops: tuple[ir.For, ...]
    shift: ir.Expr


def relative_sums(loop: ir.For, peak: ir.Buffer) -> dict[ir.Buffer, RelativeSum]:
    """The sums of a loop that does nothing else."""
    found: dict[ir.Buffer, RelativeSum] = {}
    stack: list[tuple[ir.Stmt, tuple[ir.For, ...]]] = [(loop.body, ())]
    while stack:
        statement, loops = stack.pop()
        if isinstance(statement, ir.Seq):
            stack.extend((part, loops) for part in statement.body)
        elif isinstance(statement, ir.For):
            stack.append((statement.body, (*loops, statement)))
        elif isinstance(statement, ir.If):
            stack.append((statement.body, loops))
        elif isinstance(statement, ir.Reduce) and statement.monoid == "sum":
            (buffer,), (value,) = statement.buffers, statement.values
            shift = _shift(value, peak)
            if shift is None:
                raise ScheduleError(f"a sum into {buffer.name!r} is not relative to {peak.name!r}")
            outer = tuple(f for f in loops if f.axis == "spatial")
            held = found.setdefault(buffer, RelativeSum(statement.index, outer, shift))
            if (held.index, held.shift) != (statement.index, shift):
                raise ScheduleError(f"{buffer.name!r} is summed in several ways")
        else:
            raise ScheduleError("the second loop does more than sum")
    return found


def _shift(value: ir.Expr, peak: ir.Buffer) -> ir.Expr | None:
    """s, if a value is `w * exp(x - s)` with s of the maximum alone and w and x without it."""
    own = memory(peak)
    if isinstance(value, ir.OpExpr) and value.name == "exp":
        inner = value.args[0]
        if not (isinstance(inner, ir.OpExpr) and inner.name == "sub"):
            return None
        term, shift = inner.args
        alone = read_memory(shift) == {own} and not free_vars(shift)
        return shift if alone and own not in read_memory(term) else None
    if isinstance(value, ir.OpExpr) and value.name in ("mul", "div"):
        left, right = value.args
        if own not in read_memory(right):
            return _shift(left, peak)
        if value.name == "mul" and own not in read_memory(left):
            return _shift(right, peak)
    return None


def correction(buffer: ir.Buffer, sum_: RelativeSum, old: ir.Buffer, peak: ir.Buffer) -> ir.Stmt:
    """The sum so far, rescaled to the new maximum."""
    before, now = ir.Load.make(old, ()), ir.Load.make(peak, ())
    total = ir.Load.make(buffer, sum_.index)
    held: dict[ir.Expr, ir.Expr] = {now: before}
    shrunk = total * op("exp", substitute(sum_.shift, held) - sum_.shift)
    # while every element was -inf the sum holds nothing that counts against a finite maximum
    lowest = before.eq(ir.const(-math.inf, old.dtype))
    fresh = select(lowest, ir.const(0, buffer.dtype), shrunk)
    statement: ir.Stmt = ir.Store(buffer, sum_.index, select(before.eq(now), total, fresh))
    for loop in reversed(sum_.loops):
        statement = replace(loop, body=statement)
    return statement
