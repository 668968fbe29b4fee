"""Runs of elements joined, and torch's internal forms of masked indexing and chunking."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.arithmetic import div, truth
from ridgeline.functions.concrete import concrete
from ridgeline.functions.counting import indices as given_places
from ridgeline.functions.index_checks import as_index, number, resized
from ridgeline.functions.indexing import index_put, pick
from ridgeline.functions.movement import cat
from ridgeline.functions.operands import Operand, as_node, axis_of
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.math import maximum, minimum
from ridgeline.ops.movement import stretch
from ridgeline.record.cells import known
from ridgeline.scalars import Array

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_MODES = {"sum": "add", "mean": "add", "prod": "prod", "max": "max", "min": "min"}


@public(method=False)
def segment_reduce(
    data: Node,
    reduce: str,
    *,
    lengths: Node | None = None,
    indices: Node | None = None,
    offsets: Node | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Node:
    """Each run of elements along an axis joined: "sum", "mean", "prod", "max" or "min"."""
    if reduce not in _MODES:
        raise BadValueError(f"segment_reduce knows {sorted(_MODES)}, not {reduce!r}")
    dim = axis_of(axis, len(data.shape))
    sizes = _lengths(data, lengths, offsets, dim)
    count = sizes.shape[-1]
    shape = resized(data.shape, dim, count)
    start = number(shape, _START[reduce] if initial is None else initial, data.dtype)
    owners = _owners(sizes, known(data.shape[dim]))
    result = _joined(start, data, owners, dim, _MODES[reduce])
    if reduce != "mean":
        return result
    lines = given_places(sizes)
    wide = movement.broadcast(lines, shape, tuple(range(len(lines.shape))))
    some = wide > 0
    empty = full_like(result, math.nan) if initial is None else start
    return select(some, div(result, cast(wide, data.dtype)), empty)


def _lengths(data: Node, lengths: Node | None, offsets: Node | None, axis: int) -> Array:
    """How long each run is; a row per line where there are axes before."""
    if (lengths is None) == (offsets is None):
        raise BadValueError("segment_reduce needs lengths or offsets")
    what = "segment_reduce"
    if lengths is not None:
        sizes = concrete(as_index(lengths, what), what)
    else:
        assert offsets is not None
        sizes = np.diff(concrete(as_index(offsets, what), what), axis=-1)
    if sizes.shape[:-1] != data.shape[:axis] or (sizes < 0).any():
        raise ShapeError(f"segment_reduce: lengths of shape {list(sizes.shape)} do not fit")
    if (sizes.sum(-1) > known(data.shape[axis])).any():
        raise ShapeError("segment_reduce: the segments are longer than the axis")
    return sizes


def _owners(sizes: Array, length: int) -> Array:
    """The segment that each element along the axis belongs to; -1 for those after the last."""
    ends = np.cumsum(sizes, axis=-1)
    ramp = np.arange(length)
    found = (ramp[:, None] >= ends[..., None, :]).sum(-1)
    return np.where(found < sizes.shape[-1], found, -1)


def _joined(start: Node, data: Node, owners: Array, axis: int, mode: str) -> Node:
    """Elements scattered to their segments; a spare segment takes those that belong to none."""
    spare = np.where(owners < 0, known(start.shape[axis]), owners)
    pad = tuple(1 if a == axis else 0 for a in range(len(start.shape)))
    base = movement.pad(start, (0,) * len(pad), pad)
    lines = given_places(spare)
    index = movement.broadcast(lines, data.shape, tuple(range(len(lines.shape))))
    full = rows.scatter_along(base, data, index, axis, mode)
    return movement.slice_(full, (0,) * len(pad), start.shape, (1,) * len(pad))


public(name="_segment_reduce", method=False)(segment_reduce)


def _clipped(input: Node, indices: Sequence[Node]) -> list[Node]:
    """Indices held inside their axes: outside the mask they may point anywhere."""
    held = []
    for axis, index in enumerate(indices):
        positions = as_index(index, "indexing")
        top = full_like(positions, known(input.shape[axis]) - 1)
        low = full_like(positions, -known(input.shape[axis]))
        held.append(maximum(minimum(positions, top), low))
    return held


@public(method=False)
def _unsafe_masked_index(input: Node, mask: Node, indices: Sequence[Node], fill: Operand) -> Node:
    """input[indices] where the mask holds, `fill` elsewhere."""
    found = pick(input, _clipped(input, indices))
    test = stretch(truth(mask), found.shape)
    return select(test, found, stretch(as_node(fill, input.dtype), found.shape))


@public(method=False)
def _unsafe_masked_index_put_accumulate(
    input: Node, mask: Node, indices: Sequence[Node], values: Node
) -> Node:
    """The input with values added at the indices where the mask holds."""
    test = stretch(truth(mask), values.shape)
    kept = select(test, values, full_like(values, 0))
    return index_put(input, _clipped(input, indices), kept, accumulate=True)


@public(method=False)
def _chunk_cat(tensors: Sequence[Node], dim: int, num_chunks: int) -> Node:
    """Each tensor padded and cut into chunks along an axis, the chunks flattened and joined."""
    parts = []
    axis = axis_of(dim, len(tensors[0].shape))
    for tensor in tensors:
        size = known(tensor.shape[axis])
        each = -(-size // num_chunks)
        missing = each * num_chunks - size
        rank = len(tensor.shape)
        high = tuple(missing if a == axis else 0 for a in range(rank))
        full = movement.pad(tensor, (0,) * rank, high)
        rest = each * known(product(tensor.shape[axis + 1 :]))
        parts.append(movement.reshape(full, (*tensor.shape[:axis], num_chunks, rest)))
    return cat(parts, axis + 1)
