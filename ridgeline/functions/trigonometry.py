"""Inverse trigonometric and hyperbolic functions, angles, and decompositions of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ridgeline import dtypes
from ridgeline.errors import DTypeError
from ridgeline.functions.arithmetic import clamp, mul, truth
from ridgeline.functions.operands import Operand, align, as_float, floating, pair, result_type
from ridgeline.functions.pointwise import function_of_one
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node, proj
from ridgeline.ops.complex import real
from ridgeline.ops.elementwise import apply, cast, full_like, select
from ridgeline.ops.math import exp, exp2, isnan, log1p, maximum, signed, trunc
from ridgeline.ops.special import bits_gcd, next_after, split_exponent

_FURTHEST_POWERS = {dtypes.float32: 300.0, dtypes.float64: 2200.0}


def floats(input: Operand, other: Operand) -> tuple[Node, Node]:
    """Two operands in one floating type and one shape."""
    a, b = align(input, other, dtype=floating(result_type(input, other)))
    return a, b


def arctangent2(y: Node, x: Node) -> Node:
    """The angle of (x, y), for nodes of one type and shape."""
    return apply("atan2", y, x)


asin = function_of_one("asin", "The inverse sine.", "arcsin")
acos = function_of_one("acos", "The inverse cosine.", "arccos")
atan = function_of_one("atan", "The inverse tangent.", "arctan")
asinh = function_of_one("asinh", "The inverse hyperbolic sine.", "arcsinh")
acosh = function_of_one("acosh", "The inverse hyperbolic cosine.", "arccosh")
atanh = function_of_one("atanh", "The inverse hyperbolic tangent.", "arctanh")


@public("arctan2", inplace=True)
def atan2(input: Node, other: Node) -> Node:
    """The angle of the point (other, input)."""
    return apply("atan2", *floats(input, other))


@public(inplace=True)
def hypot(input: Node, other: Node) -> Node:
    """sqrt(input**2 + other**2), without overflow."""
    return apply("hypot", *floats(input, other))


@public(inplace=True)
def deg2rad(input: Node) -> Node:
    """Degrees as radians."""
    return as_float(input) * (math.pi / 180)


@public(inplace=True)
def rad2deg(input: Node) -> Node:
    """Radians as degrees."""
    return as_float(input) * (180 / math.pi)


@public(inplace=True)
def copysign(input: Operand, other: Operand) -> Node:
    """The magnitude of one number with the sign of another."""
    return apply("copysign", *floats(input, other))


@public()
def signbit(input: Node) -> Node:
    """True where the sign is negative, at -0.0 too."""
    if input.dtype.is_complex:
        raise DTypeError("signbit is not defined for complex tensors")
    x = cast(input, dtypes.int64) if input.dtype is dtypes.bool_ else input
    if x.dtype.is_floating_point:
        x = signed(x)
    return x < 0


@public(inplace=True)
def nextafter(input: Node, other: Node) -> Node:
    """The next representable number in the direction of `other`."""
    return next_after(*pair(input, other))


class MantissaExponent(NamedTuple):
    """A mantissa in [0.5, 1) and a power of two."""

    mantissa: Node
    exponent: Node


@public()
def frexp(input: Node) -> MantissaExponent:
    """input = mantissa * 2 ** exponent."""
    both = split_exponent(input)
    return MantissaExponent(proj(both, 0), proj(both, 1))


@public(inplace=True, wide=True)
def ldexp(input: Node, other: Node) -> Node:
    """input * 2 ** other."""
    x, power = floats(input, other)
    if x.dtype.is_complex:
        return mul(x, 2**power)
    # beyond these there is nothing but 0 and infinity; a third of the way leads past neither
    furthest = _FURTHEST_POWERS[x.dtype]
    power = clamp(power, -furthest, furthest)
    third = trunc(power * (1 / 3))
    step = exp2(third)
    rest = exp2(power - third * 2.0)
    return mul(mul(mul(x, step), step), rest)


@public(inplace=True)
def heaviside(input: Node, values: Node) -> Node:
    """0 below zero, 1 above it, `values` at it."""
    if input.dtype is not values.dtype:
        raise DTypeError(
            f"heaviside needs operands of one type, got {input.dtype.name} and {values.dtype.name}"
        )
    x, middle = pair(input, values)
    if x.dtype is dtypes.bool_:
        return x | middle
    step = cast(x > 0, x.dtype)
    return select(x.eq(0), middle, step)


@public(inplace=True)
def gcd(input: Node, other: Node) -> Node:
    """The greatest common divisor."""
    return bits_gcd(*pair(input, other))


@public(inplace=True)
def lcm(input: Node, other: Node) -> Node:
    """The least common multiple."""
    a, b = pair(input, other)
    divisor = bits_gcd(a, b)
    safe = select(truth(divisor), divisor, full_like(divisor, 1))
    product = a // safe * b
    return product if a.dtype.kind == "uint" else abs(product)


@public()
def fmax(input: Node, other: Node) -> Node:
    """The larger of two; a number wins over NaN."""
    return _number_wins(input, other, "lt")


@public()
def fmin(input: Node, other: Node) -> Node:
    """The smaller of two; a number wins over NaN."""
    return _number_wins(input, other, "gt")


def _number_wins(input: Node, other: Node, worse: str) -> Node:
    a, b = pair(input, other)
    if a.dtype is dtypes.bool_:
        return apply("or" if worse == "lt" else "and", a, b)
    if a.dtype.is_complex:
        raise DTypeError("fmax and fmin are not defined for complex tensors")
    beaten = a < b if worse == "lt" else b < a
    if not a.dtype.is_floating_point:
        return select(beaten, b, a)
    return select(beaten | isnan(a), b, a)


@public()
def logaddexp(input: Node, other: Node) -> Node:
    """log(exp(input) + exp(other)), without overflow."""
    a, b = floats(input, other)
    if a.dtype.is_complex:
        first = real(b) <= real(a)
        high, low = select(first, a, b), select(first, b, a)
        return high + log1p(exp(low - high))
    return _above_the_larger(a, b, lambda gap: log1p(exp(gap)))


@public()
def logaddexp2(input: Node, other: Node) -> Node:
    """log2(2 ** input + 2 ** other), without overflow."""
    a, b = floats(input, other)
    if a.dtype.is_complex:
        both = logaddexp(a * math.log(2), b * math.log(2))
        return both * (1 / math.log(2))
    return _above_the_larger(a, b, _binary_excess)


def _binary_excess(gap: Node) -> Node:
    """log2(1 + 2 ** gap), which is 1 at 0."""
    excess = log1p(exp2(gap)) / full_like(gap, math.log(2))
    return select(gap.eq(0), full_like(gap, 1), excess)


def _above_the_larger(a: Node, b: Node, excess: Callable[[Node], Node]) -> Node:
    """The larger number plus an excess by the gap to the smaller one, which is not positive.

    In float64, rounded once: the sum may cancel.
    """
    own = a.dtype
    a, b = cast(a, dtypes.float64), cast(b, dtypes.float64)
    top = maximum(a, b)
    infinite = abs(top).eq(full_like(top, math.inf))
    gap = -abs(a - b)
    safe = select(infinite, full_like(gap, 0), gap)
    return cast(select(infinite, top, top + excess(safe)), own)


@public()
def isposinf(input: Node) -> Node:
    """True at positive infinity."""
    return _is_infinity(input, math.inf)


@public()
def isneginf(input: Node) -> Node:
    """True at negative infinity."""
    return _is_infinity(input, -math.inf)


def _is_infinity(input: Node, which: float) -> Node:
    if input.dtype.is_complex:
        raise DTypeError("complex infinities have no sign")
    if not input.dtype.is_floating_point:
        return input.ne(input)
    return input.eq(which)
