"""Sorting along one axis: values and where they came from; stable, NaN above everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import DTypeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.gather import gather_along, scatter_along
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class SortAttrs(Attrs):
    """The axis, and whether the largest element comes first."""

    axis: int
    descending: bool


def sort(a: Node, axis: int, descending: bool = False) -> tuple[Node, Node]:
    """The elements in order along an axis, and the index that each had before."""
    both = node(SORT, (a,), SortAttrs(axis, descending))
    return proj(both, 0), proj(both, 1)


def _infer(types: Sequence[TensorType], attrs: SortAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.is_complex:
        raise DTypeError(f"{source.dtype.name} values have no order", help="sort x.abs() instead")
    return (source, TensorType(source.shape, dtypes.int64, source.device))


def stable_order(array: Array, axis: int, descending: bool) -> Array:
    """The permutation that sorts; equal elements keep their order in both directions."""
    narrow = array.dtype.kind == "V" or array.dtype == np.float16
    keys = array.astype(np.float32) if narrow else array
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    turned = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    order: Array = array.shape[axis] - 1 - np.flip(turned, axis)
    return order


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    order = stable_order(inputs[0], attrs.axis, attrs.descending).astype(np.int64)
    return np.take_along_axis(inputs[0], order, attrs.axis), order


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None]
    blank = full_like(ct, 0)
    return [scatter_along(blank, ct, proj(current, 1), current.attrs.axis, "add")]


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    if tangent is None:
        return [None, None]
    return [gather_along(tangent, proj(current, 1), current.attrs.axis), None]


SORT = Op("sort", "opaque", _infer, _value, _vjp, _jvp)
