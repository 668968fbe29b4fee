"""Passes over the loops of one kernel right before code generation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ridgeline.loops import ir
from ridgeline.loops.analysis.index_bounds import Simplifier
from ridgeline.loops.build import (
    map_children,
    map_expressions,
    minimum,
    replace_variables,
    sequence,
)
from ridgeline.loops.steps.step import widened


@dataclass(frozen=True, slots=True)
class LoopPass:
    """A named pass: loops in, loops of the same meaning out.

    `work` lists what it has work for, in the terms of `ingredients`.
    """

    name: str
    doc: str
    run: Callable[[ir.Stmt], ir.Stmt]
    work: Collection[object]


def legalized(body: ir.Stmt, passes: Sequence[LoopPass]) -> ir.Stmt:
    """The loops as a code generator takes them; passes without work for them are skipped."""
    found = ingredients(body)
    for each in passes:
        if not found.isdisjoint(each.work):
            body = each.run(body)
            found = ingredients(body)
    return body


def ingredients(body: ir.Stmt) -> set[object]:
    """What loops contain: classes of statements, names of ops, element types."""
    found: set[object] = set()
    for statement in ir.statements(body):
        found.add(type(statement))
        for expr in ir.subexpressions(*ir.expressions(statement)):
            found.add(expr.name if isinstance(expr, ir.OpExpr) else expr.dtype)
    return found


# ---- quotients and remainders of loop variables, simplified by the known lengths of the loops ----
# Cutting a loop leaves `(r.0 * 32 + r.1) // 64` where `r.0 // 2` would do, and only the latter
# shows a code generator that lanes lie next to each other.


_DIVISIONS = ("floordiv", "mod")


def with_short_indices(body: ir.Stmt) -> ir.Stmt:
    """The statements with index arithmetic simplified by the extents of loops."""
    extents: dict[str, int] = {}
    unknown: set[str] = set()
    for loop in ir.statements(body):
        if isinstance(loop, ir.For) and isinstance(loop.extent, ir.Const):
            extents[loop.name] = max(extents.get(loop.name, 0), int(loop.extent.value))
        elif isinstance(loop, ir.For):
            unknown.add(loop.name)
    # a loop that runs once keeps its variable, by which registers are found
    ranges = {n: (0, e - 1) for n, e in extents.items() if e > 1 and n not in unknown}
    simplifier = Simplifier(ranges)
    return map_expressions(body, lambda expr: simplifier.run(expr) if _divides(expr) else expr)


def _divides(expr: ir.Expr) -> bool:
    return any(isinstance(e, ir.OpExpr) and e.name in _DIVISIONS for e in ir.subexpressions(expr))


SHORTEN_INDICES = LoopPass(
    "shorten_indices", "simplify quotients and remainders of indices by the loop bounds",
    with_short_indices, _DIVISIONS,
)  # fmt: skip


# ---- pipelined loops: their two halves, and the same loop with several copies of its scratch -----
# `parts` takes the loop of a `Pipe` apart into what fills its scratch and what uses it. `unpiped`
# is how a target without asynchronous copies runs it: the scratch becomes a ring, the first fills
# come before the loop, and every iteration fills for a later one, so that the loads are under way
# while earlier data is used.


def parts(loop: ir.For) -> tuple[list[ir.Buffer], ir.Stmt | None, ir.Stmt | None]:
    """The scratch of a loop's body, the leading statements that fill it, and the others."""
    buffers: list[ir.Buffer] = []
    body = loop.body
    while isinstance(body, ir.Alloc):
        buffers.append(body.buffer)
        body = body.body
    statements = body.body if isinstance(body, ir.Seq) else (body,)
    first = 0
    while first < len(statements) and _only_fills(statements[first], buffers):
        first += 1
    fill, use = statements[:first], statements[first:]
    return buffers, sequence(*fill) if fill else None, sequence(*use) if use else None


def _only_fills(statement: ir.Stmt, buffers: list[ir.Buffer]) -> bool:
    stores = [s for s in ir.statements(statement) if isinstance(s, (ir.Store, ir.Reduce))]
    return all(isinstance(s, ir.Store) and s.buffer in buffers for s in stores)


def unpiped(statement: ir.Stmt) -> ir.Stmt:
    """The statement with every pipe written as loops over a ring buffer."""
    inner = map_children(statement, unpiped)
    if not isinstance(inner, ir.Pipe):
        return inner
    loop = inner.body
    assert isinstance(loop, ir.For)
    buffers, fill, use = parts(loop)
    assert fill is not None and use is not None
    stages = ir.index(inner.stages)
    variable, ahead = ir.Var.make(loop.name), ir.index(inner.stages - 1)
    later = variable + ahead
    first = f"{loop.name}.first"

    def filling(iteration: ir.Expr) -> ir.Stmt:
        return _in_ring(replace_variables(fill, {loop.name: iteration}), buffers, stages, iteration)

    start = ir.For(first, minimum(ahead, loop.extent), filling(ir.Var.make(first)))
    body = sequence(
        ir.If(later < loop.extent, filling(later)), _in_ring(use, buffers, stages, variable)
    )
    result = sequence(start, replace(loop, body=body))
    for buffer in reversed(buffers):
        result = ir.Alloc(replace(buffer, shape=(stages, *buffer.shape)), result)
    return result


def _in_ring(
    statement: ir.Stmt, buffers: list[ir.Buffer], stages: ir.Expr, iteration: ir.Expr
) -> ir.Stmt:
    for buffer in buffers:
        ring = replace(buffer, shape=(stages, *buffer.shape))
        statement = widened(statement, buffer, ring, iteration % stages)
    return statement
