"""Modified Bessel functions of orders 0 and 1, in float64.

I is a polynomial in x*x, or in 1/x over sqrt(x); K is one in x*x with log(x) times I up to 1, and
beyond a quotient in 1/x over sqrt(x).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline.loops.ir import Expr
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.logarithm import log
from ridgeline.loops.math.tables import bessel as table
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    fma,
    op,
    quotient,
    select,
    series,
)

_NEAR = 16.0


def i0e(x: Expr) -> Expr:
    """exp(-|x|) I_0(x)."""
    a = abs(x)
    near = exp(-a) * series(table.I0_64, _small_square(a))
    return select(a < _NEAR, near, _far(table.I0E_FAR64, a))


def i1e(x: Expr) -> Expr:
    """exp(-|x|) I_1(x)."""
    a = abs(x)
    near = a * exp(-a) * series(table.I1_64, _small_square(a))
    return _odd(select(a < _NEAR, near, _far(table.I1E_FAR64, a)), x)


def i0(x: Expr) -> Expr:
    """The modified Bessel function of the first kind and order 0."""
    a = abs(x)
    near = series(table.I0_64, _small_square(a))
    return select(a < _NEAR, near, _grown(_far(table.I0E_FAR64, a), a))


def i1(x: Expr) -> Expr:
    """The modified Bessel function of the first kind and order 1."""
    a = abs(x)
    near = a * series(table.I1_64, _small_square(a))
    far = _grown(_far(table.I1E_FAR64, a), a)
    return _odd(select(a < _NEAR, near, far), x)


def _odd(value: Expr, x: Expr) -> Expr:
    """A value for |x| as one for x; at -0 it is 0, as in torch."""
    return select(x < 0, -value, value)


def _small_square(a: Expr) -> Expr:
    scaled = clamp(a, None, _NEAR) * (1 / _NEAR)
    return scaled * scaled


def _far(coefficients: Sequence[float], a: Expr) -> Expr:
    """exp(-a) times the function: a polynomial in 1/a over sqrt(a)."""
    held = clamp(a, _NEAR, None)
    return series(coefficients, 1 / held) / op("sqrt", held)


def _grown(scaled: Expr, a: Expr) -> Expr:
    """A scaled value times e**a, in two factors of which neither overflows before the product."""
    root = exp(a * 0.5)
    return scaled * root * root


def k0(x: Expr) -> Expr:
    """The modified Bessel function of the second kind and order 0."""
    return _second(x, _k0_near(x), _k_far(table.K0E_64, table.K0E_64_BELOW, x) * _decay(x))


def k0e(x: Expr) -> Expr:
    """exp(x) K_0(x)."""
    near = _k0_near(x) * exp(clamp(x, None, 1.0))
    return _second(x, near, _k_far(table.K0E_64, table.K0E_64_BELOW, x))


def k1(x: Expr) -> Expr:
    """The modified Bessel function of the second kind and order 1."""
    return _second(x, _k1_near(x), _k_far(table.K1E_64, table.K1E_64_BELOW, x) * _decay(x))


def k1e(x: Expr) -> Expr:
    """exp(x) K_1(x)."""
    near = _k1_near(x) * exp(clamp(x, None, 1.0))
    return _second(x, near, _k_far(table.K1E_64, table.K1E_64_BELOW, x))


def _second(x: Expr, near: Expr, far: Expr) -> Expr:
    """Infinite at 0, and NaN below, where the logarithm is."""
    value = select(x > 1, far, near)
    return select(x.eq(0), const(math.inf, x), value)


def _k0_near(x: Expr) -> Expr:
    held = clamp(x, None, 1.0)
    z = held * held
    return series(table.K0_64, z) - log(held) * series(table.I0_NEAR64, z)


def _k1_near(x: Expr) -> Expr:
    held = clamp(x, None, 1.0)
    z = held * held
    smooth = fma(log(held), series(table.I1_NEAR64, z), series(table.K1_64, z))
    return 1 / held + held * smooth


def _k_far(top: Sequence[float], below: Sequence[float], x: Expr) -> Expr:
    """exp(x) times the function, from 1 on."""
    inverse = 1 / clamp(x, 1.0, None)
    return quotient(top, below, inverse) * op("sqrt", inverse)


def _decay(x: Expr) -> Expr:
    return exp(-clamp(x, 1.0, None))
