"""Elements written to the positions in index tensors: scatter and the index_* functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import add, div, mul
from ridgeline.functions.gathering import check_fits
from ridgeline.functions.index_checks import (
    as_index,
    as_vector,
    flat,
    from_axis,
    harmless,
    lined,
    number,
    wrapped,
)
from ridgeline.functions.operands import Operand, axis_of, fitting
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.movement import broadcast_shapes, stretch
from ridgeline.ops.scan import scan

_MODES = {"sum": "add", "prod": "prod", "amax": "max", "amin": "min"}


def _leading(node: Node, index: Node) -> Node:
    """The part of a source that an index of the same rank covers."""
    rank = len(index.shape)
    return movement.slice_(node, (0,) * rank, index.shape, (1,) * rank)


def _prepared(
    input: Node, dim: int, index: Node, src: Operand, what: str
) -> tuple[Node, Node, Node, int]:
    """Base, updates, index and axis of a scatter, checked and with at least one axis each."""
    axis = axis_of(dim, len(input.shape))
    indices, base = lined(as_index(index, what)), lined(input)
    if isinstance(src, Node) and src.shape:
        if src.dtype is not input.dtype:
            raise DTypeError(
                f"{what}: src is {src.dtype.name} and the input {input.dtype.name}",
                help=f"convert src with .to(ridgeline.{input.dtype.name})",
            )
        if 0 not in indices.shape:
            check_fits(indices, src, None, what, "source")
            updates = _leading(src, indices)
        else:
            updates = number(indices.shape, 0, input.dtype)
    else:
        updates = stretch(fitting(src, input.dtype), indices.shape)
    return base, updates, indices, axis


def _as_many_axes(index: Node, src: Node, what: str) -> None:
    if isinstance(src, Node) and not src.shape and len(index.shape) > 1:
        raise ShapeError(f"{what}: the index has {len(index.shape)} axes and src none")


def _scattered(input: Node, dim: int, index: Node, src: Operand, mode: str, what: str) -> Node:
    base, updates, indices, axis = _prepared(input, dim, index, src, what)
    if 0 in indices.shape:
        return input
    check_fits(indices, base, axis, what, "input")
    return movement.reshape(rows.scatter_along(base, updates, indices, axis, mode), input.shape)


@public(inplace=True)
def scatter(
    input: Node,
    dim: int,
    index: Node,
    src: Operand | None = None,
    *,
    value: Operand | None = None,
    reduce: str | None = None,
) -> Node:
    """The input with values of `src` written at index[i, j, …] along an axis."""
    source = src if src is not None else value
    if source is None:
        raise BadValueError("scatter needs src or value")
    modes = {None: "set", "add": "add", "multiply": "prod"}
    if reduce not in modes:
        raise BadValueError(f'scatter: reduce is "add" or "multiply", not {reduce!r}')
    return _scattered(input, dim, index, source, modes[reduce], "scatter")


@public(inplace=True)
def scatter_add(input: Node, dim: int, index: Node, src: Node) -> Node:
    """The input with values of `src` added at index[i, j, …] along an axis."""
    _as_many_axes(index, src, "scatter_add")
    return _scattered(input, dim, index, src, "add", "scatter_add")


@public(inplace=True)
def scatter_reduce(
    input: Node, dim: int, index: Node, src: Node, reduce: str, *, include_self: bool = True
) -> Node:
    """The input with values of `src` joined in: "sum", "prod", "mean", "amax" or "amin"."""
    _as_many_axes(index, src, "scatter_reduce")
    base, updates, indices, axis = _prepared(input, dim, index, src, "scatter_reduce")
    if 0 in indices.shape:
        return input
    check_fits(indices, base, axis, "scatter_reduce", "input")
    axes = range(len(base.shape))
    result = joined(base, updates, rows.along(indices, axis), axes, reduce, include_self)
    return movement.reshape(result, input.shape)


def joined(
    base: Node,
    updates: Node,
    indices: Sequence[Node],
    axes: Sequence[int],
    reduce: str,
    include_self: bool,
) -> Node:
    """A scatter by one of torch's reductions, with or without the elements that were there."""
    if reduce not in (*_MODES, "mean"):
        raise BadValueError(f'reduce is "sum", "prod", "mean", "amax" or "amin", not {reduce!r}')
    if not include_self:
        start = number(updates.shape, _identity(reduce, base.dtype), base.dtype)
        base = rows.scatter(base, start, indices, axes)
    if reduce != "mean":
        return rows.scatter(base, updates, indices, axes, _MODES[reduce])
    total = rows.scatter(base, updates, indices, axes, "add")
    ones = number(updates.shape, 1, dtypes.int64)
    own = number(base.shape, 1, dtypes.int64)
    if not include_self:
        own = rows.scatter(own, number(updates.shape, 0, dtypes.int64), indices, axes)
    count = rows.scatter(own, ones, indices, axes, "add")
    if base.dtype.is_integer:
        return cast(div(total, count, rounding_mode="floor"), base.dtype)
    return div(total, cast(count, base.dtype))


def _identity(reduce: str, dtype: DType) -> float:
    """What a reduction starts from when it leaves out the element that was there."""
    if reduce in ("sum", "mean", "prod"):
        return 1 if reduce == "prod" else 0
    if dtype.kind == "float":
        return -math.inf if reduce == "amax" else math.inf
    if dtype.kind == "bool":
        return 0 if reduce == "amax" else 1
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if reduce == "amax" else limits.max)


