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
    add,
    bitcast,
    cast,
    const,
    div,
    eq,
    fma,
    format_of,
    lt,
    magnitude,
    mul,
    negative,
    op,
    round_by_adding,
    select,
    series,
    sub,
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
        return div(sin(x), cos(x))
    turn = _turns(cast(magnitude(x), dtypes.float64))
    quarters, bits = round_by_adding(turn, 4.0)
    r = mul(fma(turn, 4.0, negative(quarters)), const(_HALF_PI, turn))
    z = mul(r, r)
    sine = fma(mul(r, z), series(table.SIN32, z), r)
    cosine = fma(z, fma(z, series(table.COS32, z), -0.5), 1.0)
    odd = op("ne", op("and", bits, const(1, bits)), const(0, bits))
    top, bottom = select(odd, negative(cosine), sine), select(odd, sine, cosine)
    value = cast(div(top, bottom), dtypes.float32)
    return select(lt(x, const(0, x)), negative(value), select(eq(x, const(0, x)), x, value))


def sinc(x: Expr) -> Expr:
    """sin(pi x) / (pi x) of float64, 1 at 0: with x = n + r it is r * S(r*r) / x."""
    n = op("round", x)
    r = sub(x, n)
    z = mul(r, r)
    wave = fma(mul(r, z), series(table.SINC64, z), r)  # sin(pi r) / pi
    half = mul(n, const(0.5, n))
    odd = op("ne", op("trunc", half), half)
    value = div(select(odd, negative(wave), wave), x)
    return select(eq(x, const(0, x)), const(1, x), value)


def _single(x: Expr, cosine: bool) -> Expr:
    turn = _turns(cast(magnitude(x), dtypes.float64))
    quarters, bits = round_by_adding(turn, 4.0)
    angle = mul(fma(turn, 4.0, negative(quarters)), const(_HALF_PI, turn))
    r = cast(angle, dtypes.float32)
    z = mul(r, r)
    sine = fma(mul(r, z), series(table.SIN32, z), r)
    cosine_ = fma(z, fma(z, series(table.COS32, z), -0.5), 1.0)
    return _quadrant(x, cast(bits, dtypes.int32), sine, cosine_, cosine)


def _turns(x: Expr) -> Expr:
    """x / 2pi less the nearest integer, for an x that was a float32 and is not negative."""
    high: Expr = const(table.TURNS_81[0], x)
    low: Expr = const(table.TURNS_81[1], x)
    for limit, parts in reversed(_CLASSES):
        inside = lt(x, const(limit, x))
        high = select(inside, const(parts[0], x), high)
        low = select(inside, const(parts[1], x), low)
    whole = op("round", mul(x, high))
    return fma(x, low, fma(x, high, negative(whole)))


def _double(x: Expr, cosine: bool) -> Expr:
    a = magnitude(x)
    first, second, third, _ = table.HALF_PI_64
    n, bits = round_by_adding(a, _TWO_OVER_PI)
    partial = fma(n, -first, a)
    r = fma(n, -second, partial)
    rest = fma(n, -third, fma(n, -second, sub(partial, r)))  # what r has lost
    z = mul(r, r)
    sine = add(r, fma(mul(r, z), series(table.SIN64, z), rest))
    half = mul(z, const(0.5, z))
    flat = sub(const(1, z), half)
    bend = fma(mul(z, z), series(table.COS64, z), negative(mul(r, rest)))
    cosine_ = add(flat, add(sub(sub(const(1, z), flat), half), bend))
    near = _quadrant(x, bits, sine, cosine_, cosine)
    far = lt(const(_FAR, x), a)
    return op("guarded", far, op("libm_cos" if cosine else "libm_sin", x), near)


def _quadrant(x: Expr, bits: Expr, sine: Expr, cosine: Expr, want_cosine: bool) -> Expr:
    """The sine or cosine of |x|, from those of the angle left over after `bits` quarter turns."""
    form = format_of(x)
    if want_cosine:
        bits = add(bits, const(1, bits))
    odd = op("ne", op("and", bits, const(1, bits)), const(0, bits))
    value = bitcast(select(odd, cosine, sine), form.integer)
    flip = op("shl", op("and", bits, const(2, bits)), const(form.dtype.bits - 2, bits))
    if not want_cosine:
        sign = const(-(1 << (form.dtype.bits - 1)), bits)
        flip = op("xor", flip, op("and", bitcast(x, form.integer), sign))
    return bitcast(op("xor", value, flip), form.dtype)
