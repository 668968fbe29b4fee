"""tanh: by two cases, which in float64 share one division."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.exponential import exp
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    bitcast,
    clamp,
    const,
    fma,
    format_of,
    power_of_two,
    round_by_adding,
    select,
    series,
)

_SATURATED = 9.1  # beyond this tanh is 1 in float32
_SMALL = 0.625
_LOG2_E = 1.4426950408889634074


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent: near 0 a series, elsewhere 1 - 2 / (e**2|x| + 1) with x's sign."""
    return _single(x) if x.dtype is dtypes.float32 else _double(x)


def _single(x: Expr) -> Expr:
    """Where the last sum has one rounding that counts: the series is x and a small part of it.

    Elsewhere |x| = n*ln2/2 + r, and e**2r is the exponential's series with its powers doubled.
    """
    z, a = x * x, abs(x)
    near = fma(x * z, series(table.TANH32, z), x)
    held = clamp(a, None, _SATURATED)
    n, bits = round_by_adding(held, 2 * _LOG2_E)
    r = fma(n, -table.LN2_32[0] / 2, held)  # what ln2 has beyond float32 does not show in the end
    doubled = [c * 2**power for power, c in enumerate((1.0, 1.0, *table.EXP32))]
    far = 1 - 2 / fma(series(doubled, r), power_of_two(bits, format_of(x)), 1)
    return with_sign(select(a < _SMALL, near, far), x)


def _double(x: Expr) -> Expr:
    """x + x*z*P/Q for small x, with the same division for others."""
    z = x * x
    a = abs(x)
    small = a < _SMALL
    top = select(small, x * z * series(table.TANH64, z), const(-2, x))
    bottom = select(small, series(table.TANH64_BELOW, z), exp(a + a) + 1)
    result = select(small, x, const(1, x)) + top / bottom
    return with_sign(result, x)


def with_sign(value: Expr, x: Expr) -> Expr:
    """`value`, which is not negative unless x is, with the sign of x; zeros included."""
    form = format_of(x)
    sign = const(-(1 << (form.dtype.bits - 1)), const(0, bitcast(x, form.integer)))
    bits = bitcast(x, form.integer) & sign
    return bitcast(bitcast(value, form.integer) | bits, form.dtype)
