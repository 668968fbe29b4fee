"""The same bits read as another element type: `x.view(dtype)`, and complex numbers as pairs.

The last axis grows or shrinks where the types differ in size. Between complex numbers and their
parts this is linear and its own transpose; between other types it has no derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.errors import ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.sizes import Size
from ridgeline.ops.batching import leading
from ridgeline.ops.complex import complex_of, real_of
from ridgeline.ops.movement import reshape, slice_
from ridgeline.scalars import Array

Parts = Sequence[Node | None]


@dataclass(frozen=True, slots=True)
class ReinterpretAttrs(Attrs):
    """The element types before and after."""

    source: DType
    target: DType


def reinterpret(a: Node, dtype: DType) -> Node:
    """The bits of `a` as another element type."""
    return a if a.dtype is dtype else node(REINTERPRET, (a,), ReinterpretAttrs(a.dtype, dtype))


def parts_alias(a: Node) -> Node:
    """The memory of complex numbers as that of their parts, along a new last axis."""
    return node(ALIAS, (a,), ReinterpretAttrs(a.dtype, real_of(a.dtype)))


def whole_alias(a: Node) -> Node:
    """The memory of pairs along the last axis as that of complex numbers without it."""
    return node(ALIAS, (a,), ReinterpretAttrs(a.dtype, complex_of(a.dtype)))


def pairs_of(a: Node) -> Node:
    """Complex numbers as pairs of their parts along a new last axis."""
    return reinterpret(reshape(a, (*a.shape, 1)), real_of(a.dtype))


def part_of(a: Node, part: int) -> Node:
    """The real (0) or imaginary (1) parts of complex numbers, where they lie in memory."""
    rank = len(a.shape)
    cut = slice_(pairs_of(a), (*(0,) * rank, part), (*a.shape, 1), (1,) * (rank + 1))
    return reshape(cut, a.shape)


def seen_shape(shape: tuple[Size, ...], attrs: ReinterpretAttrs) -> tuple[Size, ...]:
    """The shape that the bits have as the new type."""
    old, new = attrs.source, attrs.target
    if old.itemsize == new.itemsize:
        return shape
    if not shape:
        raise ShapeError(
            f"a 0-d tensor of {old.name} cannot be seen as {new.name}: the types differ in size"
        )
    length = shape[-1] * old.itemsize
    if length % new.itemsize != 0:
        raise ShapeError(
            f"a last axis of {shape[-1]} elements of {old.name} is no whole number of {new.name}"
        )
    return (*shape[:-1], length // new.itemsize)


def _infer(types: Sequence[TensorType], attrs: ReinterpretAttrs) -> tuple[TensorType, ...]:
    shape = seen_shape(types[0].shape, attrs)
    return (TensorType(shape, attrs.target, types[0].device),)


def _infer_alias(types: Sequence[TensorType], attrs: ReinterpretAttrs) -> tuple[TensorType, ...]:
    shape = types[0].shape
    seen = (*shape, 2) if attrs.source.is_complex else shape[:-1]
    return (TensorType(seen, attrs.target, types[0].device),)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    dense = np.ascontiguousarray(inputs[0]).reshape(inputs[0].shape)
    return (dense.view(current.attrs.target.numpy).reshape(current.shape),)


def _derivative(current: Node, parts: Parts) -> list[Node | None]:
    source, target = current.attrs.source, current.attrs.target
    part = parts[0]
    if part is None or not source.is_differentiable or real_of(source) is not real_of(target):
        return [None]
    return [reinterpret(part, source if part.dtype is target else target)]


# what the compiler makes of complex values: other names for one piece of memory, never computed
ALIAS = Op("alias", "movement", _infer_alias, _value, batch=leading)
REINTERPRET = Op(
    "reinterpret", "library", _infer, _value, _derivative, _derivative, leading, linear=((0,),)
)
