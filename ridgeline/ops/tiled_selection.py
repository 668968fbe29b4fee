"""The smallest elements of a row, selected by many thread blocks: each takes a tile.

What is among the `count` smallest of a row is among the `count` smallest of its tile. So
`tile_smallest` leaves these of every tile, in the order in which they stand, and the same is done
with what is left until it is one tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import leading
from ridgeline.ops.elementwise import iota
from ridgeline.ops.radix import MOST_OF_TILE, TILE_SMALLEST_NAME
from ridgeline.scalars import Array

LONGEST = 4 * MOST_OF_TILE  # elements of a tile, which the threads of a block keep in registers


@dataclass(frozen=True, slots=True)
class SelectionAttrs(Attrs):
    """How many elements are wanted of a tile, and how many it has (the last one fewer)."""

    count: int
    tile: int


def tiles_of(length: int, attrs: SelectionAttrs) -> int:
    """How many tiles a row has."""
    return -(-length // attrs.tile)


def _infer(types: Sequence[TensorType], attrs: SelectionAttrs) -> tuple[TensorType, ...]:
    *rows, length = types[0].shape
    assert isinstance(length, int), "rows are cut into tiles when their length is known"
    shape = (*rows, tiles_of(length, attrs) * attrs.count)
    return tuple(TensorType(shape, kind.dtype, kind.device) for kind in types)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    keys, order = inputs
    attrs = current.attrs
    chosen = []
    for begin in range(0, keys.shape[-1], attrs.tile):
        part = keys[..., begin : begin + attrs.tile]
        first = np.argsort(part, axis=-1, kind="stable")[..., : attrs.count]
        chosen.append(np.sort(first, axis=-1) + begin)
    indices = np.concatenate(chosen, -1)
    return np.take_along_axis(keys, indices, -1), np.take_along_axis(order, indices, -1)


TILE_SMALLEST = Op(TILE_SMALLEST_NAME, "own_loops", _infer, _value, batch=leading)


def tile_size(length: int, count: int, longest: int) -> int | None:
    """Elements of tiles of about one size, of which the last has enough; None if none do."""
    least = -(-length // longest)
    for tiles in range(least, 2 * least + 1):
        size = -(-length // tiles)
        last = length - (-(-length // size) - 1) * size
        if last >= count:
            return size
    return None


def smallest_by_tiles(keys: Node, count: int) -> tuple[Node, Node] | None:
    """The smallest keys of rows and where they stand, in their order; None where rows do not fit.

    Each round leaves at most a quarter of a row.
    """
    length = keys.shape[-1]
    if not isinstance(length, int) or not 0 < count <= min(MOST_OF_TILE, length // 4):
        return None
    order = iota(keys.shape, len(keys.shape) - 1, dtypes.int32, keys.type.device)
    while length > count:
        size = tile_size(length, count, LONGEST)
        if size is None:
            return None
        both = node(TILE_SMALLEST, (keys, order), SelectionAttrs(count, size))
        keys, order = proj(both, 0), proj(both, 1)
        length = tiles_of(length, both.attrs) * count
    return keys, order
