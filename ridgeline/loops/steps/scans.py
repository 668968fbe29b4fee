"""What steps that cut a scan know of it: the monoid, its running value, what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Kernel, Load, Reduce, Seq, Stmt, Store
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.rewrite import sequence
from ridgeline.loops.steps.step import ScheduleError, known_extent, loops_named

Buffers = tuple[Buffer, ...]
Exprs = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """A kernel that only scans: its rows, the running value, and what an element does."""

    rows: tuple[For, ...]
    length: int
    join: Reduce
    stores: tuple[Store, ...]  # none for a fold
    inside: bool  # the loop stands in pieces already

    @property
    def totals(self) -> Buffers:
        """The running value."""
        return self.join.buffers

    @property
    def neutral(self) -> Exprs:
        """The value with which it begins."""
        return MONOIDS[self.join.monoid].init(tuple(b.dtype for b in self.totals))

    @property
    def folds(self) -> ir.AxisKind:
        """The kind of a loop that only joins."""
        return "reduce" if MONOIDS[self.join.monoid].commutative else "carried"

    def joined(self, buffers: Buffers, values: Sequence[Expr]) -> Reduce:
        """Values joined into accumulators."""
        return replace(self.join, buffers=buffers, values=tuple(values))

    def wrapped(self, body: Stmt) -> Stmt:
        """Statements that use the running value, in the loops over rows."""
        for total in reversed(self.totals):
            body = Alloc(total, body)
        for row in reversed(self.rows):
            body = replace(row, body=body)
        return body


def scan_of(kernel: Kernel, axis: str) -> Scan:
    """The scan along an axis, where joining elements in another grouping is all that it needs."""
    (loop,) = loops_named(kernel, axis)
    rows: list[For] = []
    body = kernel.body
    inside = isinstance(body, Alloc) and body.buffer.scope == "global"
    while isinstance(body, For):
        rows.append(body)
        body = body.body
    parts = loop.body
    while isinstance(parts, If):
        parts = parts.body
    join, *rest = parts.body if isinstance(parts, Seq) else (parts,)
    kept = tuple(s for s in rest if isinstance(s, Store))
    if (
        loop.axis == "spatial" or not isinstance(join, Reduce) or join.index
        or len(kept) < len(rest) or any(s.buffer in join.buffers for s in kept)
        or _reads(join.values, join.buffers)
    ):  # fmt: skip
        raise ScheduleError(f"loop {axis!r} is not a scan by a running value")
    return Scan(tuple(rows), known_extent(loop), join, kept, inside)


def _reads(values: Exprs, buffers: Buffers) -> bool:
    return any(isinstance(e, Load) and e.buffer in buffers for e in ir.subexpressions(*values))


def fields(like: Buffers, name: str, shape: Exprs, scope: ir.Scope) -> Buffers:
    """Memory for running values: a buffer for each field."""
    return tuple(Buffer(f"{name}{n}", shape, b.dtype, scope) for n, b in enumerate(like))


def loads(buffers: Buffers, index: Exprs = ()) -> Exprs:
    """One element of each buffer."""
    return tuple(Load.make(buffer, index) for buffer in buffers)


def stores(buffers: Buffers, index: Exprs, values: Sequence[Expr]) -> Stmt:
    """Values into one element of each buffer."""
    return sequence(*(Store(b, index, v) for b, v in zip(buffers, values)))
