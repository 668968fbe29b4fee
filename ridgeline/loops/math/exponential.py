"""exp, expm1 and exp2.

x = 2n*ln2 + r with |r| <= ln2, and e**x = 2**n * (e**r * 2**n). Scaling twice by the same factor
needs one more term in the series than |r| <= ln2/2 would, but reaches every result from the
smallest subnormal to overflow, rounded once. Of 2**x the exponent is split into whole halves
instead, so that whole powers are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    clamp,
    fma,
    format_of,
    power_of_two,
    round_by_adding,
    select,
    series,
)

_HALF_LOG2_E = 0.72134752044448170368


@dataclass(frozen=True, slots=True)
class _Reduction:
    """2*ln2 in two parts, and the ranges beyond which e**x and 2**x are 0 or infinite."""

    high: float
    low: float
    least: float
    most: float
    least_binary: float
    most_binary: float


_SINGLE = _Reduction(*table.TWO_LN2_32, -104.0, 89.0, -151.0, 129.0)
_DOUBLE = _Reduction(*table.TWO_LN2_64, -746.0, 710.0, -1076.0, 1025.0)


def reduced(x: Expr) -> tuple[Expr, Expr]:
    """(r, n) with x = 2n*ln2 + r; n as bits for `power_of_two`. x must be clamped."""
    parts = _SINGLE if x.dtype is dtypes.float32 else _DOUBLE
    n, bits = round_by_adding(x, _HALF_LOG2_E)
    return fma(n, -parts.low, fma(n, -parts.high, x)), bits


def clamped(x: Expr) -> Expr:
    """x within the range where e**x is neither 0 nor infinite."""
    parts = _SINGLE if x.dtype is dtypes.float32 else _DOUBLE
    return clamp(x, parts.least, parts.most)


def exp(x: Expr) -> Expr:
    """e**x."""
    form = format_of(x)
    r, bits = reduced(clamped(x))
    rest: Sequence[float] = table.EXP32 if x.dtype is dtypes.float32 else table.EXP64
    scale = power_of_two(bits, form)
    return series((1.0, 1.0, *rest), r) * scale * scale


def expm1(x: Expr) -> Expr:
    """e**x - 1, precise near 0: with s = 2**n it is s * (s*(e**r - 1) + (s - 1/s))."""
    form = format_of(x)
    r, bits = reduced(clamped(x))
    rest: Sequence[float] = table.EXPM1_32 if x.dtype is dtypes.float32 else table.EXP64
    change = fma(r * r, series(rest, r), r)  # e**r - 1
    scale = power_of_two(bits, form)
    inverse = power_of_two(-bits, form)
    result = fma(scale, change, scale - inverse) * scale
    return select(x.eq(0), x, result)  # keeps the sign of zero


def exp2(x: Expr) -> Expr:
    """2**x: for x = n + r with |r| <= 1/2 it is 2**r * 2**h * 2**(n - h), with h about n/2."""
    form = format_of(x)
    single = x.dtype is dtypes.float32
    parts = _SINGLE if single else _DOUBLE
    held = clamp(x, parts.least_binary, parts.most_binary)
    n, bits = round_by_adding(held, 1.0)
    _, half = round_by_adding(n, 0.5)
    power = series(table.EXP2_32 if single else table.EXP2_64, held - n)
    return power * power_of_two(half, form) * power_of_two(bits - half, form)
