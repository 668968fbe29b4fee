"""Functions whose values at zeros, infinities and NaN the standard fixes, beyond torch's rules."""

from __future__ import annotations

from typing import Any

from ridgeline.array_api.array import Array, call, need_array, together
from ridgeline.array_api.types import FLOATED, NUMERIC, REAL, require
from ridgeline.tensors.tensor import Tensor


def _complex(real: Tensor, imag: Tensor) -> Array:
    return call("complex", real, imag)


def _where(condition: Tensor, yes: Tensor, no: Tensor) -> Array:
    return call("where", condition, yes, no)


def floor_divide(x1: Any, x2: Any, /) -> Array:
    """The quotient rounded down; with an infinite operand, the rounded quotient of the two."""
    a, b = together("floor_divide", REAL, x1, x2)
    quotient = call("floor_divide", a, b)
    if not a.dtype.is_floating_point:
        return quotient
    infinite = call("logical_or", call("isinf", a), call("isinf", b))
    return _where(infinite, call("floor", call("div", a, b)), quotient)


def remainder(x1: Any, x2: Any, /) -> Array:
    """The remainder with the sign of the divisor, also where it is zero."""
    a, b = together("remainder", REAL, x1, x2)
    rest = call("remainder", a, b)
    if not a.dtype.is_floating_point:
        return rest
    return _where(call("eq", rest, 0.0), call("copysign", rest, b), rest)


def expm1(x: Tensor, /) -> Array:
    """exp(x) - 1, accurate near 0."""
    require("expm1", need_array("expm1", x).dtype, FLOATED)
    result = call("expm1", x)
    if x.dtype.kind != "complex":
        return result
    grown = call("exp", x)  # at infinities and NaN the exponential has the parts that are wanted
    real, imag = call("real", result), call("imag", result)
    finite = call("isfinite", x)
    return _complex(
        _where(finite, call("add", real, 0.0), call("sub", call("real", grown), 1.0)),
        _where(finite, imag, call("imag", grown)),
    )


def tanh(x: Tensor, /) -> Array:
    """The hyperbolic tangent; far out a complex one keeps the sign of its imaginary part."""
    require("tanh", need_array("tanh", x).dtype, FLOATED)
    result = call("tanh", x)
    if x.dtype.kind != "complex":
        return result
    real, imag = call("real", x), call("imag", x)
    outside = call("logical_and", call("isinf", real), call("isfinite", imag))
    vanished = call("copysign", call("zeros_like", imag), imag)
    return _complex(call("real", result), _where(outside, vanished, call("imag", result)))


def sign(x: Tensor, /) -> Array:
    """-1, 0, 1 or NaN; of complex numbers, the number divided by its magnitude."""
    require("sign", need_array("sign", x).dtype, NUMERIC)
    if x.dtype.kind != "complex":
        result = call("sign", x)
        return _where(call("isnan", x), x, result) if x.dtype.kind == "float" else result
    zero = call("eq", x, call("zeros_like", x))
    return _where(zero, call("zeros_like", x), call("sgn", x))


def round(x: Tensor, /) -> Array:
    """Rounded to the nearest, ties to even; complex numbers part by part."""
    require("round", need_array("round", x).dtype, NUMERIC)
    if x.dtype.kind != "complex":
        return call("round", x)
    return _complex(call("round", call("real", x)), call("round", call("imag", x)))