def _slices(input: Node, dim: int, index: Node, source: Node, what: str) -> tuple[Node, Node, int]:
    """The index vector, the source's slices in front, and the axis, for the index_* functions."""
    axis = axis_of(dim, len(input.shape))
    indices = as_vector(index, what)
    if source.dtype is not input.dtype:
        raise DTypeError(
            f"{what}: the source is {source.dtype.name} and the input {input.dtype.name}",
            help=f"convert the source with .to(ridgeline.{input.dtype.name})",
        )
    base, updates = lined(input), lined(source)
    shape = tuple(indices.shape[0] if a == axis else s for a, s in enumerate(base.shape))
    if updates.shape != shape:
        raise ShapeError(
            f"{what} needs a source of shape {list(shape)}, got {list(source.shape)}",
            help=f"the input is {list(input.shape)} and the index {list(index.shape)}",
        )
    return indices, from_axis(updates, axis), axis


@public(inplace=True)
def index_add(input: Node, dim: int, index: Node, source: Node, *, alpha: Operand = 1) -> Node:
    """The input with slices of `source` added at `index` along an axis."""
    scaled = source if isinstance(alpha, int) and alpha == 1 else mul(source, alpha)
    indices, updates, axis = _slices(input, dim, index, scaled, "index_add")
    indices = harmless(indices, lined(input).shape[axis], input.shape)
    result = rows.scatter(lined(input), updates, (indices,), (axis,), "add")
    return movement.reshape(result, input.shape)


@public(inplace=True)
def index_copy(input: Node, dim: int, index: Node, source: Node) -> Node:
    """The input with slices of `source` written at `index` along an axis."""
    indices, updates, axis = _slices(input, dim, index, source, "index_copy")
    indices = harmless(indices, lined(input).shape[axis], input.shape)
    result = rows.scatter(lined(input), updates, (indices,), (axis,))
    return movement.reshape(result, input.shape)


@public(inplace=True)
def index_fill(input: Node, dim: int, index: Node, value: Operand) -> Node:
    """The input with one value at `index` along an axis."""
    axis = axis_of(dim, len(input.shape))
    indices, base = as_vector(index, "index_fill"), lined(input)
    if isinstance(value, Node) and value.shape:
        raise ShapeError(f"index_fill needs one value, got shape {list(value.shape)}")
    size = base.shape[axis]
    indices = wrapped(harmless(indices, size, base.shape), size, axis)
    # a mask, so that an index named twice counts once in the gradient of the value
    line = number((size,), False, dtypes.bool_)
    line = rows.scatter(line, number(indices.shape, True, dtypes.bool_), (indices,), (0,))
    filled = stretch(fitting(value, input.dtype), base.shape)
    result = select(movement.broadcast(line, base.shape, (axis,)), filled, base)
    return movement.reshape(result, input.shape)


@public(inplace=True)
def index_reduce(
    input: Node, dim: int, index: Node, source: Node, reduce: str, *, include_self: bool = True
) -> Node:
    """The input with slices joined in at `index`: "prod", "mean", "amax" or "amin"."""
    indices, updates, axis = _slices(input, dim, index, source, "index_reduce")
    result = joined(lined(input), updates, (indices,), (axis,), reduce, include_self)
    return movement.reshape(result, input.shape)


@public(inplace=True)
def put(input: Node, index: Node, source: Node, accumulate: bool = False) -> Node:
    """The input with elements written (or added) at places of its flattened form."""
    base = flat(input)
    indices = wrapped(flat(as_index(index, "put")), base.shape[0])
    if source.dtype is not input.dtype:
        raise DTypeError(f"put: source is {source.dtype.name} and the input {input.dtype.name}")
    updates = flat(source)
    if updates.shape != indices.shape:
        raise ShapeError(
            f"put needs as many values as indices, got {updates.shape[0]} and {indices.shape[0]}"
        )
    mode = "add" if accumulate else "set"
    return movement.reshape(rows.scatter(base, updates, (indices,), (0,), mode), input.shape)


@public(inplace=True)
def masked_scatter(input: Node, mask: Node, source: Node) -> Node:
    """The input with elements of `source`, in order, where the mask holds."""
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_scatter needs a bool mask, got {mask.dtype.name}")
    if source.dtype is not input.dtype:
        raise DTypeError(
            f"masked_scatter: source is {source.dtype.name} and the input {input.dtype.name}"
        )
    shape = broadcast_shapes(input.shape, mask.shape)
    base, test = stretch(input, shape), stretch(mask, shape)
    chosen = flat(test)
    before = add(scan(cast(chosen, dtypes.int64), "sum", 0), -1)
    position = select(chosen, before, full_like(before, 0))
    if 0 in shape:
        return base
    if 0 in source.shape:
        source = number((1,), 0, source.dtype)
    taken = movement.reshape(rows.gather(flat(source), (position,), (0,)), shape)
    return select(test, taken, base)


@public(function=False, inplace=True, name="_masked_write")
def masked_write(input: Node, mask: Node, value: Operand) -> Node:
    """The input with values, which broadcast against it, where the mask holds."""
    test = stretch(mask, input.shape)
    return select(test, stretch(fitting(value, input.dtype), input.shape), input)
