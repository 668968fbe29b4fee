"""ComputeAt: fill scratch inside the loop that reads it, each time only what it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import (
    affine,
    bounds,
    map_children,
    map_expressions,
    sequence,
    simplify,
    substitute,
    substitution,
)
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Kernel, Load, Stmt, Store, Var
from ridgeline.loops.steps.inline import producer, scratch
from ridgeline.loops.steps.regions import Ranges, loop_ranges, reads, without
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops


@dataclass(frozen=True, slots=True)
class ComputeAt(Step):
    """Move the loops that fill a scratch buffer into the axis that reads it.

    Every iteration of the axis then computes the region that it reads: a window of each axis of
    the scratch, which shrinks to that window.
    """

    buffer: str
    axis: str
    name: ClassVar[str] = "compute_at"

    def apply(self, kernel: Kernel) -> Kernel:
        """Move every statement that fills the buffer."""
        scratch(kernel, self.buffer)
        ranges = loop_ranges(kernel.body)
        return replace(kernel, body=self._visit(kernel.body, ranges))

    def _visit(self, statement: Stmt, ranges: Ranges) -> Stmt:
        if not (isinstance(statement, Alloc) and statement.buffer.name == self.buffer):
            return map_children(statement, lambda child: self._visit(child, ranges))
        buffer = statement.buffer
        store = producer(buffer, statement.body)
        rest = without(statement.body, store)
        elsewhere = at_loops(rest, self.axis, lambda loop: ir.Seq(()))
        if any(r.load.buffer == buffer for r in reads(elsewhere)):
            raise ScheduleError(f"{self.buffer!r} is also read outside {self.axis!r}")
        return at_loops(rest, self.axis, lambda loop: self._filled(loop, buffer, store, ranges))

    def _filled(self, loop: For, buffer: Buffer, store: Store, ranges: Ranges) -> Stmt:
        found = {r.load for r in reads(loop.body) if r.load.buffer == buffer}
        if not found:
            return loop
        inside = {s.name for s in ir.statements(loop.body) if isinstance(s, For)}
        windows = [
            _window(self.buffer, {load.index[axis] for load in found}, inside, ranges)
            for axis in range(len(buffer.shape))
        ]
        small = replace(buffer, shape=tuple(ir.index(width) for _, width in windows))
        names = [_fresh(i, loop, self.buffer) for i in store.index]
        spots = tuple(Var.make(n) for n in names)
        here: dict[Expr, Expr] = {
            old: start + spot if width > 1 else start
            for old, (start, width), spot in zip(store.index, windows, spots)
        }
        index = tuple(
            spot if width > 1 else ir.index(0) for spot, (_, width) in zip(spots, windows)
        )
        fill: Stmt = Store(small, index, substitute(store.value, here))
        for old, size in zip(store.index, buffer.shape):
            fill = _within(here[old], size, fill, {**ranges, **_spans(names, windows)})
        for name, (_, width) in reversed(list(zip(names, windows))):
            if width > 1:
                fill = For(name, ir.index(width), fill)
        moved: dict[Expr, Expr] = {
            load: Load.make(
                small,
                tuple(simplify(i - start, ranges) for i, (start, _) in zip(load.index, windows)),
            )
            for load in found
        }
        body = map_expressions(loop.body, substitution(moved))
        return replace(loop, body=Alloc(small, sequence(fill, body)))


def _window(name: str, indices: set[Expr], inside: set[str], ranges: Ranges) -> tuple[Expr, int]:
    """Where the reads of one axis begin in terms of outer loops, and how long they are."""
    starts: set[Expr] = set()
    spans: list[tuple[int, int]] = []
    for index in indices:
        form = affine(index)
        if form is None or any(c < 0 or n not in ranges for n, c in form.terms if n in inside):
            raise ScheduleError(f"{name!r} is not read at sums of loop variables")
        start: Expr = ir.index(0)
        reach = 0
        for variable, coefficient in sorted(form.terms):
            if variable in inside:
                reach += coefficient * ranges[variable][1]
            else:
                start = start + Var.make(variable) * ir.index(coefficient)
        starts.add(start)
        spans.append((form.offset, form.offset + reach))
    if len(starts) > 1:
        raise ScheduleError(f"the reads of {name!r} move apart from one another")
    first, last = min(low for low, _ in spans), max(high for _, high in spans)
    return starts.pop() + ir.index(first), last - first + 1


def _fresh(variable: Expr, loop: For, suffix: str) -> str:
    assert isinstance(variable, Var)
    taken = {s.name for s in ir.statements(loop) if isinstance(s, For)}
    return f"{variable.name}_{suffix}" if variable.name in taken else variable.name


def _spans(names: list[str], windows: list[tuple[Expr, int]]) -> dict[str, tuple[int, int]]:
    return {name: (0, width - 1) for name, (_, width) in zip(names, windows)}


def _within(position: Expr, size: Expr, fill: Stmt, ranges: Ranges) -> Stmt:
    """The last window may extend past the end, where nothing is computed."""
    if bounds(position, ranges)[1] < bounds(size, ranges)[0]:
        return fill
    return If(position < size, fill)
