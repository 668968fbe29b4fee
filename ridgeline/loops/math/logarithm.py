"""log, log1p, log2 and log10.

x = 2**e * (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and log x = e*ln2 + log(1 + f). In
float32 log(1 + f) is a polynomial in f; in float64 it is 2*atanh(f / (2 + f)), written so that
f itself enters unrounded. To other bases log(1 + f) is kept in two parts, so that the logarithm of
a power of the base is exact.
"""

from __future__ import annotations

import math

from ridgeline import dtypes
from ridgeline.loops.analysis.value_ranges import bounds
from ridgeline.loops.ir import Expr
from ridgeline.loops.math.tables import elementary as table
from ridgeline.loops.math.toolbox import (
    Format,
    bitcast,
    const,
    fma,
    format_of,
    select,
    series,
)

_ROOT_HALF = {dtypes.float32: 0x3F3504F3, dtypes.float64: 0x3FE6A09E667F3BCD}
_UNSIGNED = {dtypes.float32: dtypes.uint32, dtypes.float64: dtypes.uint64}


def split(x: Expr, form: Format) -> tuple[Expr, Expr, Expr]:
    """(e, m, bits of 2**e) for a positive normal x = 2**e * m with m about 1."""
    root_half = _ROOT_HALF[form.dtype]
    bits = bitcast(x, _UNSIGNED[form.dtype])
    lifted = bits + (form.one - root_half)  # the exponent now counts from sqrt(1/2)
    exponent = lifted >> form.mantissa
    # as the low bits of 2**mantissa, an integer becomes a float by one subtraction
    anchor = (form.bias + form.mantissa) << form.mantissa
    wide = bitcast(exponent | anchor, form.dtype)
    e = wide - (2.0**form.mantissa + form.bias)
    mantissa = lifted & (1 << form.mantissa) - 1
    m = bitcast(mantissa + root_half, form.dtype)
    return e, m, exponent << form.mantissa


def combined(e: Expr, f: Expr) -> Expr:
    """e*ln2 + log(1 + f)."""
    if f.dtype is dtypes.float32:
        bend = fma(f, series(table.LOG32, f), -0.5)
        # what ln2 has beyond float32 is a twentieth of an ulp
        return fma(e, table.LN2_32[0], fma(f * f, bend, f))
    high, low = table.LN2_64
    s = f / (f + 2)
    z = s * s
    rest = fma(-z, series(table.LOG64, z), f)
    return fma(e, high, f + fma(-s, rest, e * low))


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    form = format_of(x)
    low, high = bounds(x)
    if low >= 2.0 ** (1 - form.bias) and high < math.inf:
        e, m, _ = split(x, form)
        return combined(e, m - 1)
    lift = form.mantissa + 1
    subnormal = x < 2.0 ** (1 - form.bias)
    scaled = select(subnormal, x * 2.0**lift, x)
    e, m, _ = split(scaled, form)
    e = select(subnormal, e - lift, e)
    return _edges(x, combined(e, m - 1))


def log1p(x: Expr) -> Expr:
    """log(1 + x), precise near 0: f is x * 2**-e + (2**-e - 1), where 1 + x rounded only gave e."""
    form = format_of(x)
    whole = x + 1
    e, m, exponent_bits = split(whole, form)
    scale = bitcast(const(2 * form.one, exponent_bits) - exponent_bits, form.dtype)
    one = const(1, x)
    near = fma(x, scale, scale - one)
    f = select(x < 2.0 ** (2 * form.mantissa), near, m - one)  # else scale is tiny
    return select(x.eq(0), x, _edges(whole, combined(e, f)))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2."""
    e, f = _parts(x)
    if x.dtype is dtypes.float32:
        bend = fma(f, series(table.LOG32, f), -0.5)
        return _edges(x, fma(fma(f * f, bend, f), table.LOG2_E_64[0], e))
    return _edges(x, _to_base(f, table.LOG2_E_64, e, const(0, e)))


def log10(x: Expr) -> Expr:
    """The logarithm to base 10, of float64."""
    e, f = _parts(x)
    high, low = table.LOG10_2_64
    whole = e * high
    rest = fma(e, low, fma(e, high, -whole))
    return _edges(x, _to_base(f, table.LOG10_E_64, whole, rest))


def _parts(x: Expr) -> tuple[Expr, Expr]:
    """(e, f) with x = 2**e * (1 + f) for a positive x, subnormal ones included."""
    form = format_of(x)
    lift = form.mantissa + 1
    subnormal = x < 2.0 ** (1 - form.bias)
    e, m, _ = split(select(subnormal, x * 2.0**lift, x), form)
    return select(subnormal, e - lift, e), m - 1


def _to_base(f: Expr, factor: tuple[float, float], whole: Expr, rest: Expr) -> Expr:
    """whole + rest + log(1 + f) * factor in float64, where whole is 0 or the larger."""
    s = f / (f + 2)
    z = s * s
    bend = s * fma(-z, series(table.LOG64, z), f)
    high = f - bend
    low = f - high - bend  # what the difference lost
    product = high * factor[0]
    lost = fma(high, factor[0], -product)
    below = lost + fma(high, factor[1], low * factor[0])
    total = whole + product
    missing = whole - total + product
    return total + (missing + (below + rest))


def _edges(x: Expr, result: Expr) -> Expr:
    """log of 0 is -inf, of less NaN, of inf and NaN themselves."""
    below = select(x.eq(0), const(-math.inf, x), const(math.nan, x))
    result = select(x < math.inf, result, x)
    return select(x <= 0, below, result)
