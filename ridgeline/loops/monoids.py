"""Monoids: what a `Reduce` statement may combine with.

A monoid has a tuple of fields, their initial values and a `join` written as expressions, so that
every user (interpreter, schedule steps, code generators) takes its meaning from here. A reduction
lifts an element first: Welford takes (1, x, 0), online softmax (x, 1), argmax (x, position), and
a recurrence r := a * r + b is an affine map (a, b). A `wide_sum` is a sum in a type so much wider
than its numbers and its result that it may be as long as it likes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import maximum, minimum, op, select
from ridgeline.loops.ir import Const, Expr

Exprs = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative join with an initial value that is neutral.

    `commutative`: operands may change places. `reassoc`: on floats, regrouping changes the
    rounding, so a schedule that regroups must have been allowed to.
    """

    name: str
    arity: int
    init: Callable[[tuple[DType, ...]], tuple[Const, ...]]
    join: Callable[[Exprs, Exprs], Exprs]
    commutative: bool = True
    reassoc: bool = False

    def regroups_exactly(self, types: tuple[DType, ...]) -> bool:
        """True if any grouping of the operands gives the same bits."""
        return not self.reassoc or all(dtype.kind != "float" for dtype in types)


def _lowest(dtype: DType) -> Const:
    if dtype.kind == "bool":
        return ir.const(False, dtype)
    if dtype.kind == "float":
        return ir.const(-448.0 if dtype is dtypes.float8_e4m3fn else -math.inf, dtype)
    return ir.const(int(np.iinfo(dtype.numpy).min), dtype)


def _highest(dtype: DType) -> Const:
    if dtype.kind == "bool":
        return ir.const(True, dtype)
    if dtype.kind == "float":
        return ir.const(448.0 if dtype is dtypes.float8_e4m3fn else math.inf, dtype)
    return ir.const(int(np.iinfo(dtype.numpy).max), dtype)


def _fill(value: int | bool) -> Callable[[tuple[DType, ...]], tuple[Const, ...]]:
    return lambda types: tuple(ir.const(value, dtype) for dtype in types)


def _binary(name: str, boolean: str = "") -> Callable[[Exprs, Exprs], Exprs]:
    def join(left: Exprs, right: Exprs) -> Exprs:
        is_bool = left[0].dtype is dtypes.bool_
        return (op(boolean if boolean and is_bool else name, left[0], right[0]),)

    return join


def _arg_init(
    worst: Callable[[DType], Const], first: bool = True
) -> Callable[[tuple[DType, ...]], tuple[Const, ...]]:
    # an index that loses every tie, so an empty part never wins
    index = _highest if first else _lowest
    return lambda types: (worst(types[0]), index(types[1]))


def _arg_join(larger: bool, first: bool = True) -> Callable[[Exprs, Exprs], Exprs]:
    """(value, position) of the best; of equal ones the first or the last."""

    def join(left: Exprs, right: Exprs) -> Exprs:
        (a, i), (b, j) = left, right
        better = a < b if larger else b < a
        tie = a.eq(b)
        if a.dtype.kind == "float":  # NaN beats every number, and several are equal
            a_nan, b_nan = op("isnan", a), op("isnan", b)
            better = better | b_nan & ~a_nan
            tie = tie | a_nan & b_nan
        take = better | tie & (j < i if first else i < j)
        return select(take, b, a), select(take, j, i)

    return join


def _welford_join(left: Exprs, right: Exprs) -> Exprs:
    """Chan's pairwise update of (count, mean, sum of squared deviations)."""
    (n1, mean1, m1), (n2, mean2, m2) = left, right
    count = n1 + n2
    share = n2 / maximum(count, ir.const(1, count.dtype))  # 0 / 1 when both are empty
    delta = mean2 - mean1
    mean = mean1 + delta * share
    spread = delta * delta * (n1 * share)
    return count, mean, m1 + m2 + spread


def _online_softmax_join(left: Exprs, right: Exprs) -> Exprs:
    """(running maximum, sum of exponentials relative to it)."""
    (a, p), (b, q) = left, right
    top = maximum(a, b)
    empty = top.eq(-math.inf)
    shift = select(empty, ir.const(0, top.dtype), top)  # -inf - -inf would be NaN
    scaled = (s * op("exp", m - shift) for m, s in ((a, p), (b, q)))
    return top, op("add", *scaled)


def _log_add(left: Exprs, right: Exprs) -> Exprs:
    """log(exp(a) + exp(b)) without overflow."""
    (a,), (b,) = left, right
    top, low = maximum(a, b), minimum(a, b)
    total = top + op("log1p", op("exp", low - top))
    infinite = abs(top).eq(math.inf)
    return (select(infinite, top, total),)


def _compensated_join(left: Exprs, right: Exprs) -> Exprs:
    """(sum, what its additions lost): the rounding of an addition is itself a float.

    Where the sum is infinite, what was lost is NaN.
    """
    (a, p), (b, q) = left, right
    total = a + b
    taken = total - a  # what of b arrived
    missed = a - (total - taken) + (b - taken)
    return total, p + missed + q


def compensated_total(total: Expr, lost: Expr) -> Expr:
    """A sum plus the rounding errors of its additions; an infinite sum has none."""
    return select(lost.eq(lost), total + lost, total)


def _affine_join(left: Exprs, right: Exprs) -> Exprs:
    """The map on the left, then that on the right.

    The factor of many maps may overflow though none of them does. It stays finite, so that a value
    of zero stays zero under them.
    """
    (a, p), (b, q) = left, right
    factor = a * b
    if factor.dtype.kind == "float":
        most = float(np.finfo(factor.dtype.numpy).max)
        low, high = ir.const(-most, factor.dtype), ir.const(most, factor.dtype)
        factor = maximum(minimum(factor, high), low)
    return factor, b * p + q


MONOIDS: dict[str, Monoid] = {
    monoid.name: monoid
    for monoid in (
        Monoid("sum", 1, _fill(0), _binary("add"), reassoc=True),
        Monoid("wide_sum", 1, _fill(0), _binary("add"), reassoc=True),
        Monoid("compensated", 2, _fill(0), _compensated_join, reassoc=True),
        Monoid("prod", 1, _fill(1), _binary("mul"), reassoc=True),
        Monoid("max", 1, lambda types: (_lowest(types[0]),), _binary("max", "or")),
        Monoid("min", 1, lambda types: (_highest(types[0]),), _binary("min", "and")),
        Monoid("any", 1, _fill(False), _binary("or")),
        Monoid("all", 1, _fill(True), _binary("and")),
        Monoid("argmax", 2, _arg_init(_lowest), _arg_join(larger=True)),
        Monoid("argmin", 2, _arg_init(_highest), _arg_join(larger=False)),
        Monoid("last_max", 2, _arg_init(_lowest, first=False), _arg_join(True, first=False)),
        Monoid("last_min", 2, _arg_init(_highest, first=False), _arg_join(False, first=False)),
        Monoid(
            "logaddexp", 1, lambda types: (ir.const(-math.inf, types[0]),), _log_add, reassoc=True
        ),
        Monoid(
            "affine", 2, lambda types: (ir.const(1, types[0]), ir.const(0, types[1])),
            _affine_join, commutative=False, reassoc=True,
        ),
        Monoid("welford", 3, _fill(0), _welford_join, reassoc=True),
        Monoid(
            "online_softmax", 2,
            lambda types: (ir.const(-math.inf, types[0]), ir.const(0, types[1])),
            _online_softmax_join, reassoc=True,
        ),
    )
}  # fmt: skip
SUMS = ("sum", "wide_sum")  # that an instruction adds a product to
