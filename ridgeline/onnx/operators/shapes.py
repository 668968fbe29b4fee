"""Shapes, casts, and operators that only move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.nn import functional as F
from ridgeline.onnx.operators.casting import cast, cast_like
from ridgeline.onnx.operators.elements import element_type
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import (
    Array,
    Ints,
    OnnxError,
    Value,
    as_host,
    as_tensor,
    is_host,
    is_text,
)
from ridgeline.tensors.tensor import Tensor


def _shape(data: Value, start: int = 0, end: int | None = None) -> Array:
    sizes = list(data.shape)[start:end]
    plain = all(isinstance(size, int) for size in sizes)
    return np.array(sizes, np.int64 if plain else object)


def _size(data: Value) -> Array:
    count = math.prod(data.shape)
    return np.array(count, np.int64 if isinstance(count, int) else object)


def reshape(data: Value, shape: Ints, allowzero: int = 0) -> Value:
    """0 keeps a size unless that is meant, and -1 takes what is left."""
    sizes = [data.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)]
    if is_host(data):
        return data.reshape(sizes)
    if not allowzero and data.numel() == 0 and -1 in sizes:
        rest = math.prod(n for n in sizes if n != -1)
        sizes = [(0 if rest == 0 else data.numel() // rest) if n == -1 else n for n in sizes]
    return data.reshape(sizes)


def _flatten(input: Value, axis: int = 1) -> Value:
    axis = axis + input.ndim if axis < 0 else axis
    sizes = (math.prod(input.shape[:axis]), math.prod(input.shape[axis:]))
    return input.reshape(sizes)


def _squeeze(data: Value, axes: Ints | None = None) -> Value:
    chosen = [i for i, n in enumerate(data.shape) if n == 1] if axes is None else axes
    if is_host(data):
        return np.squeeze(data, tuple(chosen))
    ranks = {axis % data.ndim for axis in chosen} if data.ndim else set()
    for axis in ranks:
        if data.shape[axis] != 1:
            raise OnnxError(f"the axis {axis} of length {data.shape[axis]} cannot be squeezed")
    return data.reshape([n for i, n in enumerate(data.shape) if i not in ranks])


def _unsqueeze(data: Value, axes: Ints) -> Value:
    if is_host(data):
        return np.expand_dims(data, tuple(axes))
    rank = data.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        data = rl.unsqueeze(data, axis)
    return data


def _transpose(data: Value, perm: Ints | None = None) -> Value:
    order = list(reversed(range(data.ndim))) if perm is None else perm
    return np.transpose(data, order) if is_host(data) else rl.permute(data, tuple(order))


def _expand(input: Value, shape: Ints) -> Value:
    if is_host(input) and is_text(input):
        return np.broadcast_to(input, np.broadcast_shapes(input.shape, tuple(shape)))
    x = as_tensor(input)
    rank = max(x.ndim, len(shape))
    own = (1,) * (rank - x.ndim) + tuple(x.shape)
    wanted = (1,) * (rank - len(shape)) + tuple(shape)
    return rl.broadcast_to(x, [a if b == 1 else b for a, b in zip(own, wanted)])


def _tile(input: Value, repeats: Ints) -> Value:
    if is_host(input) and is_text(input):
        return np.tile(input, repeats)
    return rl.tile(as_tensor(input), tuple(repeats))


def _tile_axis(input: Tensor, tiles: int, axis: int) -> Tensor:
    """As version 1 has it."""
    return rl.tile(input, tuple(tiles if i == axis else 1 for i in range(input.ndim)))


def _concat(*inputs: Value, axis: int = 1) -> Value:
    if all(is_host(each) and is_text(each) for each in inputs):
        return np.concatenate(inputs, axis)
    return rl.cat([as_tensor(each) for each in inputs], axis)


def _split(
    input: Tensor, split: Ints | None = None, axis: int = 0, num_outputs: int | None = None,
    outputs: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    length = input.shape[axis]
    if split is None:
        count = num_outputs or outputs
        each = -(-length // count)
        split = [each] * (count - 1) + [length - each * (count - 1)]
    return tuple(rl.split(input, split, axis))


def _bounded(place: Any, length: Any, low: int, high: int) -> Any:
    """A place in an axis, counted from its end if negative, and moved into what it may be."""
    if place < 0:
        place = place + length
    if place < low:
        return low
    return length + high if place > length + high else place


def _slice(
    data: Value, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None
) -> Value:
    result = data
    picked: list[Any] = [slice(None)] * data.ndim
    flipped: list[int] = []
    for number, axis in enumerate(range(len(starts)) if axes is None else axes):
        axis %= data.ndim
        length = data.shape[axis]
        step = 1 if steps is None else steps[number]
        if step > 0:
            start = _bounded(starts[number], length, 0, 0)
            end = _bounded(ends[number], length, 0, 0)
            picked[axis] = slice(start, end if end > start else start, step)
            continue
        start = _bounded(starts[number], length, 0, -1)
        end = _bounded(ends[number], length, -1, -1)
        flipped.append(axis)
        first, last = length - 1 - start, length - 1 - end
        picked[axis] = slice(first, last if last > first else first, -step)
    if is_host(data):
        return np.flip(result, tuple(flipped))[tuple(picked)]
    return (rl.flip(result, tuple(flipped)) if flipped else result)[tuple(picked)]


def _constant_of_shape(input: Ints, value: Array | None = None) -> Value:
    filling = np.zeros(1, np.float32) if value is None else value
    kind = dtypes.from_numpy(filling.dtype)
    if kind is None:
        return np.full(input, filling.ravel()[0], filling.dtype)
    return rl.full(tuple(input), filling.ravel()[0].item(), dtype=kind)


def _range(start: Value, limit: Value, delta: Value) -> Value:
    numbers = []
    kind = None
    for each in (start, limit, delta):
        if isinstance(each, Tensor):
            kind = each.dtype
        elif each.dtype != object:
            kind = dtypes.from_numpy(each.dtype)
        array = as_host(each).ravel()
        numbers.append(array[0] if array.dtype == object else array[0].item())
    kind = kind or rl.int64
    first, end, step = numbers
    if not kind.is_floating_point:
        return rl.arange(first, end, step, dtype=kind)
    count = max(math.ceil((end - first) / step), 0)
    return (rl.arange(count, dtype=kind) * step + first).to(kind)


def _eye_like(input: Value, dtype: int | None = None, k: int = 0) -> Tensor:
    x = as_tensor(input)
    kind = x.dtype if dtype is None else element_type(dtype)
    rows, columns = x.shape
    places = rl.arange(columns).unsqueeze(0) - rl.arange(rows).unsqueeze(1)
    return (places == k).to(kind)


def _trilu(input: Tensor, k: int = 0, upper: int = 1) -> Tensor:
    return rl.triu(input, k) if upper else rl.tril(input, k)


def _depth_to_space(input: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = input.shape
    if mode == "CRD":
        return F.pixel_shuffle(input, blocksize)
    inner = c // (blocksize * blocksize)
    split = input.reshape(b, blocksize, blocksize, inner, h, w)
    return split.permute(0, 3, 4, 1, 5, 2).reshape(b, inner, h * blocksize, w * blocksize)


def _space_to_depth(input: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = input.shape
    rows, columns = h // blocksize, w // blocksize
    split = input.reshape(b, c, rows, blocksize, columns, blocksize)
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    return split.permute(*order).reshape(b, c * blocksize**2, rows, columns)


def _pad(
    data: Tensor, pads: Ints, constant_value: Value = None, axes: Ints | None = None,
    mode: str = "constant", value: float = 0.0,
) -> Tensor:  # fmt: skip
    chosen = list(range(data.ndim)) if axes is None else [axis % data.ndim for axis in axes]
    before, after = [0] * data.ndim, [0] * data.ndim
    for number, axis in enumerate(chosen):
        before[axis], after[axis] = pads[number], pads[number + len(chosen)]
    if mode == "constant":
        flat = [n for pair in reversed(list(zip(before, after))) for n in pair]
        filling = value if constant_value is None else as_host(constant_value).ravel()[0].item()
        return F.pad(data, flat, value=filling)
    for axis in range(data.ndim):
        data = _pad_axis(data, axis, before[axis], after[axis], mode)
    return data


def _pad_axis(data: Tensor, axis: int, before: Any, after: Any, mode: str) -> Tensor:
    """Longer by reading places that are reflected, clamped or counted round."""
    if before == 0 and after == 0:
        return data
    length = data.shape[axis]
    places = rl.arange(-before, length + after)
    if mode == "edge":
        places = rl.clamp(places, 0, length - 1)
    elif mode == "wrap":
        places = rl.remainder(places, length)
    else:
        period = 2 * (length - 1) if length > 1 else 1
        places = rl.remainder(places, period)
        places = rl.where(places >= length, period - places, places)
    return rl.index_select(data, axis, places)


def _pad_1(data: Tensor, paddings: Ints, mode: str = "constant", value: float = 0.0) -> Tensor:
    """As version 1 has it."""
    return _pad(data, paddings, mode=mode, value=value)


def _reverse_sequence(
    input: Tensor, sequence_lens: Tensor, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    steps = rl.arange(input.shape[time_axis])
    lengths = sequence_lens.to(rl.int64).unsqueeze(1)
    places = rl.where(steps < lengths, lengths - 1 - steps, steps)  # batch, time
    if batch_axis > time_axis:
        places = places.T
    places = places.reshape(tuple(places.shape) + (1,) * (input.ndim - 2))
    return rl.take_along_dim(input, rl.broadcast_to(places, input.shape), time_axis)


def _center_crop_pad(input_data: Tensor, shape: Ints, axes: Ints | None = None) -> Tensor:
    chosen = list(range(input_data.ndim)) if axes is None else axes
    x = input_data
    for axis, wanted in zip(chosen, shape):
        axis %= x.ndim
        length = x.shape[axis]
        if wanted < length:
            x = rl.narrow(x, axis, (length - wanted) // 2, wanted)
        elif wanted > length:
            before = (wanted - length) // 2
            rest = [0] * (2 * (x.ndim - 1 - axis))
            x = F.pad(x, [*rest, before, wanted - length - before])
    return x


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("Shape", _shape),
    OperatorRow("Size", _size),
    OperatorRow("Cast", cast),
    OperatorRow("CastLike", cast_like),
    OperatorRow("Reshape", reshape),
    OperatorRow("Flatten", _flatten),
    OperatorRow("Squeeze", _squeeze),
    OperatorRow("Unsqueeze", _unsqueeze),
    OperatorRow("Transpose", _transpose),
    OperatorRow("Expand", _expand),
    OperatorRow("Tile", _tile_axis, 1, 5),
    OperatorRow("Tile", _tile, 6),
    OperatorRow("Concat", _concat),
    OperatorRow("Split", _split),
    OperatorRow("Slice", _slice),
    OperatorRow("ConstantOfShape", _constant_of_shape),
    OperatorRow("Range", _range),
    OperatorRow("EyeLike", _eye_like),
    OperatorRow("Trilu", _trilu),
    OperatorRow("DepthToSpace", _depth_to_space),
    OperatorRow("SpaceToDepth", _space_to_depth),
    OperatorRow("Pad", _pad_1, 1, 1),
    OperatorRow("Pad", _pad, 2),
    OperatorRow("ReverseSequence", _reverse_sequence),
    OperatorRow("CenterCropPad", _center_crop_pad),
)
