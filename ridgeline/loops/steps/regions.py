"""Region analysis for the steps that move data: what a piece of a kernel reads and writes.

This is the second tier of legality. The first is construction (the kinds of loops); here intervals
of affine indices prove that a copy stays inside its buffer and that memory does not change between
two places. What cannot be proved is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import conjuncts, loads, sites
from ridgeline.loops.build import affine, bounds, free_vars, map_children, substitute
from ridgeline.loops.steps.step import ScheduleError

Ranges = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class GuardedLoad:
    """A load inside a statement, and whether all its occurrences there are conditional."""

    load: ir.Load
    guarded: bool


def memory(buffer: ir.Buffer) -> Hashable:
    """The memory of a buffer: views of one slot share it."""
    return buffer.slot if buffer.slot >= 0 else buffer


def reads(statement: ir.Stmt) -> list[GuardedLoad]:
    """Every distinct load that a statement makes."""
    found: dict[ir.Load, bool] = {}
    for site in sites(ir.Kernel("", (), (), statement)):
        for load, domain in loads(ir.expressions(site.statement), site.domain):
            narrowed = any(_narrows(guard, load) for guard in domain.guards)
            found[load] = found.get(load, True) and narrowed
    return [GuardedLoad(load, guarded) for load, guarded in found.items()]


def _narrows(guard: ir.Expr, load: ir.Load) -> bool:
    """False for a condition that holds in some iteration and on which no address depends."""
    used = {n for i in load.index for n in free_vars(i)}
    first = substitute(guard, {ir.Var.make(n): ir.index(0) for n in free_vars(guard)})
    holds = isinstance(first, ir.Const) and bool(first.value)
    return not holds or bool(used & free_vars(guard))


def writes(statement: ir.Stmt) -> Iterator[tuple[ir.Store | ir.Reduce, bool]]:
    """Every store and reduction, and whether it is conditional."""
    for site in sites(ir.Kernel("", (), (), statement)):
        if isinstance(site.statement, (ir.Store, ir.Reduce)):
            yield site.statement, bool(site.domain.guards)


def targets(statement: ir.Store | ir.Reduce) -> tuple[ir.Buffer, ...]:
    """The buffers that one statement writes."""
    return (statement.buffer,) if isinstance(statement, ir.Store) else statement.buffers


def written_memory(statement: ir.Stmt) -> set[Hashable]:
    """All memory that a statement writes."""
    return {memory(b) for store, _ in writes(statement) for b in targets(store)}


def read_memory(*roots: ir.Expr) -> set[Hashable]:
    """All memory that some expressions read."""
    return {memory(e.buffer) for e in ir.subexpressions(*roots) if isinstance(e, ir.Load)}


def loop_ranges(root: ir.Stmt) -> dict[str, tuple[int, int]]:
    """The values that each loop variable can take, over all loops of its name."""
    found: dict[str, tuple[int, int]] = {}
    unknown: set[str] = set()
    for statement in ir.statements(root):
        if isinstance(statement, ir.For):
            if isinstance(statement.extent, ir.Const):
                last = max(int(statement.extent.value) - 1, 0)
                found[statement.name] = (0, max(last, found.get(statement.name, (0, 0))[1]))
            else:
                unknown.add(statement.name)
    return {name: span for name, span in found.items() if name not in unknown}


def at_loops_in_range(
    statement: ir.Stmt,
    name: str,
    change: Callable[[ir.For, Ranges], ir.Stmt],
    ranges: Ranges | None = None,
) -> ir.Stmt:
    """`at_loops`, with the ranges of variables there, narrowed by conditions around."""
    around: Ranges = ranges or {}
    if isinstance(statement, ir.For):
        if statement.name == name:
            return change(statement, {**around, **loop_ranges(statement)})
        inner = {n: span for n, span in around.items() if n != statement.name}
        if isinstance(statement.extent, ir.Const):
            inner[statement.name] = (0, max(int(statement.extent.value) - 1, 0))
        around = inner
    elif isinstance(statement, ir.If):
        around = _narrowed(around, statement.guard)
    return map_children(statement, lambda child: at_loops_in_range(child, name, change, around))


def _narrowed(ranges: Ranges, guard: ir.Expr) -> Ranges:
    """Ranges narrowed by conditions on single variables."""
    found = dict(ranges)
    for part in conjuncts([guard]):
        if not (isinstance(part, ir.OpExpr) and part.name in ("lt", "le")):
            continue
        left, right = part.args
        gap = part.name == "lt"
        if isinstance(left, ir.Var) and isinstance(right, ir.Const) and left.name in found:
            low, high = found[left.name]
            found[left.name] = (low, min(high, int(right.value) - gap))
        elif isinstance(right, ir.Var) and isinstance(left, ir.Const) and right.name in found:
            low, high = found[right.name]
            found[right.name] = (max(low, int(left.value) + gap), high)
    return found


def extents_inside(loop: ir.Stmt, names: Iterable[str], what: str) -> dict[str, ir.Expr]:
    """The trip counts of the named loops inside a statement; each must be unique."""
    found: dict[str, ir.Expr] = {}
    wanted = set(names)
    named = [s for s in ir.statements(loop) if isinstance(s, ir.For) and s.name in wanted]
    for statement in named:
        if found.setdefault(statement.name, statement.extent) != statement.extent:
            raise ScheduleError(
                f"loops {statement.name!r} have several lengths where {what}",
                help="choose a place inside the branches of the split",
            )
        if not isinstance(statement.extent, ir.Const):
            raise ScheduleError(f"the length of loop {statement.name!r} is not known where {what}")
    return found


def in_range(index: Sequence[ir.Expr], buffer: ir.Buffer, ranges: Ranges) -> bool:
    """True if intervals prove that an index stays inside a buffer."""
    for coordinate, size in zip(index, buffer.shape):
        low, high = bounds(coordinate, ranges)
        if low < 0 or high >= bounds(size, ranges)[0]:
            return False
    return True


def injective(index: Sequence[ir.Expr], axes: Mapping[str, ir.Expr]) -> bool:
    """True if distinct values of the axes give distinct indices."""
    free = set(axes)
    extents = {n: int(e.value) if isinstance(e, ir.Const) else inf for n, e in axes.items()}
    for coordinate in index:
        form = affine(coordinate)
        if form is None:
            continue
        if form.tells_apart(extents):
            free -= form.strides.keys()
    return not free


def without(statement: ir.Stmt, dropped: ir.Stmt) -> ir.Stmt:
    """A statement without one of its parts, and without what becomes empty."""
    if statement is dropped:
        return ir.Seq(())
    inner = map_children(statement, lambda child: without(child, dropped))
    empty = isinstance(inner, (ir.For, ir.If, ir.Alloc)) and inner.body == ir.Seq(())
    return ir.Seq(()) if empty else inner
