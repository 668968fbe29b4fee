"""A radix pass by many thread blocks: each sorts a tile of a row.

`digit_counts` says how often each digit occurs in each tile. The sum of all counts before one, in
the order of digits and then of tiles, is where the elements of a tile with that digit begin in the
row; `tiled_pass` sorts each tile and moves its elements there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import PROJ, Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import leading
from ridgeline.ops.movement import pad, reshape, slice_
from ridgeline.ops.radix import DigitAttrs, radix_value
from ridgeline.ops.scan import scan
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class TileAttrs(Attrs):
    """Which bits of the keys a pass sorts by, and the elements of a tile."""

    shift: int
    bits: int
    tile: int


def tiles_of(length: int, attrs: TileAttrs) -> int:
    """How many tiles a row has."""
    return -(-length // attrs.tile)


def _infer_counts(types: Sequence[TensorType], attrs: TileAttrs) -> tuple[TensorType, ...]:
    *rows, length = types[0].shape
    assert isinstance(length, int), "rows are cut into tiles when their length is known"
    shape = (*rows, 1 << attrs.bits, tiles_of(length, attrs))
    return (TensorType(shape, dtypes.int32, types[0].device),)


def _counts_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    (keys,) = inputs
    attrs, (*rows, digits, tiles) = current.attrs, current.shape
    found = (keys >> keys.dtype.type(attrs.shift)) & keys.dtype.type(digits - 1)
    counts = np.zeros((*rows, digits, tiles), np.int32)
    for tile in range(tiles):
        part = found[..., tile * attrs.tile : (tile + 1) * attrs.tile]
        for row in np.ndindex(*rows):
            counts[(*row, slice(None), tile)] = np.bincount(part[row], minlength=digits)
    return (counts,)


DIGIT_COUNTS = Op("digit_counts", "own_loops", _infer_counts, _counts_value, batch=leading)
TILED = Op(
    "tiled_pass",
    "own_loops",
    lambda types, attrs: tuple(types[:2]),
    lambda current, inputs: radix_value(current, inputs[:2]),
    batch=leading,
)


def tiled(keys: Node, order: Node, digit: DigitAttrs, tile: int) -> tuple[Node, Node]:
    """A radix pass by tiles; a row that is one tile needs no counts, and no passes but one."""
    attrs = TileAttrs(digit.shift, digit.bits, tile)
    inputs = [keys, order]
    length = keys.shape[-1]
    assert isinstance(length, int), "rows are cut into tiles when their length is known"
    if tiles_of(length, attrs) > 1:
        counts = node(DIGIT_COUNTS, (keys,), attrs)
        flat = reshape(counts, (*keys.shape[:-1], (1 << digit.bits) * tiles_of(length, attrs)))
        inputs.append(reshape(scan(_delayed(flat), "sum", len(flat.shape) - 1), counts.shape))
    elif (before := _pass_before(keys, order)) is not None:
        low: TileAttrs = before.attrs
        attrs = TileAttrs(low.shift, low.bits + digit.bits, tile)
        inputs = [*before.inputs]
    both = node(TILED, inputs, attrs)
    return proj(both, 0), proj(both, 1)


def _delayed(counts: Node) -> Node:
    """Every count in the place of the next: sums up to there leave out what is there."""
    none = (0,) * (len(counts.shape) - 1)
    sizes = (*counts.shape[:-1], counts.shape[-1] - 1)
    kept = slice_(counts, (*none, 0), sizes, (1,) * len(counts.shape))
    return pad(kept, (*none, 1), (*none, 0))


def _pass_before(keys: Node, order: Node) -> Node | None:
    """The pass by the bits below whose results these are."""
    if not (keys.op is PROJ and order.op is PROJ and keys.inputs == order.inputs):
        return None
    before = keys.inputs[0]
    return before if before.op is TILED and len(before.inputs) == 2 else None
