"""Reading and writing at places that tensors name."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import (
    Value,
    as_host,
    as_tensor,
    is_host,
    is_text,
)
from ridgeline.tensors.tensor import Tensor

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _positive(indices: Tensor, length: Any) -> Tensor:
    """Places counted from the end as places counted from the start."""
    indices = indices.to(rl.int64)
    return indices.where(indices >= 0, indices + length)


def _gather(data: Value, indices: Value, axis: int = 0) -> Value:
    if is_host(data) and is_text(data):
        return np.take(data, as_host(indices), axis)
    data = as_tensor(data)
    if is_host(indices) and indices.ndim == 0 and indices.dtype != object:
        return rl.select(data, axis, int(indices))
    places = _positive(as_tensor(indices), data.shape[axis])
    axis %= data.ndim
    found = rl.index_select(data, axis, places.reshape(-1))
    return found.reshape((*data.shape[:axis], *places.shape, *data.shape[axis + 1 :]))


def _gather_elements(data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    return rl.gather(data, axis, _positive(indices, data.shape[axis]))


def _gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    parts = []
    for axis in range(batch_dims):
        shape = [1] * (indices.ndim - 1)
        shape[axis] = indices.shape[axis]
        parts.append(rl.arange(data.shape[axis]).reshape(shape))
    for number in range(depth):
        parts.append(_positive(indices[..., number], data.shape[batch_dims + number]))
    return data[tuple(parts)]


def _scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    places = _positive(indices, data.shape[axis])
    if reduction == "none":
        return rl.scatter(data, axis, places, updates)
    return rl.scatter_reduce(data, axis, places, updates, _REDUCTIONS[reduction])


def _scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    rows = indices.reshape(-1, depth)
    count = rows.shape[0]
    flat = rl.zeros(count, dtype=rl.int64)
    total: Any = 1
    for axis in range(depth):
        flat = flat * data.shape[axis] + _positive(rows[:, axis], data.shape[axis])
        total = total * data.shape[axis]
    rest = tuple(data.shape[depth:])
    given = updates.reshape(count, -1) if rest else updates.reshape(count, 1)
    target = data.reshape(total, given.shape[1])
    places = rl.broadcast_to(flat.unsqueeze(1), given.shape)
    if reduction == "none":
        result = rl.scatter(target, 0, places, given)
    else:
        result = rl.scatter_reduce(target, 0, places, given, _REDUCTIONS[reduction])
    return result.reshape(data.shape)


def _compress(input: Tensor, condition: Tensor, axis: int | None = None) -> Tensor:
    x = input.reshape(-1) if axis is None else input
    at = 0 if axis is None else axis
    return rl.index_select(x, at, rl.nonzero(condition.reshape(-1)).reshape(-1))


def _nonzero(x: Tensor) -> Tensor:
    found = rl.nonzero(x)
    assert isinstance(found, Tensor)
    return found.T


def _one_hot(indices: Tensor, depth: int, values: Tensor, axis: int = -1) -> Tensor:
    rank = indices.ndim + 1
    axis %= rank
    whole = indices if not indices.dtype.is_floating_point else indices.to(rl.int64)
    places = _positive(whole, depth)
    steps = rl.arange(depth).reshape((depth,) + (1,) * (rank - 1 - axis))
    return values[1].where(places.unsqueeze(axis) == steps, values[0])


def _unique(
    x: Tensor, axis: int | None = None, sorted: int = 1
) -> tuple[Value, Value, Value, Value]:
    """How many there are depends on the data, so this is computed at once."""
    array = as_host(x)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    numbers = (each.astype(np.int64) for each in (first, inverse, counts))
    return (as_tensor(values), *map(as_tensor, numbers))  # type: ignore[return-value]


def _tensor_scatter(
    past_cache: Tensor, update: Tensor, write_indices: Tensor | None = None, axis: int = -2,
    mode: str = "linear",
) -> Tensor:  # fmt: skip
    axis %= past_cache.ndim
    length = past_cache.shape[axis]
    steps = rl.arange(update.shape[axis])
    starts = rl.zeros(past_cache.shape[0], dtype=rl.int64)
    if write_indices is not None:
        starts = write_indices.to(rl.int64)
    places = starts.unsqueeze(1) + steps  # batch, steps
    if mode == "circular":
        places = rl.remainder(places, length)
    shape = [1] * past_cache.ndim
    shape[0], shape[axis] = past_cache.shape[0], update.shape[axis]
    return rl.scatter(
        past_cache, axis, rl.broadcast_to(places.reshape(shape), update.shape), update
    )


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Gather", _gather),
    OperatorRow("GatherElements", _gather_elements),
    OperatorRow("GatherND", _gather_nd),
    OperatorRow("Scatter", _scatter_elements),
    OperatorRow("ScatterElements", _scatter_elements),
    OperatorRow("ScatterND", _scatter_nd),
    OperatorRow("Compress", _compress),
    OperatorRow("NonZero", _nonzero),
    OperatorRow("OneHot", _one_hot),
    OperatorRow("Unique", _unique),
    OperatorRow("TensorScatter", _tensor_scatter),
)
