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
    add,
    bitcast,
    const,
    div,
    eq,
    fma,
    format_of,
    le,
    lt,
    mul,
    negative,
    op,
    select,
    series,
    sub,
)

_ROOT_HALF = {dtypes.float32: 0x3F3504F3, dtypes.float64: 0x3FE6A09E667F3BCD}
_UNSIGNED = {dtypes.float32: dtypes.uint32, dtypes.float64: dtypes.uint64}


def split(x: Expr, form: Format) -> tuple[Expr, Expr, Expr]:
    """(e, m, bits of 2**e) for a positive normal x = 2**e * m with m about 1."""
    root_half = _ROOT_HALF[form.dtype]
    bits = bitcast(x, _UNSIGNED[form.dtype])
    lifted = add(bits, const(form.one - root_half, bits))  # the exponent now counts from sqrt(1/2)
    exponent = op("shr", lifted, const(form.mantissa, bits))
    # as the low bits of 2**mantissa, an integer becomes a float by one subtraction
    anchor = (form.bias + form.mantissa) << form.mantissa
    wide = bitcast(op("or", exponent, const(anchor, bits)), form.dtype)
    e = sub(wide, const(2.0**form.mantissa + form.bias, x))
    mantissa = op("and", lifted, const((1 << form.mantissa) - 1, bits))
    m = bitcast(add(mantissa, const(root_half, bits)), form.dtype)
    return e, m, op("shl", exponent, const(form.mantissa, bits))


def combined(e: Expr, f: Expr) -> Expr:
    """e*ln2 + log(1 + f)."""
    if f.dtype is dtypes.float32:
        bend = fma(f, series(table.LOG32, f), -0.5)
        # what ln2 has beyond float32 is a twentieth of an ulp
        return fma(e, table.LN2_32[0], fma(mul(f, f), bend, f))
    high, low = table.LN2_64
    s = div(f, add(f, const(2, f)))
    z = mul(s, s)
    rest = fma(negative(z), series(table.LOG64, z), f)
    return fma(e, high, add(f, fma(negative(s), rest, mul(e, const(low, e)))))


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    form = format_of(x)
    low, high = bounds(x)
    if low >= 2.0 ** (1 - form.bias) and high < math.inf:
        e, m, _ = split(x, form)
        return combined(e, sub(m, const(1, m)))
    lift = form.mantissa + 1
    subnormal = lt(x, const(2.0 ** (1 - form.bias), x))
    scaled = select(subnormal, mul(x, const(2.0**lift, x)), x)
    e, m, _ = split(scaled, form)
    e = select(subnormal, sub(e, const(lift, e)), e)
    return _edges(x, combined(e, sub(m, const(1, m))))


def log1p(x: Expr) -> Expr:
    """log(1 + x), precise near 0: f is x * 2**-e + (2**-e - 1), where 1 + x rounded only gave e."""
    form = format_of(x)
    whole = add(x, const(1, x))
    e, m, exponent_bits = split(whole, form)
    scale = bitcast(sub(const(2 * form.one, exponent_bits), exponent_bits), form.dtype)
    one = const(1, x)
    near = fma(x, scale, sub(scale, one))
    f = select(lt(x, const(2.0 ** (2 * form.mantissa), x)), near, sub(m, one))  # else scale is tiny
    return select(eq(x, const(0, x)), x, _edges(whole, combined(e, f)))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2."""
    e, f = _parts(x)
    if x.dtype is dtypes.float32:
        bend = fma(f, series(table.LOG32, f), -0.5)
        return _edges(x, fma(fma(mul(f, f), bend, f), table.LOG2_E_64[0], e))
    return _edges(x, _to_base(f, table.LOG2_E_64, e, const(0, e)))


def log10(x: Expr) -> Expr:
    """The logarithm to base 10, of float64."""
    e, f = _parts(x)
    high, low = table.LOG10_2_64
    whole = mul(e, const(high, e))
    rest = fma(e, low, fma(e, high, negative(whole)))
    return _edges(x, _to_base(f, table.LOG10_E_64, whole, rest))


def _parts(x: Expr) -> tuple[Expr, Expr]:
    """(e, f) with x = 2**e * (1 + f) for a positive x, subnormal ones included."""
    form = format_of(x)
    lift = form.mantissa + 1
    subnormal = lt(x, const(2.0 ** (1 - form.bias), x))
    e, m, _ = split(select(subnormal, mul(x, const(2.0**lift, x)), x), form)
    return select(subnormal, sub(e, const(lift, e)), e), sub(m, const(1, m))


def _to_base(f: Expr, factor: tuple[float, float], whole: Expr, rest: Expr) -> Expr:
    """whole + rest + log(1 + f) * factor in float64, where whole is 0 or the larger."""
    s = div(f, add(f, const(2, f)))
    z = mul(s, s)
    bend = mul(s, fma(negative(z), series(table.LOG64, z), f))
    high = sub(f, bend)
    low = sub(sub(f, high), bend)  # what the difference lost
    product = mul(high, const(factor[0], f))
    lost = fma(high, factor[0], negative(product))
    below = add(lost, fma(high, factor[1], mul(low, const(factor[0], f))))
    total = add(whole, product)
    missing = add(sub(whole, total), product)
    return add(total, add(missing, add(below, rest)))


def _edges(x: Expr, result: Expr) -> Expr:
    """log of 0 is -inf, of less NaN, of inf and NaN themselves."""
    below = select(eq(x, const(0, x)), const(-math.inf, x), const(math.nan, x))
    result = select(lt(x, const(math.inf, x)), result, x)
    return select(le(x, const(0, x)), below, result)
