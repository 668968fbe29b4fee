"""The special functions, elementwise, with their derivatives.

Values are NumPy's in float64, rounded once to the element type. Those with a scalar row are part of
kernels; the polynomials and a few more (family "library") are library calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import leading
from ridgeline.ops.elementwise import (
    Derivative,
    apply,
    cast,
    conjugated,
    full_like,
    jvp_from,
    scale,
    select,
    vjp_from,
)
from ridgeline.ops.math import exp, log, reciprocal
from ridgeline.ops.values import polynomials
from ridgeline.scalars import Array

_REAL = ("float",)
_ROOT_PI = math.sqrt(math.pi)
_LARGEST_FACTORIAL = 170  # whose value is finite in float64


def special(name: str, *inputs: Node) -> Node:
    """One function by name; all operands have one shape and type."""
    return node(ROWS[name], inputs)


def polygamma(order: int, x: Node) -> Node:
    """The derivative of digamma of some order, in float64: its factor may be beyond float32."""
    if order == 0:
        return special("digamma", x)
    wide = cast(x, dtypes.float64)
    factor = math.factorial(order) if order <= _LARGEST_FACTORIAL else math.inf
    value = special("zeta", full_like(wide, order + 1), wide)
    return cast(scale(value, factor if order % 2 else -factor), x.dtype)


def _infer(kinds: Sequence[str], name: str, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    first = types[0]
    if any(t.shape != first.shape or t.dtype is not first.dtype for t in types):
        raise ShapeError(f"{name} needs operands of one shape and type, got {list(types)}")
    if first.dtype.kind not in kinds:
        raise DTypeError(f"{name} is not defined for {first.dtype.name}")
    return (first,)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _row(
    name: str,
    function: Callable[..., Any],
    derivative: Derivative | None = None,
    fixed: tuple[int, ...] = (),
) -> Op:
    def value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
        with float_errors_ignored():
            result = function(*(_wide(array) for array in inputs))
            return (np.asarray(result).astype(current.dtype.numpy),)

    return Op(
        name,
        "pointwise" if name in scalars.SPECIAL else "library",
        lambda types, attrs: _infer(_REAL, name, types),
        value,
        vjp_from(conjugated(derivative)) if derivative else None,
        jvp_from(derivative) if derivative else None,
        leading,
        fixed=fixed,
    )


def _scalar(name: str, derivative: Derivative | None = None, fixed: tuple[int, ...] = ()) -> Op:
    """A function that kernels have: its value is that of its scalar row."""
    return _row(name, scalars.TABLE[name].numpy, derivative, fixed)


def _of(slope: Callable[[Node], Node]) -> Derivative:
    """A derivative that is a function of the operand alone."""
    return lambda current, i, t: t * slope(current.inputs[0])


def _square(x: Node) -> Node:
    return x * x


def _plus(x: Node, number: float) -> Node:
    return x + number


def _over(numerator: Node, x: Node, at_zero: float) -> Node:
    """numerator / x, with a given value at 0."""
    zero = x.eq(0)
    return select(zero, full_like(x, at_zero), numerator / select(zero, full_like(x, 1), x))


def _zeta_rule(current: Node, i: int, t: Node) -> Node | None:
    x, q = current.inputs
    if i == 0:
        return None
    return -(t * (x * special("zeta", _plus(x, 1), q)))


def _gammainc_rule(sign: float) -> Derivative:
    def rule(current: Node, i: int, t: Node) -> Node | None:
        a, x = current.inputs
        if i == 0:
            return None
        density = _plus(a, -1) * log(x) - x - special("lgamma", a)
        return t * exp(density) * sign

    return rule


def _i1_slope(x: Node) -> Node:
    return special("i0", x) - _over(special("i1", x), x, 0.5)


def _i0e_slope(x: Node) -> Node:
    return special("i1e", x) - apply("sign", x) * special("i0e", x)


def _i1e_slope(x: Node) -> Node:
    i1e = special("i1e", x)
    zero = x.eq(0)
    slope = special("i0e", x) - (apply("sign", x) * i1e + _over(i1e, x, 0))
    return select(zero, full_like(x, 0.5), slope)


def _log_ndtr_slope(x: Node) -> Node:
    return reciprocal(special("erfcx", x * (-1 / math.sqrt(2)))) * math.sqrt(2 / math.pi)


_ROWS = (
    _scalar("erfc", _of(
        lambda x: exp(-_square(x)) * (-2 / _ROOT_PI))),
    _scalar("erfcx", lambda current, i, t: (
        t * _plus(current.inputs[0] * current * 2, -2 / _ROOT_PI))),
    _scalar("erfinv", lambda current, i, t: t * exp(_square(current)) * (_ROOT_PI / 2)),
    _scalar("ndtri", lambda current, i, t: (
        t * exp(_square(current) * 0.5) * math.sqrt(2 * math.pi))),
    _scalar("ndtr", _of(lambda x: exp(_square(x) * -0.5) * (1 / math.sqrt(2 * math.pi)))),
    _scalar("log_ndtr", _of(_log_ndtr_slope)),
    _scalar("lgamma", _of(lambda x: special("digamma", x))),
    _scalar("digamma", _of(lambda x: polygamma(1, x))),
    _scalar("zeta", _zeta_rule, fixed=(0,)),
    _scalar("gammainc", _gammainc_rule(1.0), fixed=(0,)),
    _scalar("gammaincc", _gammainc_rule(-1.0), fixed=(0,)),
    _scalar("i0", _of(lambda x: special("i1", x))),
    _scalar("i1", _of(_i1_slope)),
    _scalar("i0e", _of(_i0e_slope)),
    _scalar("i1e", _of(_i1e_slope)),
    _scalar("j0", _of(lambda x: -special('j1', x))),
    _scalar("j1", _of(
        lambda x: special('j0', x) - _over(special('j1', x), x, 0.5))),
    _scalar("y0", _of(lambda x: -special('y1', x))),
    _scalar("y1", _of(
        lambda x: special('y0', x) - special('y1', x) / x)),
    _scalar("k0", _of(lambda x: -special('k1', x))),
    _scalar("k1", _of(
        lambda x: -(special('k0', x) + special('k1', x) / x))),
    _scalar("k0e", _of(
        lambda x: special('k0e', x) - special('k1e', x))),
    _scalar("k1e", _of(
        lambda x: special('k1e', x) - (special('k0e', x) + special('k1e', x) / x))),
    _scalar("airy_ai"),
    _scalar("spherical_bessel_j0"),
    *(
        _row(name, lambda x, n, name=name: polynomials.polynomial(name, x, n))
        for name in (*polynomials.NAMES, *polynomials.SHIFTED)
    ),
)  # fmt: skip
ROWS: dict[str, Op] = {row.name: row for row in _ROWS}


def next_after(x: Node, towards: Node) -> Node:
    """The neighbour of x in the direction of another number."""
    return node(NEXT_AFTER, (x, towards))


def _next_after_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (np.nextafter(*inputs),)


def split_exponent(x: Node) -> Node:
    """Both outputs of frexp: a mantissa in [0.5, 1) and a power of two."""
    return node(SPLIT_EXPONENT, (x,))


def _infer_split(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    (source,) = _infer(_REAL, "frexp", types)
    return (source, TensorType(source.shape, dtypes.int32, source.device))


def _split_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    mantissa, exponent = np.frexp(_wide(inputs[0]))
    return mantissa.astype(current.dtype.numpy), exponent.astype(np.int32)


def _power_of(current: Node) -> Node:
    exponent = cast(proj(current, 1), current.dtype)
    return exp(-exponent * math.log(2))


def _split_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else ct * _power_of(current)]


def _split_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    t = tangents[0]
    return [None if t is None else t * _power_of(current), None]


def bits_gcd(a: Node, b: Node) -> Node:
    """The greatest common divisor of integers."""
    return node(GCD, (a, b))


GCD = Op(
    "gcd",
    "library",
    lambda types, attrs: _infer(("int", "uint"), "gcd", types),
    lambda current, inputs: (np.gcd(*inputs),),
    batch=leading,
)
NEXT_AFTER = Op(
    "nextafter",
    "library",
    lambda types, attrs: _infer(_REAL, "nextafter", types),
    _next_after_value,
    vjp_from(lambda current, i, t: t if i == 0 else None),
    jvp_from(lambda current, i, t: t if i == 0 else None),
    leading,
    linear=((0, 1),),
)
SPLIT_EXPONENT = Op("frexp", "library", _infer_split, _split_value, _split_vjp, _split_jvp, leading)
