"""CacheInRegisters and Spread: keep data that a row needs repeatedly in registers.

`CacheInRegisters` reads a parameter once and keeps it for all later stages; `Spread` lays scratch
out by the loops that index it. Where one of these loops is bound to threads, every thread keeps its
own part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import Domain, loads
from ridgeline.loops.build import (
    affine,
    free_vars,
    guarded,
    map_children,
    map_expressions,
    sequence,
    substitution,
)
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named

Chain = tuple[ir.For | ir.If, ...]


@dataclass(frozen=True, slots=True)
class CacheInRegisters(Step):
    """Read a parameter once at the start of a loop's body, and keep what was read in registers."""

    buffer: str
    inside: str
    name: ClassVar[str] = "cache_in_registers"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Put the copy in front, and read from it."""
        loops_named(kernel, self.inside)
        return replace(kernel, body=at_loops(kernel.body, self.inside, self._held))

    def _held(self, loop: ir.For) -> ir.Stmt:
        found = [r for r in _reads(loop.body, self.buffer) if any(map(_is_loop, r.chain))]
        ways = {read.load for read in found}
        if len(ways) != 1:
            raise ScheduleError(f"{self.buffer!r} is read in {len(ways)} ways, not in one")
        if len({_outline(read.chain) for read in found}) != 1:
            raise ScheduleError(f"{self.buffer!r} is read in loops of different lengths")
        if len({read.guards for read in found}) != 1:
            raise ScheduleError(f"{self.buffer!r} is read under different conditions")
        load, chain, guards = found[0].load, found[0].chain, found[0].guards
        axes = [c for c in chain if isinstance(c, ir.For)]
        if {a.name for a in axes} - {n for i in load.index for n in free_vars(i)}:
            raise ScheduleError(f"{self.buffer!r} is read again and again in one stage")
        if _own(loop.body) & found[0].needed():
            raise ScheduleError(f"where {self.buffer!r} is read is not known in front of its row")
        index = tuple(ir.Var.make(a.name) for a in axes)
        shape = tuple(ir.index(known_extent(a)) for a in axes)
        held = ir.Buffer(f"{self.buffer}_held", shape, load.dtype, "reg")
        value: ir.Expr = load
        for guard in reversed(guards):  # elsewhere there is no such element
            value = guarded(guard, value, ir.const(0, load.dtype))
        copy: ir.Stmt = ir.Store(held, index, value)
        for part in reversed(chain):
            copy = (
                ir.If(part.guard, copy)
                if isinstance(part, ir.If)
                else replace(part, body=copy, axis="spatial")
            )
        known = {load: ir.Load.make(held, index)}
        body = map_expressions(loop.body, substitution(known))
        return replace(loop, body=ir.Alloc(held, sequence(copy, body)))


@dataclass(frozen=True, slots=True)
class _Read:
    """A read of a parameter: the loops and guards around it, and its guard in its statement."""

    load: ir.Load
    chain: Chain
    guards: tuple[ir.Expr, ...]

    def needed(self) -> set[ir.Buffer]:
        """What must be known to find the element, or whether there is one."""
        tests = [part.guard for part in self.chain if isinstance(part, ir.If)]
        parts = ir.subexpressions(*self.load.index, *self.guards, *tests)
        return {part.buffer for part in parts if isinstance(part, ir.Load)}


def _reads(body: ir.Stmt, name: str) -> list[_Read]:
    """Reads of a parameter."""
    found: list[_Read] = []

    def visit(statement: ir.Stmt, chain: Chain) -> None:
        for load, where in loads(ir.expressions(statement), Domain(())):
            if load.buffer.name == name:
                found.append(_Read(load, chain, where.guards))
        if isinstance(statement, ir.Seq):
            for part in statement.body:
                visit(part, chain)
        elif isinstance(statement, (ir.For, ir.If)):
            visit(statement.body, (*chain, statement))
        elif isinstance(statement, ir.Alloc):
            visit(statement.body, chain)

    visit(body, ())
    return found


def _own(body: ir.Stmt) -> set[ir.Buffer]:
    """The scratch buffers of a loop's body."""
    return {s.buffer for s in ir.statements(body) if isinstance(s, ir.Alloc)}


def _is_loop(part: ir.For | ir.If) -> bool:
    return isinstance(part, ir.For)


def _outline(chain: Chain) -> tuple[object, ...]:
    return tuple((c.name, c.extent) if isinstance(c, ir.For) else c.guard for c in chain)


@dataclass(frozen=True, slots=True)
class Spread(Step):
    """Lay scratch out by loops: one axis for each, so that an element belongs to an iteration."""

    buffer: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "spread"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Replace the scratch and every access to it."""
        extents = [ir.index(max(map(known_extent, loops_named(kernel, a)))) for a in self.axes]
        if not any(
            isinstance(s, ir.Alloc) and s.buffer.name == self.buffer
            for s in ir.statements(kernel.body)
        ):
            raise ScheduleError(f"there is no scratch {self.buffer!r}")

        def visit(statement: ir.Stmt) -> ir.Stmt:
            if isinstance(statement, ir.Alloc) and statement.buffer.name == self.buffer:
                return self._laid_out(statement, extents)
            return map_children(statement, visit)

        return replace(kernel, body=visit(kernel.body))

    def _laid_out(self, statement: ir.Alloc, extents: list[ir.Const]) -> ir.Stmt:
        old = statement.buffer
        new = replace(old, shape=tuple(extents), scope="reg")
        own_index = tuple(ir.Var.make(a) for a in self.axes)
        indices: set[tuple[ir.Expr, ...]] = set()
        for inner in ir.statements(statement.body):
            for expr in ir.subexpressions(*ir.expressions(inner)):
                if isinstance(expr, ir.Load) and expr.buffer == old:
                    indices.add(expr.index)
            if isinstance(inner, ir.Store) and inner.buffer == old:
                indices.add(inner.index)
            elif isinstance(inner, ir.Reduce) and old in inner.buffers:
                raise ScheduleError(f"{self.buffer!r} is folded into")
        if len(indices) != 1:
            raise ScheduleError(f"{self.buffer!r} is used in {len(indices)} ways, not in one")
        (index,) = indices
        if not _tells_apart(index, dict(zip(self.axes, (int(e.value) for e in extents)))):
            raise ScheduleError(f"{self.buffer!r} is not indexed by {', '.join(self.axes)} alone")
        known = {ir.Load.make(old, index): ir.Load.make(new, own_index)}
        body = map_expressions(statement.body, substitution(known))

        def visit(current: ir.Stmt) -> ir.Stmt:
            inner = map_children(current, visit)
            if isinstance(inner, ir.Store) and inner.buffer == old:
                return ir.Store(new, own_index, inner.value)
            return inner

        return ir.Alloc(new, visit(body))


def _tells_apart(index: tuple[ir.Expr, ...], extents: dict[str, int]) -> bool:
    """True if distinct values of exactly these loops give distinct indices."""
    form = affine(index[0]) if len(index) == 1 else None
    return form is not None and form.strides.keys() == extents.keys() and form.tells_apart(extents)
