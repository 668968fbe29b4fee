"""Modified Bessel functions of orders 0 and 1, in float64: polynomials in x*x or 1/x."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.loops.ir import Expr
from ridgeline.loops.math import coefficients as table
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.toolbox import (
    clamp,
    const,
    div,
    lt,
    magnitude,
    mul,
    negative,
    op,
    select,
    series,
)

_NEAR = 16.0


def i0e(x: Expr) -> Expr:
    """exp(-|x|) I_0(x)."""
    a = magnitude(x)
    near = mul(exp(negative(a)), series(table.I0_64, _small_square(a)))
    return select(lt(a, const(_NEAR, x)), near, _far(table.I0E_FAR64, a))


def i1e(x: Expr) -> Expr:
    """exp(-|x|) I_1(x)."""
    a = magnitude(x)
    near = mul(mul(a, exp(negative(a))), series(table.I1_64, _small_square(a)))
    return _odd(select(lt(a, const(_NEAR, x)), near, _far(table.I1E_FAR64, a)), x)


def i0(x: Expr) -> Expr:
    """The modified Bessel function of the first kind and order 0."""
    a = magnitude(x)
    near = series(table.I0_64, _small_square(a))
    return select(lt(a, const(_NEAR, x)), near, _grown(_far(table.I0E_FAR64, a), a))


def i1(x: Expr) -> Expr:
    """The modified Bessel function of the first kind and order 1."""
    a = magnitude(x)
    near = mul(a, series(table.I1_64, _small_square(a)))
    far = _grown(_far(table.I1E_FAR64, a), a)
    return _odd(select(lt(a, const(_NEAR, x)), near, far), x)


def _odd(value: Expr, x: Expr) -> Expr:
    """A value for |x| as one for x; at -0 it is 0, as in torch."""
    return select(lt(x, const(0, x)), negative(value), value)


def _small_square(a: Expr) -> Expr:
    scaled = mul(clamp(a, None, _NEAR), const(1 / _NEAR, a))
    return mul(scaled, scaled)


def _far(coefficients: Sequence[float], a: Expr) -> Expr:
    """exp(-a) times the function: a polynomial in 1/a over sqrt(a)."""
    held = clamp(a, _NEAR, None)
    return div(series(coefficients, div(const(1, a), held)), op("sqrt", held))


def _grown(scaled: Expr, a: Expr) -> Expr:
    """A scaled value times e**a, in two factors of which neither overflows before the product."""
    root = exp(mul(a, const(0.5, a)))
    return mul(mul(scaled, root), root)
