"""pow.

In float32, 2**(y * log2|x|) in float64, which leaves thirty bits to spare; the C library's rules
for signs, zeros, infinities and NaN are applied around it. In float64 the C library itself, except
for a few exponents known when the kernel is built.
"""

from __future__ import annotations

import math

from ridgeline import dtypes
from ridgeline.loops.ir import Const, Expr
from ridgeline.loops.math.logarithm import split
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    add,
    bitcast,
    cast,
    clamp,
    const,
    div,
    eq,
    format_of,
    lt,
    magnitude,
    mul,
    op,
    power_of_two,
    round_by_adding,
    select,
    series,
    sub,
)


def pow_(x: Expr, y: Expr) -> Expr:
    """x**y."""
    known = _known_exponent(x, y.value) if isinstance(y, Const) else None
    if known is not None:
        return known
    return _single(x, y) if x.dtype is dtypes.float32 else op("libm_pow", x, y)


def integer_power(x: Expr, y: Expr) -> Expr:
    """x**y by squaring; to a negative exponent, rounded towards zero."""
    zero, one = const(0, x), const(1, x)
    result: Expr = one
    square = x
    known = isinstance(y, Const) and y.value >= 0
    places = int(y.value).bit_length() if isinstance(y, Const) and known else x.dtype.bits
    for place in range(places):
        bit = op("and", op("shr", y, const(place, y)), const(1, y))
        result = select(eq(bit, const(1, y)), mul(result, square), result)
        square = mul(square, square)
    if known or x.dtype.kind == "uint":
        return result
    odd = eq(op("and", y, const(1, y)), const(1, y))
    unit = select(odd, const(-1, x), one)
    inverse = select(eq(x, one), one, select(eq(x, const(-1, x)), unit, zero))
    return select(lt(y, const(0, y)), inverse, result)


def _known_exponent(x: Expr, exponent: int | float) -> Expr | None:
    if exponent == 2:
        return mul(x, x)
    if exponent == 3:
        return mul(mul(x, x), x)
    if exponent == -1:
        return op("reciprocal", x)
    if abs(exponent) == 0.5:  # unlike sqrt, of -0 it is 0 and of -inf it is inf
        root = op("sqrt", add(x, const(0, x)))
        infinite = eq(x, const(-math.inf, x))
        result = select(infinite, const(math.inf, x), root)
        return result if exponent > 0 else op("reciprocal", result)
    return None


def _single(x: Expr, y: Expr) -> Expr:
    logarithm = _log2(cast(magnitude(x), dtypes.float64))
    wide = cast(y, dtypes.float64)
    zero = const(0, wide)
    # of 1 every power is 1, also the infinite ones
    exponent = select(eq(logarithm, zero), zero, mul(wide, logarithm))
    result = cast(_exp2(exponent), dtypes.float32)
    return _with_rules(x, y, result)


def _log2(x: Expr) -> Expr:
    """log2 of a float64 that was a float32 and is not negative: never subnormal."""
    e, m, _ = split(x, format_of(x))
    one = const(1, x)
    s = div(sub(m, one), add(m, one))
    result = op("fma", s, series(table.POW_LOG2, mul(s, s)), e)
    result = select(lt(x, const(math.inf, x)), result, x)
    return select(eq(x, const(0, x)), const(-math.inf, x), result)


def _exp2(x: Expr) -> Expr:
    """2**x, held to a range that is beyond float32 at both ends."""
    held = clamp(x, -200.0, 200.0)
    n, bits = round_by_adding(held, 1.0)
    return mul(series(table.POW_EXP2, sub(held, n)), power_of_two(bits, format_of(x)))


def _with_rules(x: Expr, y: Expr, result: Expr) -> Expr:
    """Odd powers keep the sign; a finite negative has only whole powers; x**0 is 1."""
    half = mul(y, const(0.5, y))
    whole = eq(op("trunc", y), y)
    odd = op("and", whole, op("ne", op("trunc", half), half))
    bits = bitcast(x, dtypes.int32)
    sign = op("and", bits, const(-(1 << 31), bits))
    signed = bitcast(op("xor", bitcast(result, dtypes.int32), sign), dtypes.float32)
    result = select(odd, signed, result)
    finite = op("and", lt(x, const(0, x)), lt(const(-math.inf, x), x))
    impossible = op("and", finite, op("not", whole))
    result = select(impossible, const(math.nan, x), result)
    return select(eq(y, const(0, y)), const(1, x), result)
