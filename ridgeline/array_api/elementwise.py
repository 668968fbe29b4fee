"""Element by element: the standard's functions, from two tables of names and kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.array_api.array import Array, as_array, call, converted, need_array, together
from ridgeline.array_api.types import (
    ANY,
    BITS,
    BOOL,
    FLOATED,
    INTEGER,
    NUMERIC,
    REAL,
    REAL_FLOATING,
    held_by,
    require,
    result_type,
)
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor

Unary = Callable[[Tensor], Array]
Binary = Callable[[Any, Any], Array]


def _dressed(function: Any, name: str, source: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"As `ridgeline.{source}`, element by element, under the standard's rules."
    return function


def _unary(name: str, kinds: frozenset[str], source: str = "") -> Unary:
    own = source or name

    def function(x: Tensor, /) -> Array:
        require(name, need_array(name, x).dtype, kinds)
        return call(own, x)

    made: Unary = _dressed(function, name, own)
    return made


def _binary(name: str, kinds: frozenset[str], source: str = "") -> Binary:
    own = source or name

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = together(name, kinds, x1, x2)
        return as_array(FUNCTIONS[own](a, b))

    made: Binary = _dressed(function, name, own)
    return made


abs = _unary("abs", NUMERIC)
acos = _unary("acos", FLOATED)
acosh = _unary("acosh", FLOATED)
asin = _unary("asin", FLOATED)
asinh = _unary("asinh", FLOATED)
atan = _unary("atan", FLOATED)
atanh = _unary("atanh", FLOATED)
bitwise_invert = _unary("bitwise_invert", BITS, "bitwise_not")
ceil = _unary("ceil", REAL)
conj = _unary("conj", NUMERIC)
cos = _unary("cos", FLOATED)
cosh = _unary("cosh", FLOATED)
exp = _unary("exp", FLOATED)
floor = _unary("floor", REAL)
imag = _unary("imag", frozenset(("complex",)))
isfinite = _unary("isfinite", NUMERIC)
isinf = _unary("isinf", NUMERIC)
isnan = _unary("isnan", NUMERIC)
log = _unary("log", FLOATED)
log1p = _unary("log1p", FLOATED)
log2 = _unary("log2", FLOATED)
log10 = _unary("log10", FLOATED)
logical_not = _unary("logical_not", BOOL)
negative = _unary("negative", NUMERIC, "neg")
reciprocal = _unary("reciprocal", FLOATED)
signbit = _unary("signbit", REAL_FLOATING)
sin = _unary("sin", FLOATED)
sinh = _unary("sinh", FLOATED)
sqrt = _unary("sqrt", FLOATED)
square = _unary("square", NUMERIC)
tan = _unary("tan", FLOATED)
trunc = _unary("trunc", REAL)

add = _binary("add", NUMERIC)
atan2 = _binary("atan2", REAL_FLOATING)
bitwise_and = _binary("bitwise_and", BITS)
bitwise_left_shift = _binary("bitwise_left_shift", INTEGER)
bitwise_or = _binary("bitwise_or", BITS)
bitwise_right_shift = _binary("bitwise_right_shift", INTEGER)
bitwise_xor = _binary("bitwise_xor", BITS)
copysign = _binary("copysign", REAL_FLOATING)
divide = _binary("divide", NUMERIC, "div")
equal = _binary("equal", ANY, "eq")
greater = _binary("greater", REAL, "gt")
greater_equal = _binary("greater_equal", REAL, "ge")
hypot = _binary("hypot", REAL_FLOATING)
less = _binary("less", REAL, "lt")
less_equal = _binary("less_equal", REAL, "le")
logaddexp = _binary("logaddexp", REAL_FLOATING)
logical_and = _binary("logical_and", BOOL)
logical_or = _binary("logical_or", BOOL)
logical_xor = _binary("logical_xor", BOOL)
maximum = _binary("maximum", REAL)
minimum = _binary("minimum", REAL)
multiply = _binary("multiply", NUMERIC, "mul")
nextafter = _binary("nextafter", REAL_FLOATING)
not_equal = _binary("not_equal", ANY, "ne")
pow = _binary("pow", NUMERIC)
subtract = _binary("subtract", NUMERIC, "sub")


def positive(x: Tensor, /) -> Array:
    """The same values."""
    require("positive", need_array("positive", x).dtype, NUMERIC)
    return as_array(x.clone())


def real(x: Tensor, /) -> Array:
    """The real parts; real values as they are."""
    require("real", need_array("real", x).dtype, NUMERIC)
    return call("real", x) if x.dtype.kind == "complex" else as_array(x.clone())


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Array:
    """Values held between `min` and `max`, in the element type of `x` if it can hold the bounds."""
    require("clip", need_array("clip", x).dtype, REAL)
    bounds = [None if b is None else converted(b, result_type(x, b)) for b in (min, max)]
    held = as_array(x.clone())
    if bounds[0] is not None:
        held = call("maximum", *_widened(held, bounds[0]))
    if bounds[1] is not None:
        held = call("minimum", *_widened(held, bounds[1]))
    return as_array(held.to(x.dtype) if held_by(held.dtype, x.dtype) else held)


def _widened(x: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    dtype = result_type(x, bound)
    return x.to(dtype), bound.to(dtype)
