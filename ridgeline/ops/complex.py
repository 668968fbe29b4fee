"""Complex numbers: conjugate, parts, magnitude, angle, and pairs of reals as one number.

Gradients follow torch: the cotangent of z = x + iy is dL/dx + i dL/dy. A holomorphic op multiplies
cotangents by the conjugate of its derivative; the ops here are the ones that are not holomorphic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.ops.batching import leading
from ridgeline.scalars import Array

Parts = Sequence[Node | None]


def real_of(dtype: DType) -> DType:
    """The type of the parts of a complex type; a real type is its own."""
    if dtype.kind != "complex":
        return dtype
    return dtypes.float64 if dtype is dtypes.complex128 else dtypes.float32


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts hold a real type."""
    if dtype.kind == "complex":
        return dtype
    return dtypes.complex128 if dtype is dtypes.float64 else dtypes.complex64


def conj(a: Node) -> Node:
    """The conjugate; a real node is its own."""
    if a.dtype.kind != "complex":
        return a
    return a.inputs[0] if a.op is CONJ else node(CONJ, (a,))


def real(a: Node) -> Node:
    """The real part."""
    return a if a.dtype.kind != "complex" else node(REAL, (a,))


def imag(a: Node) -> Node:
    """The imaginary part of a complex node."""
    return node(IMAG, (a,))


def join(x: Node, y: Node) -> Node:
    """x + iy."""
    return node(JOIN, (x, y))


def magnitude(a: Node) -> Node:
    """|a| of a complex node, as a real node."""
    return node(MAGNITUDE, (a,))


def _needs_complex(types: Sequence[TensorType], attrs: Attrs) -> TensorType:
    if types[0].dtype.kind != "complex":
        raise DTypeError(f"expected a complex type, got {types[0].dtype.name}")
    return types[0]


def _infer_same(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (_needs_complex(types, attrs),)


def _infer_real(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    source = _needs_complex(types, attrs)
    return (TensorType(source.shape, real_of(source.dtype), source.device),)


def _infer_join(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    x, y = types
    if x.shape != y.shape:
        raise ShapeError(f"parts of shapes {list(x.shape)} and {list(y.shape)} do not fit")
    if x.dtype is not y.dtype or x.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(
            f"complex numbers are made of two float32 or float64 parts, not {x.dtype.name} and "
            f"{y.dtype.name}"
        )
    return (TensorType(x.shape, complex_of(x.dtype), x.device),)


def _join_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    result = np.empty(inputs[0].shape, current.dtype.numpy)
    result.real, result.imag = inputs
    return (result,)


def _conj_rule(current: Node, parts: Parts) -> list[Node | None]:
    return [None if parts[0] is None else conj(parts[0])]


def _real_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else join(ct, ct.full_like(0))]


def _real_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    return [None if tangents[0] is None else real(tangents[0])]


def _imag_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else join(ct.full_like(0), ct)]


def _imag_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    return [None if tangents[0] is None else imag(tangents[0])]


def _join_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct = cotangents[0]
    return [None, None] if ct is None else [real(ct), imag(ct)]


def _join_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    if all(t is None for t in tangents):
        return [None]
    x, y = (i.full_like(0) if t is None else t for t, i in zip(tangents, current.inputs))
    return [join(x, y)]


def unit(a: Node) -> Node:
    """a / |a|, and 0 at 0; differentiable through its parts."""
    size = magnitude(a)
    zero = size.eq(0)
    safe = zero.select(size.full_like(1), size)
    return zero.select(a.full_like(0), a / safe.cast(a.dtype))


def _magnitude_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, a = cotangents[0], current.inputs[0]
    return [None if ct is None else ct.cast(a.dtype) * unit(a)]


def _magnitude_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, a = tangents[0], current.inputs[0]
    return [None if tangent is None else real(conj(unit(a)) * tangent)]


CONJ = Op(
    "conj", "pointwise", _infer_same, lambda n, i: (np.conj(i[0]),), _conj_rule, _conj_rule,
    leading, linear=((0,),),
)  # fmt: skip
REAL = Op(
    "real", "pointwise", _infer_real, lambda n, i: (i[0].real,), _real_vjp, _real_jvp, leading,
    linear=((0,),),
)  # fmt: skip
IMAG = Op(
    "imag", "pointwise", _infer_real, lambda n, i: (i[0].imag,), _imag_vjp, _imag_jvp, leading,
    linear=((0,),),
)  # fmt: skip
JOIN = Op(
    "complex", "pointwise", _infer_join, _join_value, _join_vjp, _join_jvp, leading,
    linear=((0, 1),),
)  # fmt: skip
MAGNITUDE = Op(
    "magnitude", "pointwise", _infer_real, lambda n, i: (np.abs(i[0]),),
    _magnitude_vjp, _magnitude_jvp, leading,
)  # fmt: skip
