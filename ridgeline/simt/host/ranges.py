"""Between which numbers an index lies, as far as that is known when code is made.

An index that cannot leave its array needs no check. What is asked is cheap and knows little:
coordinates of threads, literals, loops with literal bounds, and sums and products of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from ridgeline.simt import ir

Range = tuple[float, float]
ANY: Range = (-inf, inf)


def range_of(
    expr: ir.ThreadExpr,
    block: tuple[int, int, int],
    loops: Mapping[str, Range],
    definition: Callable[[ir.Variable], ir.ThreadExpr | None],
) -> Range:
    """The least and the largest value; infinite where nothing is known."""

    def go(e: ir.ThreadExpr) -> Range:
        match e:
            case ir.Number():
                return (float(e.value), float(e.value))
            case ir.Builtin():
                return _builtin(e, block)
            case ir.Variable():
                if e.name in loops:
                    return loops[e.name]
                known = definition(e)
                return ANY if known is None else go(known)
            case ir.Extent():
                return (0, 2**31 - 1)
            case ir.Convert() if e.value.dtype.kind in ("int", "uint"):
                low, high = go(e.value)
                fits = low >= -(2**31) and high < 2**31 and e.dtype.bits >= 32
                return (low, high) if fits and (low >= 0 or e.dtype.kind == "int") else ANY
            case ir.Compute():
                return _checked(_computed(e.name, [go(operand) for operand in e.operands]))
            case ir.Choose():
                (a, b), (c, d) = go(e.then), go(e.otherwise)
                return (min(a, c), max(b, d))
        return ANY

    return go(expr)


def _checked(found: Range) -> Range:
    """What might have wrapped around is anything."""
    return found if found[0] >= -(2**31) and found[1] < 2**31 else ANY


def _builtin(e: ir.Builtin, block: tuple[int, int, int]) -> Range:
    if e.name == "threadIdx":
        return (0, block[e.axis] - 1)
    if e.name == "blockDim":
        return (block[e.axis], block[e.axis])
    return {"laneid": (0, 31), "warpid": (0, 31), "warp_start": (0, 1023)}.get(
        e.name, (0, 2**31 - 1)
    )


def _computed(name: str, operands: list[Range]) -> Range:
    if name in ("add", "sub", "mul"):
        (a, b), (c, d) = operands
        if ANY in operands:
            return ANY
        if name == "add":
            return (a + c, b + d)
        if name == "sub":
            return (a - d, b - c)
        corners = [x * y for x in (a, b) for y in (c, d)]
        return (min(corners), max(corners))
    if name in ("floordiv", "mod", "and", "shr", "shl", "min", "max") and len(operands) == 2:
        return _bounded(name, *operands)
    return ANY


def _bounded(name: str, a: Range, b: Range) -> Range:
    exact = int(b[0]) if b[0] == b[1] else None
    if name == "mod" and exact is not None and exact > 0:
        return (a[0], a[1]) if a[0] >= 0 and a[1] < exact else (0, exact - 1)
    if name == "floordiv" and exact is not None and exact > 0 and a != ANY:
        return (a[0] // exact, a[1] // exact)
    if name == "and" and min(a[0], b[0]) >= 0:
        return (0, min(a[1], b[1]))
    if name == "and" and exact is not None and exact >= 0:
        return (0, exact)
    if name == "shr" and exact is not None and a[0] >= 0 and exact >= 0:
        return (a[0] // 2**exact, a[1] // 2**exact)
    if name == "shl" and exact is not None and a[0] >= 0 and 0 <= exact < 31:
        return (a[0] * 2**exact, a[1] * 2**exact)
    if name == "min":
        return (min(a[0], b[0]), min(a[1], b[1]))
    if name == "max":
        return (max(a[0], b[0]), max(a[1], b[1]))
    return ANY
