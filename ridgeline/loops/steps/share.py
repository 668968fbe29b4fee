"""Share: the threads of a block load together, into shared memory, what they all read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import Domain, loads
from ridgeline.loops.build import free_vars, map_expressions, sequence, substitute, substitution
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Kernel, Load, Stmt, Store, Var
from ridgeline.loops.steps.pad import is_guarded_read
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named


@dataclass(frozen=True, slots=True)
class Share(Step):
    """Copy what a loop reads of a buffer into shared memory before the loop.

    The memory has a row for every iteration of the first loop of `axes`, `pad` elements longer than
    needed so that columns fall into different banks; the other loops of `axes` lie along a row.
    One loop, `buffer.s`, does the copying; it walks the loops of `walk` with the last one fastest.
    """

    buffer: str
    before: str
    axes: tuple[str, ...]
    walk: tuple[str, ...]
    pad: int = 0
    name: ClassVar[str] = "share"

    def apply(self, kernel: Kernel) -> Kernel:
        """Wrap every loop of that name."""
        loops = loops_named(kernel, self.before)
        if not any(self._meant(loop) for loop in loops):
            used = {
                name for loop in loops for read in self._reads(loop) for name in free_vars(read)
            }
            raise ScheduleError(f"{self.buffer!r} is read by the loops {', '.join(sorted(used))}")
        return replace(kernel, body=at_loops(kernel.body, self.before, self._shared))

    def _shared(self, loop: For) -> Stmt:
        found = self._meant(loop)
        if not found:
            return loop
        if len(found) > 1:
            raise ScheduleError(f"{self.buffer!r} is read in {len(found)} ways, not in one")
        (read,) = found
        self._check_everywhere(loop, read)
        lengths = _lengths(loop)
        along = [(a, lengths[a]) for a in self.axes[1:]]
        width = prod(size for _, size in along)
        shape = (ir.index(lengths[self.axes[0]]), ir.index(width + self.pad))
        shared = Buffer(f"{self.buffer}_shared", shape, read.dtype, "shared")
        rest: Expr = Var.make(f"{self.buffer}.s")
        index_of: dict[str, Expr] = {}
        for axis in reversed(self.walk[1:]):
            index_of[axis] = rest % ir.index(lengths[axis])
            rest = rest // ir.index(lengths[axis])
        index_of[self.walk[0]] = rest
        moved = substitute(read, {Var.make(a): index_of[a] for a in self.walk})
        copy = For(
            f"{self.buffer}.s",
            ir.index(prod(lengths[a] for a in self.walk)),
            Store(shared, (index_of[self.axes[0]], _along(along, index_of)), moved),
        )
        inside: dict[str, Expr] = {a: Var.make(a) for a in self.axes}
        index = (inside[self.axes[0]], _along(along, inside))
        known = {read: Load.make(shared, index)}
        return Alloc(shared, sequence(copy, map_expressions(loop, substitution(known))))

    def _meant(self, loop: For) -> set[Expr]:
        """The reads that depend on exactly these loops."""
        inside = set(_lengths(loop))
        return {r for r in self._reads(loop) if free_vars(r) & inside == set(self.axes)}

    def _check_everywhere(self, loop: For, read: Expr) -> None:
        """Refuse a read out of range where an outer condition does not hold."""
        own = 1 if is_guarded_read(read) else 0
        load = ir.children(read)[1] if own else read
        for statement in ir.statements(loop):
            for other, where in loads(ir.expressions(statement), Domain(())):
                around = where.guards[: len(where.guards) - own] if other == load else ()
                if any(free_vars(guard) & free_vars(load) for guard in around):
                    raise ScheduleError(f"{self.buffer!r} is read under a condition")

    def _reads(self, loop: For) -> set[Expr]:
        found: set[Expr] = set()
        for statement in ir.statements(loop):
            nodes = ir.subexpressions(*ir.expressions(statement))
            guarded = [n for n in nodes if is_guarded_read(n)]
            covered = {ir.children(n)[1] for n in guarded}
            for node in (*guarded, *(n for n in nodes if n not in covered)):
                load = ir.children(node)[1] if node in guarded else node
                if isinstance(load, Load) and load.buffer.name == self.buffer:
                    found.add(node)
        return found


def _lengths(loop: For) -> dict[str, int]:
    return {s.name: known_extent(s) for s in ir.statements(loop) if isinstance(s, For)}


def _along(axes: list[tuple[str, int]], index_of: dict[str, Expr]) -> Expr:
    total: Expr = ir.index(0)
    for axis, size in axes:
        total = total * ir.index(size) + index_of[axis]
    return total
