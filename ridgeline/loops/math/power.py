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
    bitcast,
    cast,
    clamp,
    const,
    format_of,
    op,
    power_of_two,
    round_by_adding,
    select,
    series,
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
    digits = int(y.value).bit_length() if isinstance(y, Const) and known else x.dtype.bits
    for index in range(digits):
        bit = y >> index & 1
        result = select(bit.eq(1), result * square, result)
        square = square * square
    if known or x.dtype.kind == "uint":
        return result
    odd = (y & 1).eq(1)
    unit = select(odd, const(-1, x), one)
    inverse = select(x.eq(one), one, select(x.eq(-1), unit, zero))
    return select(y < 0, inverse, result)


def _known_exponent(x: Expr, exponent: int | float) -> Expr | None:
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == -1:
        return op("reciprocal", x)
    if abs(exponent) == 0.5:  # unlike sqrt, of -0 it is 0 and of -inf it is inf
        root = op("sqrt", x + 0)
        infinite = x.eq(-math.inf)
        result = select(infinite, const(math.inf, x), root)
        return result if exponent > 0 else op("reciprocal", result)
    return None


def _single(x: Expr, y: Expr) -> Expr:
    logarithm = _log2(cast(abs(x), dtypes.float64))
    wide = cast(y, dtypes.float64)
    zero = const(0, wide)
    # of 1 every power is 1, also the infinite ones
    exponent = select(logarithm.eq(zero), zero, wide * logarithm)
    result = cast(_exp2(exponent), dtypes.float32)
    return _with_rules(x, y, result)


def _log2(x: Expr) -> Expr:
    """log2 of a float64 that was a float32 and is not negative: never subnormal."""
    e, m, _ = split(x, format_of(x))
    one = const(1, x)
    s = (m - one) / (m + one)
    result = op("fma", s, series(table.POW_LOG2, s * s), e)
    result = select(x < math.inf, result, x)
    return select(x.eq(0), const(-math.inf, x), result)


def _exp2(x: Expr) -> Expr:
    """2**x, held to a range that is beyond float32 at both ends."""
    held = clamp(x, -200.0, 200.0)
    n, bits = round_by_adding(held, 1.0)
    return series(table.POW_EXP2, held - n) * power_of_two(bits, format_of(x))


def _with_rules(x: Expr, y: Expr, result: Expr) -> Expr:
    """Odd powers keep the sign; a finite negative has only whole powers; x**0 is 1."""
    half = y * 0.5
    whole = op("trunc", y).eq(y)
    odd = whole & op("trunc", half).ne(half)
    bits = bitcast(x, dtypes.int32)
    sign = bits & -(1 << 31)
    signed = bitcast(bitcast(result, dtypes.int32) ^ sign, dtypes.float32)
    result = select(odd, signed, result)
    finite = (x < 0) & (const(-math.inf, x) < x)
    impossible = finite & ~whole
    result = select(impossible, const(math.nan, x), result)
    return select(y.eq(0), const(1, x), result)
