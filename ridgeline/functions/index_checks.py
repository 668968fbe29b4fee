"""Helpers of the functions that take index tensors: checks, wrapping, ramps, moved axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, IndexShapeError
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops import movement
from ridgeline.ops.elementwise import cast, constant, full_like, iota, select
from ridgeline.ops.gather import asked, in_range


def as_index(index: Node, what: str) -> Node:
    """An index tensor in int64; its values are checked where they are used."""
    if not index.dtype.is_integer:
        raise DTypeError(
            f"{what} needs an integer index, got {index.dtype.name}", help="convert with .long()"
        )
    return cast(index, dtypes.int64)


def as_vector(index: Node, what: str) -> Node:
    """An index of at most one axis, in int64 and with exactly one."""
    indices = as_index(index, what)
    if len(indices.shape) > 1:
        raise IndexShapeError(f"{what} needs a vector as index, got shape {list(indices.shape)}")
    return lined(indices)


def wrapped(index: Node, size: Size, axis: int = 0) -> Node:
    """Negative indices counted from the end; known ones are checked, and left if none is."""
    if asked(index, partial(in_range, size, axis, True)):
        return index
    below = index < 0
    return select(below, index + size, index)


def harmless(index: Node, size: Size, touched: tuple[Size, ...]) -> Node:
    """The index; or zeros where it reaches no element of `touched`, and so may name any place."""
    return full_like(index, 0) if 0 in touched and size != 0 else index


def lined(node: Node) -> Node:
    """A 0-d node with one axis, which torch lets every dim= argument name."""
    return node if node.shape else movement.reshape(node, (1,))


def flat(node: Node) -> Node:
    """All elements in one axis."""
    return movement.reshape(node, (product(node.shape),))


def ramp(shape: tuple[Size, ...], axis: int) -> Node:
    """0, 1, 2 … along one axis, the same along the others."""
    return iota(shape, axis, dtypes.int64)


def number(shape: tuple[Size, ...], value: float, dtype: DType) -> Node:
    """One literal repeated over a shape."""
    return movement.broadcast_scalar(constant(value, dtype), shape)


def resized(shape: Sequence[Size], axis: int, size: Size) -> tuple[Size, ...]:
    """A shape with another size along one axis."""
    return tuple(size if a == axis else s for a, s in enumerate(shape))


def to_axis(picked: Node, axis: int, rank: int = 1) -> Node:
    """The first `rank` axes moved so that they start at `axis`."""
    total = len(picked.shape)
    order = [*range(rank, rank + axis), *range(rank), *range(rank + axis, total)]
    return movement.permute(picked, tuple(order))


def from_axis(node: Node, axis: int, rank: int = 1) -> Node:
    """The `rank` axes that start at `axis` moved to the front."""
    inner = range(axis, axis + rank)
    order = [*inner, *(a for a in range(len(node.shape)) if a not in inner)]
    return movement.permute(node, tuple(order))


def per_row(values: Node, like: Node) -> Node:
    """Values for the leading axes repeated along the others of `like`."""
    return movement.broadcast(values, like.shape, tuple(range(len(values.shape))))


def listed(tensors: Sequence[Any], what: str) -> list[Node]:
    """Tensors given one by one or as one list; anything else is an error."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors
    for tensor in given:
        if not isinstance(tensor, Node):
            raise DTypeError(f"{what} needs tensors, got {type(tensor).__name__}")
    return list(given)
