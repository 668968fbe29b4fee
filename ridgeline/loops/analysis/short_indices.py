"""Quotients and remainders of loop variables, simplified by the known lengths of the loops.

Cutting a loop leaves `(r.0 * 32 + r.1) // 64` where `r.0 // 2` would do, and only the latter shows
a code generator that lanes lie next to each other.
"""

from __future__ import annotations

from ridgeline.loops import ir
from ridgeline.loops.analysis.index_bounds import Simplifier
from ridgeline.loops.ir import Const, Expr, For, Op, Stmt
from ridgeline.loops.rewrite import map_expressions


def with_short_indices(body: Stmt) -> Stmt:
    """The same statements with index arithmetic as short as the lengths of loops allow."""
    extents: dict[str, int] = {}
    unknown: set[str] = set()
    for loop in ir.statements(body):
        if isinstance(loop, For) and isinstance(loop.extent, Const):
            extents[loop.name] = max(extents.get(loop.name, 0), int(loop.extent.value))
        elif isinstance(loop, For):
            unknown.add(loop.name)
    # a loop that runs once keeps its variable, by which registers are found
    ranges = {n: (0, e - 1) for n, e in extents.items() if e > 1 and n not in unknown}
    simplifier = Simplifier(ranges)
    return map_expressions(body, lambda expr: simplifier.run(expr) if _divides(expr) else expr)


def _divides(expr: Expr) -> bool:
    return any(isinstance(e, Op) and e.name in ("floordiv", "mod") for e in ir.subexpressions(expr))
