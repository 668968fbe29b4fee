"""erf, by a polynomial below 1 and through the complement erfc above; relatives and inverses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.hyperbolic import with_sign
from ridgeline.loops.math.logarithm import log, log1p
from ridgeline.loops.math.tables import error_function as table
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    fma,
    op,
    select,
    series,
)

_LAST = {dtypes.float32: 3.95, dtypes.float64: 6.0}  # from here on erf rounds to 1
_NEAR = 4.0  # up to here erfcx is a quotient in x
_CENTRE, _TAIL_START, _TAIL_END = 0.85, 1.6, 5.0  # of the inverse


def erf(x: Expr) -> Expr:
    """The error function: a series in x below 1, and 1 - erfc above."""
    single = x.dtype is dtypes.float32
    a = abs(x)
    near = fma(a, series(table.ERF32 if single else table.ERF64, x * x), a)
    held = clamp(a, None if single else 1.0, _LAST[x.dtype])
    far = 1 - _erfc64(held) if not single else _one_less_erfc32(held)
    return with_sign(select(a < 1, near, far), x)


def _one_less_erfc32(x: Expr) -> Expr:
    """1 - p**4 with a polynomial p for the fourth root of erfc."""
    root = series(table.ERFC32, x)
    square = root * root
    return fma(-square, square, 1.0)


def _erfc64(x: Expr) -> Expr:
    """e**-g with a quotient g of polynomials for -log(erfc)."""
    t = x - 1
    return exp(-(series(table.ERFC64, t) / series(table.ERFC64_BELOW, t)))


# ---- relatives, in float64 -----------------------------------------------------------------------


def erfcx(x: Expr) -> Expr:
    """exp(x*x) * erfc(x): two such squares less the mirrored value, left of 0."""
    a = abs(x)
    right = scaled_erfc(a)
    grown = _exp_of_square(clamp(a, None, 27.0), 1.0)
    return select(x < 0, grown + grown - right, right)


def erfc(x: Expr) -> Expr:
    """1 - erf(x), accurate in the right tail."""
    a = abs(x)
    right = scaled_erfc(a) * _exp_of_square(clamp(a, None, 28.0), -1.0)
    return select(x < 0, 2 - right, right)


def ndtr(x: Expr) -> Expr:
    """The normal distribution function."""
    tail = _scaled_tail(x) * _exp_of_square(clamp(abs(x), None, 40.0), -0.5)
    return select(x < 0, tail, 1 - tail)


def _scaled_tail(x: Expr) -> Expr:
    """The weight beyond |x| over exp(-x*x/2), whose exponent keeps what a root of 2 would lose."""
    return scaled_erfc(abs(x) * math.sqrt(0.5)) * 0.5


def log_ndtr(x: Expr) -> Expr:
    """The logarithm of the normal distribution function."""
    half = _scaled_tail(x)
    exponent = x * x * -0.5
    left = log(half) + exponent
    tail = half * _exp_of_square(clamp(abs(x), None, 40.0), -0.5)
    right = log1p(select(x < 0, tail - 1, -tail))
    return select(x < -1, left, right)


def erfinv(y: Expr) -> Expr:
    """The inverse of the error function."""
    a = abs(y)
    q = (1 - a) * 0.5
    tail = select(q.eq(0), const(math.inf, y), _tail_quantile(q))
    return select(a <= _CENTRE, _centre_quantile(y), with_sign(tail, y))


def ndtri(p: Expr) -> Expr:
    """The inverse of the normal distribution function."""
    one, root2 = const(1, p), const(math.sqrt(2), p)
    upper = p > 0.5
    q = select(upper, one - p, p)
    tail = select(q.eq(0), const(math.inf, p), _tail_quantile(q))
    tail = select(upper, tail, -tail)
    y = p + p - one
    return root2 * select(abs(y) <= _CENTRE, _centre_quantile(y), tail)


def scaled_erfc(a: Expr) -> Expr:
    """exp(a*a) * erfc(a) for a >= 0: quotients of polynomials in a, and in 1/(a*a) far out."""
    near = _quotient(table.ERFCX64, table.ERFCX64_BELOW, clamp(a, None, _NEAR))
    inverse = 1 / clamp(a, _NEAR, None)
    z = inverse * inverse
    far = inverse * _quotient(table.ERFCX_FAR64, table.ERFCX_FAR64_BELOW, z)
    return select(a < _NEAR, near, far)


def _exp_of_square(a: Expr, factor: float) -> Expr:
    """exp(factor * a*a), with what the square lost; the factor is a power of two."""
    square = a * a
    lost = fma(a, a, -square)
    power = exp(square * factor)
    better = fma(power, lost * factor, power)
    return select(power < math.inf, better, power)


def _centre_quantile(y: Expr) -> Expr:
    held = clamp(y, -_CENTRE, _CENTRE)
    below = fma(-held, held, _CENTRE * _CENTRE)
    return held * _quotient(table.ERFINV64, table.ERFINV64_BELOW, below)


def _tail_quantile(q: Expr) -> Expr:
    """The v with erfc(v) = 2q, as a function of sqrt(-log q)."""
    r = op("sqrt", -log(q))
    near = clamp(r, _TAIL_START, _TAIL_END) - _TAIL_START
    far = clamp(r, _TAIL_END, None) - _TAIL_END
    return select(
        r < _TAIL_END,
        _quotient(table.ERFINV_TAIL64, table.ERFINV_TAIL64_BELOW, near),
        _quotient(table.ERFINV_FAR64, table.ERFINV_FAR64_BELOW, far),
    )


def _quotient(top: Sequence[float], below: Sequence[float], x: Expr) -> Expr:
    return series(top, x) / series(below, x)
