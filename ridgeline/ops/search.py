"""Binary search: where values would stand in sorted sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.sizes import bounds, product
from ridgeline.ops.movement import reshape, spread_all
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class SearchAttrs(Attrs):
    """Whether equal elements of the sequence stand before the value."""

    right: bool


def search(sequence: Node, values: Node, right: bool) -> Node:
    """How many elements of a sorted vector (or of each row) lie before each value."""
    return node(SEARCH, (sequence, values), SearchAttrs(right))


def _infer(types: Sequence[TensorType], attrs: SearchAttrs) -> tuple[TensorType, ...]:
    sequence, values = types
    if not sequence.shape or (len(sequence.shape) > 1 and sequence.shape[:-1] != values.shape[:-1]):
        raise ShapeError(f"cannot search {list(values.shape)} in {list(sequence.shape)}")
    if sequence.dtype is not values.dtype or sequence.dtype.is_complex:
        raise DTypeError(f"cannot search {values.dtype.name} in {sequence.dtype.name}")
    return (TensorType(values.shape, dtypes.int64, values.device),)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    side: Literal["left", "right"] = "right" if current.attrs.right else "left"
    narrow = inputs[0].dtype.kind == "V" or inputs[0].dtype == np.float16
    sequence, values = (i.astype(np.float32) if narrow else i for i in inputs)
    if sequence.ndim == 1:
        return (np.searchsorted(sequence, values, side).astype(np.int64),)
    count = math.prod(sequence.shape[:-1])
    rows, wanted = (a.reshape(count, a.shape[-1]) for a in (sequence, values))
    found = np.empty(wanted.shape, np.int64)
    for row, line in enumerate(rows):
        found[row] = np.searchsorted(line, wanted[row], side)
    return (found.reshape(values.shape),)


def _flat_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    return [None, None]


def _flat_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    return [None]


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    right = current.attrs.right
    if not batched[0] and len(inputs[0].shape) == 1:  # one sequence for all
        return [search(inputs[0], inputs[1], right)]
    sequence, values = spread_all(inputs, batched, batching)
    if len(sequence.shape) > 2:
        return [search(sequence, values, right)]
    rows = reshape(values, (batching.size, product(current.shape)))
    return [reshape(search(sequence, rows, right), values.shape)]


def _reads(current: Node) -> tuple[int, int]:
    """Every value is compared with as many elements of its sequence as halving takes."""
    size, length, elements = (
        bounds(product(shape))[1]
        for shape in (current.shape, current.inputs[0].shape[-1:], current.inputs[0].shape)
    )
    return size * length.bit_length() // max(elements, 1), 1


SEARCH = Op("search", "own_loops", _infer, _value, _flat_vjp, _flat_jvp, _batch, reads=_reads)
