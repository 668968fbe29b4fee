"""The base class of schedule steps, its error, and helpers that find loops by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from ridgeline.errors import RidgelineError
from ridgeline.loops import ir
from ridgeline.loops.build import map_children, map_expressions, sequence, substitution


class ScheduleError(RidgelineError, ValueError):
    """A schedule step that does not apply; the kernel is unchanged."""

    code = "RL0501"


class Step:
    """Base of the steps; `apply` gives the new kernel."""

    name: ClassVar[str]

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """The rewritten kernel."""
        raise NotImplementedError


def at_loops(statement: ir.Stmt, name: str, change: Callable[[ir.For], ir.Stmt]) -> ir.Stmt:
    """Apply `change` to the outermost loops of a name."""
    if isinstance(statement, ir.For) and statement.name == name:
        return change(statement)
    return map_children(statement, lambda child: at_loops(child, name, change))


def loops_named(kernel: ir.Kernel, name: str) -> list[ir.For]:
    """The loops of one axis; refuses a name that the kernel does not have."""
    everything = [s for s in ir.statements(kernel.body) if isinstance(s, ir.For)]
    found = [loop for loop in everything if loop.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(loop.name for loop in everything))
        raise ScheduleError(f"there is no loop {name!r}", help=f"the loops are {known}")
    return found


def free_name(kernel: ir.Kernel, name: str, what: str) -> None:
    """Refuse a scratch name that the kernel has already: the inner one would hide the outer."""
    taken = {s.buffer.name for s in ir.statements(kernel.body) if isinstance(s, ir.Alloc)}
    if name in taken or any(name == p.name for p in kernel.params):
        raise ScheduleError(f"{what} already, in {name!r}")


def known_extent(loop: ir.For) -> int:
    """The length of a loop that must be known before the kernel runs."""
    if not isinstance(loop.extent, ir.Const):
        raise ScheduleError(f"the length of loop {loop.name!r} is known only at run time")
    return int(loop.extent.value)


# ---- scratch that grows an axis when a loop moves inside the place where it is allocated ---------


def outside_scratch(loop: ir.For) -> ir.Stmt:
    """The loop moved inside the scratch of its body, if the body has no other loop."""
    inside = list(ir.statements(loop.body))
    if any(isinstance(s, ir.For) for s in inside) or not any(
        isinstance(s, ir.Alloc) for s in inside
    ):
        return loop
    return _sunk(loop, loop.body)


def _sunk(loop: ir.For, body: ir.Stmt) -> ir.Stmt:
    if isinstance(body, ir.Seq):
        return sequence(*(_sunk(loop, part) for part in body.body))
    if isinstance(body, ir.Alloc):
        old = body.buffer
        wide = replace(old, shape=(loop.extent, *old.shape))
        return ir.Alloc(wide, _sunk(loop, widened(body.body, old, wide, ir.Var.make(loop.name))))
    return replace(loop, body=body)


def widened(statement: ir.Stmt, old: ir.Buffer, wide: ir.Buffer, variable: ir.Expr) -> ir.Stmt:
    """Accesses of a scratch buffer that gained a leading axis indexed by `variable`."""
    loads = {
        e: ir.Load.make(wide, (variable, *e.index))
        for s in ir.statements(statement)
        for e in ir.subexpressions(*ir.expressions(s))
        if isinstance(e, ir.Load) and e.buffer == old
    }
    replaced = map_expressions(statement, substitution(loads)) if loads else statement

    def visit(current: ir.Stmt) -> ir.Stmt:
        inner = map_children(current, visit)
        if isinstance(inner, ir.Store) and inner.buffer == old:
            return ir.Store(wide, (variable, *inner.index), inner.value)
        if isinstance(inner, ir.Reduce) and old in inner.buffers:
            buffers = tuple(wide if b == old else b for b in inner.buffers)
            # accumulators that move together share one index, which grows with the first of them
            grown = len(inner.index) == len(wide.shape)
            index = inner.index if grown else (variable, *inner.index)
            return ir.Reduce(buffers, index, inner.monoid, inner.values)
        return inner

    return visit(replaced)
