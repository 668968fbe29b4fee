"""erf, by a polynomial below 1 and through the complement erfc above."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math import coefficients as table
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.hyperbolic import with_sign
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    div,
    fma,
    lt,
    magnitude,
    mul,
    negative,
    select,
    series,
    sub,
)

_LAST = {dtypes.float32: 3.95, dtypes.float64: 6.0}  # from here on erf rounds to 1


def erf(x: Expr) -> Expr:
    """The error function: a series in x below 1, and 1 - erfc above."""
    single = x.dtype is dtypes.float32
    a = magnitude(x)
    near = fma(a, series(table.ERF32 if single else table.ERF64, mul(x, x)), a)
    held = clamp(a, None if single else 1.0, _LAST[x.dtype])
    far = sub(const(1, x), _erfc64(held)) if not single else _one_less_erfc32(held)
    return with_sign(select(lt(a, const(1, x)), near, far), x)


def _one_less_erfc32(x: Expr) -> Expr:
    """1 - p**4 with a polynomial p for the fourth root of erfc."""
    root = series(table.ERFC32, x)
    square = mul(root, root)
    return fma(negative(square), square, 1.0)


def _erfc64(x: Expr) -> Expr:
    """e**-g with a quotient g of polynomials for -log(erfc)."""
    t = sub(x, const(1, x))
    return exp(negative(div(series(table.ERFC64, t), series(table.ERFC64_BELOW, t))))
