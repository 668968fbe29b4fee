"""Complex numbers: parts, conjugates, angles, and complex tensors from real ones."""

from __future__ import annotations

import math

from ridgeline import dtypes
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.functions.operands import as_float, pair
from ridgeline.functions.pointwise import sign
from ridgeline.functions.registry import public
from ridgeline.functions.trigonometry import arctangent2
from ridgeline.graph.node import Node
from ridgeline.ops import complex as parts
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.math import cos, isnan, sin
from ridgeline.ops.movement import reshape
from ridgeline.ops.reinterpret import pairs_of, part_of, reinterpret


def is_complex_node(node: Node) -> bool:
    """True where a node holds complex numbers."""
    return node.dtype.kind == "complex"


@public("conj_physical", shares=True)
def conj(input: Node) -> Node:
    """The complex conjugate; a real tensor is its own."""
    return parts.conj(input)


@public("resolve_conj", shares=True)
def resolve_neg(input: Node) -> Node:
    """The tensor itself: negation and conjugation are never pending here."""
    return input


@public(view=True, method=False, shares=True)
def real(input: Node) -> Node:
    """The real part; a view."""
    return part_of(input, 0) if is_complex_node(input) else input


@public(view=True, method=False)
def imag(input: Node) -> Node:
    """The imaginary part; a view."""
    if not is_complex_node(input):
        raise DTypeError(f"imag needs complex values, got {input.dtype.name}")
    return part_of(input, 1)


@public(name="complex", method=False)
def complex_(real: Node, imag: Node) -> Node:
    """real + i * imag."""
    if real.dtype is not imag.dtype:
        raise DTypeError(
            f"complex needs parts of one type, got {real.dtype.name} and {imag.dtype.name}"
        )
    return parts.join(*pair(real, imag))


@public(method=False)
def polar(abs: Node, angle: Node) -> Node:
    """The numbers of a given magnitude and angle."""
    if abs.dtype is not angle.dtype:
        raise DTypeError(
            f"polar needs operands of one type, got {abs.dtype.name} and {angle.dtype.name}"
        )
    size, turn = pair(abs, angle)
    x = size * cos(turn)
    return parts.join(x, size * sin(turn))


@public(view=True, method=False)
def view_as_real(input: Node) -> Node:
    """Real and imaginary parts along a new last axis; a view."""
    if not is_complex_node(input):
        raise DTypeError(f"view_as_real needs complex values, got {input.dtype.name}")
    return pairs_of(input)


@public(view=True, method=False)
def view_as_complex(input: Node) -> Node:
    """Pairs along the last axis as complex numbers; a view."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"view_as_complex needs float32 or float64, got {input.dtype.name}")
    if not input.shape or input.shape[-1] != 2:
        raise ShapeError(f"view_as_complex needs a last axis of size 2, got {list(input.shape)}")
    pairs = reinterpret(input, parts.complex_of(input.dtype))
    return reshape(pairs, input.shape[:-1])


@public()
def angle(input: Node) -> Node:
    """The angle of complex numbers; of real ones, 0 or pi by their sign."""
    if is_complex_node(input):
        x, y = parts.real(input), parts.imag(input)
        origin = x.eq(0) & y.eq(0)
        safe = select(origin, x + 1, x)  # no NaN in the gradient at 0
        return select(origin, arctangent2(y, x), arctangent2(y, safe))
    x = as_float(input)
    turned = select(x < 0, full_like(x, math.pi), full_like(x, 0))
    return select(isnan(x), x, turned)


@public(inplace=True)
def sgn(input: Node) -> Node:
    """The sign; of complex numbers, the number divided by its magnitude."""
    return parts.unit(input) if is_complex_node(input) else sign(input)


@public()
def isreal(input: Node) -> Node:
    """True where the imaginary part is 0."""
    imaginary = parts.imag(input) if is_complex_node(input) else full_like(input, False)
    return imaginary.eq(0)


@public(function=False)
def cfloat(input: Node) -> Node:
    """The values as complex64."""
    return cast(input, dtypes.complex64)


@public(function=False)
def cdouble(input: Node) -> Node:
    """The values as complex128."""
    return cast(input, dtypes.complex128)
