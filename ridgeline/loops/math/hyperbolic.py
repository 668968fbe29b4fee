"""tanh: in float32 from e**2x - 1, in float64 by two cases that share one division."""

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
    """The hyperbolic tangent."""
    return _single(x) if x.dtype is dtypes.float32 else _double(x)


def _single(x: Expr) -> Expr:
    """h / (h + 1) with h = (e**2x - 1) / 2.

    With x = n*ln2/2 + r and s = 2**n, h = s * (e**2r - 1)/2 + (s - 1)/2. Where h is small the
    quotient y is better as h - h*y, in which its own error hardly counts.
    """
    held = clamp(abs(x), None, _SATURATED)
    n, bits = round_by_adding(held, 2 * _LOG2_E)
    r = fma(n, -table.LN2_32[0] / 2, held)  # what ln2 has beyond float32 does not show in the end
    s = power_of_two(bits, format_of(x))
    h = fma(s, fma(r * r, series(table.TANH32, r), r), fma(s, 0.5, -0.5))
    y = h / (h + 1)
    refined = fma(-h, y, h)
    return with_sign(select(h < 0.5, refined, y), x)


def _double(x: Expr) -> Expr:
    """x + x*z*P/Q for small x, 1 - 2 / (e**2|x| + 1) with the sign of x for others."""
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
