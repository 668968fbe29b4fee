"""sin, cos, tan and sinc.

float32 is reduced in float64: |x| / 2pi modulo 1, from two parts of 2**k / 2pi modulo 1, where k is
chosen by the size of x so that x * 2**-k has at most fifty bits before the point, and is an integer
if k > 0. So every float32 is reduced to full precision without a table. float64 subtracts multiples
of pi/2 in three parts, and asks the C library beyond a billion. The argument of sinc counts half
turns, which are taken off exactly.
"""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    bitcast,
    cast,
    const,
    fma,
    format_of,
    op,
    round_by_adding,
    select,
    series,
)

_TWO_OVER_PI = 0.63661977236758134308
_HALF_PI = table.HALF_PI_64[0]
_FAR = 2.0**30
_CLASSES = (
    (2.0**50, table.TURNS_0),
    (2.0**77, table.TURNS_27),
    (2.0**104, table.TURNS_54),
)


def sin(x: Expr) -> Expr:
    """The sine."""
    return _single(x, cosine=False) if x.dtype is dtypes.float32 else _double(x, cosine=False)


def cos(x: Expr) -> Expr:
    """The cosine."""
    return _single(x, cosine=True) if x.dtype is dtypes.float32 else _double(x, cosine=True)


def tan(x: Expr) -> Expr:
    """The tangent; of float32 by the polynomials of sin and cos, but without rounding them."""
    if x.dtype is not dtypes.float32:
        return sin(x) / cos(x)
    turn = _turns(cast(abs(x), dtypes.float64))
    quarters, bits = round_by_adding(turn, 4.0)
    r = fma(turn, 4.0, -quarters) * _HALF_PI
    z = r * r
    sine = fma(r * z, series(table.SIN32, z), r)
    cosine = fma(z, fma(z, series(table.COS32, z), -0.5), 1.0)
    odd = (bits & 1).ne(0)
    top, bottom = select(odd, -cosine, sine), select(odd, sine, cosine)
    value = cast(top / bottom, dtypes.float32)
    return select(x < 0, -value, select(x.eq(0), x, value))


def sinc(x: Expr) -> Expr:
    """sin(pi x) / (pi x) of float64, 1 at 0: with x = n + r it is r * S(r*r) / x."""
    n = op("round", x)
    r = x - n
    z = r * r
    wave = fma(r * z, series(table.SINC64, z), r)  # sin(pi r) / pi
    half = n * 0.5
    odd = op("trunc", half).ne(half)
    value = select(odd, -wave, wave) / x
    return select(x.eq(0), const(1, x), value)


def _single(x: Expr, cosine: bool) -> Expr:
    turn = _turns(cast(abs(x), dtypes.float64))
    quarters, bits = round_by_adding(turn, 4.0)
    angle = fma(turn, 4.0, -quarters) * _HALF_PI
    r = cast(angle, dtypes.float32)
    z = r * r
    sine = fma(r * z, series(table.SIN32, z), r)
    cosine_ = fma(z, fma(z, series(table.COS32, z), -0.5), 1.0)
    return _quadrant(x, cast(bits, dtypes.int32), sine, cosine_, cosine)


def _turns(x: Expr) -> Expr:
    """x / 2pi less the nearest integer, for an x that was a float32 and is not negative."""
    high: Expr = const(table.TURNS_81[0], x)
    low: Expr = const(table.TURNS_81[1], x)
    for limit, parts in reversed(_CLASSES):
        inside = x < limit
        high = select(inside, const(parts[0], x), high)
        low = select(inside, const(parts[1], x), low)
    whole = op("round", x * high)
    return fma(x, low, fma(x, high, -whole))


def _double(x: Expr, cosine: bool) -> Expr:
    a = abs(x)
    first, second, third, _ = table.HALF_PI_64
    n, bits = round_by_adding(a, _TWO_OVER_PI)
    partial = fma(n, -first, a)
    r = fma(n, -second, partial)
    rest = fma(n, -third, fma(n, -second, partial - r))  # what r has lost
    z = r * r
    sine = r + fma(r * z, series(table.SIN64, z), rest)
    half = z * 0.5
    flat = 1 - half
    bend = fma(z * z, series(table.COS64, z), -(r * rest))
    cosine_ = flat + (1 - flat - half + bend)
    near = _quadrant(x, bits, sine, cosine_, cosine)
    far = const(_FAR, x) < a
    return op("guarded", far, op("libm_cos" if cosine else "libm_sin", x), near)


def _quadrant(x: Expr, bits: Expr, sine: Expr, cosine: Expr, want_cosine: bool) -> Expr:
    """The sine or cosine of |x|, from those of the angle left over after `bits` quarter turns."""
    form = format_of(x)
    if want_cosine:
        bits = bits + 1
    odd = (bits & 1).ne(0)
    value = bitcast(select(odd, cosine, sine), form.integer)
    flip = (bits & 2) << form.dtype.bits - 2
    if not want_cosine:
        sign = const(-(1 << (form.dtype.bits - 1)), bits)
        flip = flip ^ bitcast(x, form.integer) & sign
    return bitcast(value ^ flip, form.dtype)
