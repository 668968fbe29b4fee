"""Order along an axis: sort, topk, medians, modes."""

from __future__ import annotations

import math
from operator import index as index_of

from ridgeline import dtypes
from ridgeline.errors import NoElementsError, ShapeError
from ridgeline.functions.index_checks import flat, lined, number, ramp, resized
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.operands import axis_of
from ridgeline.functions.reductions import ValuesIndices
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import movement, reduce
from ridgeline.ops.elementwise import cast, constant, full_like, select
from ridgeline.ops.gather import gather_along
from ridgeline.ops.math import isnan, maximum
from ridgeline.ops.scan import extreme_scan
from ridgeline.ops.sort import sort as ordered
from ridgeline.record.cells import known


@public()
def sort(
    input: Node, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> ValuesIndices:
    """The elements in order along an axis, and where they stood; equal ones keep their order."""
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        return ValuesIndices(input, constant(0, dtypes.int64))
    return ValuesIndices(*ordered(input, axis, bool(descending)))


@public()
def argsort(
    input: Node, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Node:
    """The indices that sort along an axis."""
    return sort(input, dim, descending).indices


@public()
def msort(input: Node) -> Node:
    """Sorted along the first axis."""
    return sort(input, 0).values


@public()
def topk(
    input: Node, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The k largest (or smallest) elements along an axis and where they stand."""
    axis = axis_of(dim, len(input.shape))
    size = input.shape[axis] if input.shape else 1
    if not 0 <= index_of(k) <= known(size):
        raise ShapeError(f"topk: {k} elements of an axis with {size}")
    if not input.shape:
        if k == 1:
            return ValuesIndices(input, constant(0, dtypes.int64))
        empty = movement.slice_(lined(input), (0,), (0,), (1,))
        return ValuesIndices(empty, number((0,), 0, dtypes.int64))
    return ValuesIndices(*ordered(input, axis, largest, k))


def _at(input: Node, dim: int, position: int, keepdim: bool) -> ValuesIndices:
    """The element at one place of the order along an axis."""
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        return ValuesIndices(input, constant(0, dtypes.int64))
    values, indices = (
        cut(part, axis, position, 1) for part in ordered(input, axis, False, position + 1)
    )
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(drop(values, axis), drop(indices, axis))


@public()
def kthvalue(input: Node, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest element along an axis (from 1) and where it stands."""
    size = known(input.shape[axis_of(dim, len(input.shape))]) if input.shape else 1
    if not 1 <= index_of(k) <= size:
        raise ShapeError(f"kthvalue: k runs from 1 to {size}, got {k}")
    return _at(input, dim, k - 1, keepdim)


@public()
def median(input: Node, dim: int | None = None, keepdim: bool = False) -> Node | ValuesIndices:
    """The lower of the two middle elements; NaN where there is one. Along an axis, also where."""
    return _median(input, dim, keepdim, skip_nan=False)


@public()
def nanmedian(input: Node, dim: int | None = None, keepdim: bool = False) -> Node | ValuesIndices:
    """The lower of the two middle elements that are not NaN. Along an axis, also where."""
    return _median(input, dim, keepdim, skip_nan=True)


def _median(input: Node, dim: int | None, keepdim: bool, skip_nan: bool) -> Node | ValuesIndices:
    whole = dim is None
    source = flat(input) if whole else input
    axis = 0 if dim is None else axis_of(dim, len(input.shape))
    if not source.shape:
        return ValuesIndices(input, constant(0, dtypes.int64))
    size = known(source.shape[axis])
    if size == 0:
        if whole and source.dtype.is_floating_point:
            return number((), math.nan, source.dtype)
        raise NoElementsError("the median of no elements does not exist")
    values, indices = ordered(source, axis)
    position = _middle(source, values, axis, size, skip_nan)
    picked = [gather_along(part, position, axis) for part in (values, indices)]
    if not keepdim or whole:
        picked = [drop(part, axis) for part in picked]
    if whole:
        return _shared(source, picked[0]) if source.dtype.is_floating_point else picked[0]
    return ValuesIndices(picked[0], picked[1])


def _shared(source: Node, found: Node) -> Node:
    """One element of a vector, with a gradient that all elements equal to it share."""
    equal = source.eq(movement.broadcast_scalar(found, source.shape))
    shared = reduce.reduce(select(equal, source, full_like(source, -math.inf)), "max", (0,))
    missing = isnan(source)
    count = reduce.sum_(cast(missing, source.dtype), (0,))
    holes = reduce.sum_(select(missing, source, full_like(source, 0)), (0,))
    return select(isnan(found), holes / count, shared)


def _middle(source: Node, values: Node, axis: int, size: int, skip_nan: bool) -> Node:
    """Which place of the order holds the median, with an axis of size 1."""
    shape = resized(source.shape, axis, 1)
    middle = number(shape, (size - 1) // 2, dtypes.int64)
    if not source.dtype.is_floating_point:
        return middle
    missing = cast(isnan(source), dtypes.int64)
    count = movement.reshape(reduce.sum_(missing, (axis,)), shape)
    none = count.eq(0)
    if not skip_nan:
        # the first NaN stands after all others in the order
        first = full_like(count, size) - count
        return select(none, middle, first)
    left = full_like(count, size - 1) - count
    return maximum(left, full_like(left, 0)) // full_like(left, 2)


@public()
def mode(input: Node, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent element along an axis (the smallest of several) and where it stands."""
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        return ValuesIndices(input, constant(0, dtypes.int64))
    if known(input.shape[axis]) == 0:
        raise NoElementsError("the mode of no elements does not exist")
    values, indices = ordered(input, axis)
    size = known(input.shape[axis])
    steps = ramp(values.shape, axis)
    before = _shift(values, axis, size)
    fresh = values.ne(before) | steps.eq(0)
    start, _ = extreme_scan(select(fresh, steps, full_like(steps, 0)), "max", axis)
    run = steps - start  # how many equal ones came before
    _, position = reduce.arg_reduce(run, "argmax", axis)
    spot = movement.reshape(position, resized(input.shape, axis, 1))
    picked = [gather_along(part, spot, axis) for part in (values, indices)]
    if not keepdim:
        picked = [drop(part, axis) for part in picked]
    return ValuesIndices(picked[0], picked[1])


def _shift(values: Node, axis: int, size: int) -> Node:
    """The element before, along an axis; the first stands before itself."""
    parts = [cut(values, axis, 0, 1), cut(values, axis, 0, size - 1)]
    return movement.concat(parts, axis)
