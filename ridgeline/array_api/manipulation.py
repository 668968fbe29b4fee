"""Shapes: joining, repeating, turning and reshaping arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.array_api.array import Array, SizeError, as_array, call, need_array
from ridgeline.array_api.types import INTEGER, require, result_type
from ridgeline.errors import ShapeError
from ridgeline.interop.dlpack import ExchangeError
from ridgeline.ops import movement
from ridgeline.tensors.tensor import Tensor, tensor

Axes = int | tuple[int, ...]


def _axes(axis: Axes, rank: int) -> tuple[int, ...]:
    """Non-negative axes, each named once."""
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in given:
        if not -rank <= one < rank:
            raise AxisRangeError(f"axis {one} does not exist in an array with {rank} axes")
    axes = tuple(one % rank for one in given)
    if len(set(axes)) < len(axes):
        raise AxisRangeError(f"axes {given} name the same axis twice")
    return axes


class AxisRangeError(SizeError, IndexError):
    """An axis that the array does not have, or one named twice."""

    code = "RL0103"


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which all shapes stretch."""
    if not shapes:
        return ()
    try:
        return movement.broadcast_shapes(*map(tuple, shapes))  # type: ignore[return-value]
    except ShapeError as error:
        raise SizeError(error.message, help=error.help) from None


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Array:
    """The array stretched to a shape."""
    own = tuple(need_array("broadcast_to", x).shape)
    if broadcast_shapes(own, tuple(shape)) != tuple(shape):
        raise SizeError(f"shape {list(own)} does not stretch to {list(shape)}")
    return as_array(x.expand(tuple(shape)))


def broadcast_arrays(*arrays: Tensor) -> tuple[Array, ...]:
    """The arrays stretched to one shape."""
    shape = broadcast_shapes(*[tuple(x.shape) for x in arrays])
    return tuple(broadcast_to(x, shape) for x in arrays)


def _promoted(name: str, arrays: Sequence[Tensor]) -> list[Tensor]:
    if not arrays:
        raise SizeError(f"{name} needs at least one array")
    dtype = result_type(*arrays)
    return [x.to(dtype) for x in arrays]


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Array:
    """The arrays joined along an axis; flattened first where it is None."""
    parts = _promoted("concat", arrays)
    if axis is None:
        return call("cat", [x.reshape((-1,)) if x.numel() else x.reshape((0,)) for x in parts], 0)
    if any(x.ndim == 0 for x in parts):
        raise SizeError("concat needs arrays with at least one axis")
    (position,) = _axes(axis, parts[0].ndim)
    lengths = [[*x.shape[:position], *x.shape[position + 1 :]] for x in parts]
    if any(rest != lengths[0] or x.ndim != parts[0].ndim for x, rest in zip(parts, lengths)):
        shapes = ", ".join(str(list(x.shape)) for x in parts)
        raise SizeError(f"concat along axis {axis} needs equal other axes, got {shapes}")
    return call("cat", parts, position)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Array:
    """The arrays side by side along a new axis."""
    parts = _promoted("stack", arrays)
    if any(x.shape != parts[0].shape for x in parts):
        raise SizeError("stack needs arrays of one shape")
    return call("stack", parts, _axes(axis, parts[0].ndim + 1)[0])


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis."""
    (position,) = _axes(axis, need_array("unstack", x).ndim)
    return tuple(as_array(part) for part in x.unbind(position))


def expand_dims(x: Tensor, /, axis: Axes) -> Array:
    """The array with new axes of size 1 at the given places of the result."""
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = _axes(given, need_array("expand_dims", x).ndim + len(given))
    shape = list(x.shape)
    for position in sorted(axes):
        shape.insert(position, 1)
    return as_array(x.reshape(shape))


def squeeze(x: Tensor, /, axis: Axes) -> Array:
    """The array without some axes of size 1."""
    axes = _axes(axis, need_array("squeeze", x).ndim)
    if any(x.shape[position] != 1 for position in axes):
        raise SizeError(f"squeeze removes axes of size 1 only; shape {list(x.shape)}, {axis}")
    return as_array(x.reshape([s for position, s in enumerate(x.shape) if position not in axes]))


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Array:
    """The order of elements turned round along some axes."""
    rank = need_array("flip", x).ndim
    axes = tuple(range(rank)) if axis is None else _axes(axis, rank)
    return call("flip", x, axes) if axes else as_array(x.clone())


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Array:
    """Some axes moved to other places, the rest in their order."""
    rank = need_array("moveaxis", x).ndim
    origins, targets = _axes(source, rank), _axes(destination, rank)
    if len(origins) != len(targets):
        raise SizeError(f"moveaxis needs as many sources as destinations: {source}, {destination}")
    return call("movedim", x, origins, targets)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Array:
    """The axes in another order."""
    rank = need_array("permute_dims", x).ndim
    if len(axes) != rank:
        raise SizeError(f"permute_dims needs every axis once: {axes} for {rank} axes")
    return as_array(x.permute(_axes(tuple(axes), rank)))


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The same elements in another shape; one size may be -1."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    need_array("reshape", x)
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known:
        sizes = tuple(x.numel() // known if size == -1 else size for size in sizes)
    if math.prod(sizes) != x.numel() or min(sizes, default=0) < 0:
        raise SizeError(f"{list(x.shape)} cannot be reshaped to {list(shape)}")
    result = as_array(x.reshape(sizes))
    if copy is False and x.numel() and result._cell is not x._cell:
        raise ExchangeError(f"{list(x.shape)} cannot be seen as {list(sizes)} without a copy")
    return as_array(result.clone()) if copy else result


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Array:
    """The elements moved round along some axes; along all as one where axis is None."""
    rank = need_array("roll", x).ndim
    if x.numel() == 0:
        return as_array(x.clone())
    if axis is None:
        return as_array(call("roll", x.reshape((-1,)), shift, 0).reshape(x.shape))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = [_axes(one, rank)[0] for one in given]
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(shifts) != len(axes):
        raise SizeError(f"roll needs as many shifts as axes: {shift}, {axis}")
    result = as_array(x.clone())
    for position, by in zip(axes, shifts):
        result = call("roll", result, by, position)
    return result


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Array:
    """The array repeated as a whole along its axes."""
    return call("tile", need_array("tile", x), tuple(repetitions))


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element repeated, as often as `repeats` says for all or for each."""
    need_array("repeat", x)
    source = x.reshape((x.numel(),)) if axis is None else x
    (position,) = _axes(0 if axis is None else axis, source.ndim)
    size = source.shape[position]
    if isinstance(repeats, Tensor):
        require("repeat", repeats.dtype, INTEGER)
        counts = np.asarray(repeats.tolist(), np.int64).reshape(-1)
    else:
        counts = np.asarray([repeats], np.int64)
    if counts.size not in (1, size) or (counts < 0).any():
        raise SizeError(f"repeat needs one count, or {size} counts, of at least 0")
    picks = np.repeat(np.arange(size), counts if counts.size == size else counts.repeat(size))
    return call("index_select", source, position, tensor(picks, dtype=dtypes.int64))
