"""How an index moves over the lanes of a vector loop, where that is known beforehand.

`over_lanes` splits an index into a part that all lanes share and one known number per lane, also
through divisions and remainders whose other terms divide evenly: `(8*i + v) // 2` over eight
lanes is `4*i` plus 0 0 1 1 2 2 3 3.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import values_at
from ridgeline.loops.build import add, affine, free_vars, mul, sub
from ridgeline.loops.ir import Const, Expr, Op, Var

Offsets = tuple[int, ...]


@lru_cache(maxsize=512)
def steady(step: int, lanes: int) -> Offsets:
    """Offsets that grow by one step from lane to lane."""
    return tuple(step * lane for lane in range(lanes))


def over_lanes(expr: Expr, var: str, lanes: int) -> tuple[Expr, Offsets] | None:
    """The shared part and the offset of each lane; None if offsets depend on other loops."""
    if var not in free_vars(expr):
        return expr, steady(0, lanes)
    form = affine(expr)
    if form is not None:
        coefficients, constant = form
        step = coefficients.pop(var)
        shared = _sum(coefficients, constant)
        return shared, steady(step, lanes)
    if not isinstance(expr, Op):
        return None
    if expr.name in ("add", "sub"):
        return _of_sum(expr, var, lanes)
    if expr.name in ("floordiv", "mod") and isinstance(expr.args[1], Const):
        return _of_division(expr, var, lanes)
    if expr.name == "mul" and isinstance(expr.args[1], Const):
        inner = over_lanes(expr.args[0], var, lanes)
        factor = int(expr.args[1].value)
        return inner and (mul(inner[0], expr.args[1]), tuple(o * factor for o in inner[1]))
    return None


def _of_sum(expr: Op, var: str, lanes: int) -> tuple[Expr, Offsets] | None:
    left = over_lanes(expr.args[0], var, lanes)
    right = over_lanes(expr.args[1], var, lanes)
    if left is None or right is None:
        return None
    sign = 1 if expr.name == "add" else -1
    shared = (add if sign == 1 else sub)(left[0], right[0])
    return shared, tuple(a + sign * b for a, b in zip(left[1], right[1]))


def _of_division(expr: Op, var: str, lanes: int) -> tuple[Expr, Offsets] | None:
    divisor = int(expr.args[1].value)  # type: ignore[attr-defined]
    form = affine(expr.args[0])
    if form is None or divisor <= 0:
        return None
    coefficients, constant = form
    step = coefficients.pop(var)
    if any(c % divisor for c in coefficients.values()):
        return None
    places = [step * lane + constant for lane in range(lanes)]
    if expr.name == "mod":
        return ir.index(0), tuple(p % divisor for p in places)
    shared = _sum({name: c // divisor for name, c in coefficients.items()}, 0)
    return shared, tuple(p // divisor for p in places)


def _sum(coefficients: dict[str, int], constant: int) -> Expr:
    total: Expr = ir.index(constant)
    for name in sorted(coefficients):
        total = add(total, mul(Var.make(name), ir.index(coefficients[name])))
    return total


def holds_in_lanes(condition: Expr, var: str, lanes: int) -> tuple[bool, ...] | None:
    """In which lanes a condition on the lane number alone holds; None if it needs other loops."""
    if free_vars(condition) != {var}:
        return None
    found = values_at([condition], {"": np.zeros(lanes, np.int64), var: np.arange(lanes)})
    return None if found is None else tuple(found[0].tolist())
