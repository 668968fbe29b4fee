"""Sorting along one axis: values and where they came from; stable, NaN above everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import DTypeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import shift_axis
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.gather import gather_along, scatter_along
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class SortAttrs(Attrs):
    """The axis, whether the largest element comes first, and how many elements are wanted."""

    axis: int
    descending: bool
    count: int | None = None  # None for all


def sort(
    a: Node, axis: int, descending: bool = False, count: int | None = None
) -> tuple[Node, Node]:
    """The (first `count`) elements in order along an axis, and the index that each had before."""
    wanted = None if count == a.shape[axis] else count
    both = node(SORT, (a,), SortAttrs(axis, descending, wanted))
    return proj(both, 0), proj(both, 1)


def _infer(types: Sequence[TensorType], attrs: SortAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.is_complex:
        raise DTypeError(f"{source.dtype.name} values have no order", help="sort x.abs() instead")
    shape = source.shape
    if attrs.count is not None:
        shape = (*shape[: attrs.axis], attrs.count, *shape[attrs.axis + 1 :])
    return (
        TensorType(shape, source.dtype, source.device),
        TensorType(shape, dtypes.int64, source.device),
    )


def stable_order(array: Array, axis: int, descending: bool, count: int | None = None) -> Array:
    """The permutation that sorts; equal elements keep their order in both directions."""
    narrow = array.dtype.kind == "V" or array.dtype == np.float16
    keys = array.astype(np.float32) if narrow else array
    if count is not None:
        return _first(keys, axis, descending, count)
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable")
    turned = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    order: Array = array.shape[axis] - 1 - np.flip(turned, axis)
    return order


def _first(keys: Array, axis: int, descending: bool, count: int) -> Array:
    """The start of the permutation that sorts, found without sorting the rest."""
    size = keys.shape[axis]
    if not count or 4 * count > size:  # a full sort is as quick
        return np.take(stable_order(keys, axis, descending), np.arange(count), axis)
    if descending:
        chosen = np.take(np.argpartition(keys, size - count, axis), np.arange(-count, 0), axis)
    else:
        chosen = np.take(np.argpartition(keys, count - 1, axis), np.arange(count), axis)
    chosen.sort(axis)  # back in their order before, so that equal ones keep it
    order = stable_order(np.take_along_axis(keys, chosen, axis), axis, descending)
    return np.take_along_axis(chosen, order, axis)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    order = stable_order(inputs[0], attrs.axis, attrs.descending, attrs.count).astype(np.int64)
    return np.take_along_axis(inputs[0], order, attrs.axis), order


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None]
    blank = full_like(current.inputs[0], 0)
    return [scatter_along(blank, ct, proj(current, 1), current.attrs.axis, "add")]


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    if tangent is None:
        return [None, None]
    return [gather_along(tangent, proj(current, 1), current.attrs.axis), None]


SORT = Op("sort", "library", _infer, _value, _vjp, _jvp, shift_axis)
