"""Sliding windows, strided views, repetition, rotation."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as index_of

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import AxisError, BadValueError, ShapeError
from ridgeline.functions.concrete import concrete
from ridgeline.functions.counting import indices
from ridgeline.functions.gathering import index_select
from ridgeline.functions.index_checks import as_index, flat, lined
from ridgeline.functions.movement import flip, repeat, transpose
from ridgeline.functions.operands import axis_of, number, whole_numbers
from ridgeline.functions.registry import public
from ridgeline.functions.scanning import cumsum
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops import movement
from ridgeline.ops.elementwise import cast, iota
from ridgeline.ops.gather import GATHER
from ridgeline.ops.movement import RESHAPE, ReshapeAttrs
from ridgeline.ops.search import search
from ridgeline.record.cells import Step, apply_steps, known
from ridgeline.record.modes import modes
from ridgeline.record.strided import SlidingWindows, Strided


def _unfolded(input: Node, dimension: int, size: int, step: int) -> tuple[Step, ...]:
    axis = axis_of(dimension, len(input.shape))
    size, step = whole_numbers((size, step))
    source = lined(input)
    total = known(source.shape[axis])
    if not 0 <= size <= total or step <= 0:
        raise ShapeError(f"unfold: windows of {size} every {step} on an axis of size {total}")
    windows = SlidingWindows(axis, size, step, (total - size) // step + 1)
    if input.shape:
        return ((GATHER, windows),)
    before, after = (RESHAPE, ReshapeAttrs((1,))), (RESHAPE, ReshapeAttrs((size,)))
    return (before, (GATHER, windows), after)


@public(function=False, view=True, steps=_unfolded)
def unfold(input: Node, dimension: int, size: int, step: int) -> Node:
    """Windows of `size` elements every `step` along an axis, as a new last axis."""
    return apply_steps(input, _unfolded(input, dimension, size, step))


def _strided(
    input: Node, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> tuple[Step, ...]:
    shape, offset = tuple(int(s) for s in size), storage_offset or 0
    if len(shape) != len(stride):
        raise ShapeError(f"as_strided: {len(shape)} sizes and {len(stride)} strides")
    if offset < 0 or any(by < 0 for by in stride):
        raise ShapeError(f"as_strided: strides {list(stride)} and offset {offset} below zero")
    total = known(product(input.shape))
    reach = offset + sum((s - 1) * by for s, by in zip(shape, stride))
    if 0 not in shape and not reach < total:
        raise ShapeError(
            f"as_strided: sizes {list(shape)}, strides {list(stride)} and offset {offset} reach "
            f"beyond {total} elements"
        )
    return ((GATHER, Strided(shape, tuple(int(by) for by in stride), offset)),)


@public(view=True, steps=_strided)
def as_strided(
    input: Node, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Node:
    """The elements at strided places of the input's memory."""
    return apply_steps(input, _strided(input, size, stride, storage_offset))


@public()
def as_strided_scatter(
    input: Node,
    src: Node,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Node:
    """The input with the elements at strided places of its flattened form replaced."""
    view: Strided = _strided(input, size, stride, storage_offset)[0][1]
    if src.shape != view.sizes:
        raise ShapeError(f"as_strided_scatter needs {list(view.sizes)}, got {list(src.shape)}")
    return view.written(input, cast(src, input.dtype))


@public()
def fliplr(input: Node) -> Node:
    """Columns turned round."""
    if len(input.shape) < 2:
        raise ShapeError(f"fliplr needs at least 2 axes, got shape {list(input.shape)}")
    return flip(input, 1)


@public()
def flipud(input: Node) -> Node:
    """Rows turned round."""
    if not input.shape:
        raise ShapeError("flipud needs at least one axis")
    return flip(input, 0)


@public()
def rot90(input: Node, k: int = 1, dims: Sequence[int] = (0, 1)) -> Node:
    """A quarter turn, k times, from the first towards the second of two axes."""
    rank = len(input.shape)
    if len(dims) != 2 or axis_of(dims[0], rank) == axis_of(dims[1], rank):
        raise AxisError(f"rot90 needs two different axes, got {tuple(dims)}")
    first, second = dims
    turns = number(k) % 4
    if turns == 0:
        return movement.reshape(input, input.shape)
    if turns == 2:
        return flip(input, first, second)
    turned = transpose(flip(input, second) if turns == 1 else input, first, second)
    return flip(turned, second) if turns == 3 else turned


@public()
def repeat_interleave(
    input: Node, repeats: int | Node, dim: int | None = None, *, output_size: int | None = None
) -> Node:
    """Every element (or slice along an axis) several times in a row."""
    source = flat(input) if dim is None else input
    axis = 0 if dim is None else axis_of(dim, len(input.shape))
    source = lined(source)
    size = known(source.shape[axis])
    if isinstance(repeats, Node):
        times = as_index(repeats, "repeat_interleave")
        if known(product(times.shape)) != 1 or size == 1:
            return _repeated(source, times, axis, output_size)
        repeats = int(concrete(times, "repeat_interleave").reshape(()))
    if index_of(repeats) < 0:
        raise BadValueError(f"repeat_interleave needs counts of at least 0, got {repeats}")
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    shape = (*before, size, repeats, *after)
    axes = tuple(a if a <= axis else a + 1 for a in range(len(source.shape)))
    wide = movement.broadcast(source, shape, axes)
    return movement.reshape(wide, (*before, size * repeats, *after))


@public(name="repeat", method=False)
def repeat_elements(
    input: Node, repeats: int | Sequence[int] | Node, dim: int | None = None
) -> Node:
    """`repeat_interleave` under the Array API's name; a list of counts is the method's, torch's."""
    if isinstance(repeats, list | tuple):
        return repeat(input, *repeats)
    return repeat_interleave(input, repeats, dim)  # type: ignore[arg-type]


def _places(count: int, like: Node) -> Node:
    return iota((count,), 0, dtypes.int64, like.type.device)


def _repeated(source: Node, times: Node, axis: int, output_size: int | None) -> Node:
    """Slices repeated as often as a vector says; its sum is the new size."""
    if len(times.shape) > 1 or lined(times).shape != (source.shape[axis],):
        raise ShapeError(
            f"repeat_interleave: {list(times.shape)} counts for {source.shape[axis]} elements"
        )
    if output_size is not None and (modes.capture is not None and modes.capture.depends(times)):
        ends = cumsum(lined(times), 0)
        return index_select(source, axis, search(ends, _places(output_size, times), right=True))
    counts = concrete(
        lined(times),
        "repeat_interleave with a tensor of counts",
        "repeat by an int, or gather with an index computed outside",
    )
    if counts.size and int(counts.min()) < 0:
        raise BadValueError(f"counts are at least 0, got {int(counts.min())}")
    if output_size is not None and int(counts.sum()) != output_size:
        raise ShapeError(f"the counts add up to {int(counts.sum())}, not to {output_size}")
    return index_select(source, axis, indices(np.repeat(np.arange(counts.size), counts)))
