"""Rows of a table chosen by integers: embedding, bags of them, and one-hot vectors."""

from __future__ import annotations

import math

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.arithmetic import div, mul, sub
from ridgeline.functions.concrete import concrete
from ridgeline.functions.index_checks import as_index, flat, number, per_row, ramp
from ridgeline.functions.matrices import norm
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops import gather as rows, movement
from ridgeline.ops.checked import labels
from ridgeline.ops.elementwise import cast, full_like, select, stop_gradient
from ridgeline.ops.math import minimum
from ridgeline.ops.reduce import sum_
from ridgeline.record.cells import known


@public(method=False, name="_embedding")
def embedding(
    input: Node,
    weight: Node,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
) -> Node:
    """Rows of `weight`; the row at padding_idx gets no gradient."""
    if len(weight.shape) != 2:
        raise ShapeError(f"embedding needs a matrix of rows, got shape {list(weight.shape)}")
    indices = as_index(input, "embedding")
    found = rows.gather(weight, (indices,), (0,))
    if padding_idx is not None:
        count = known(weight.shape[0])
        if not -count <= padding_idx < count:
            raise BadValueError(f"padding_idx {padding_idx} is outside of {count} embeddings")
        padding = _is_row(indices, padding_idx, weight.shape[0])
        found = select(per_row(padding, found), stop_gradient(found), found)
    return _by_frequency(found, indices, weight.shape[0]) if scale_grad_by_freq else found


def _is_row(indices: Node, row: int, size: Size) -> Node:
    """True where an index names one row; a negative row counts from the end."""
    found = row + size if row < 0 else row
    return indices.eq(found)


@public(function=False, inplace=True)
def embedding_renorm(input: Node, indices: Node, max_norm: float, norm_type: float) -> Node:
    """The rows that the indices name scaled down to a norm of at most `max_norm`."""
    positions = flat(as_index(indices, "embedding_renorm"))
    used = number((input.shape[0],), False, dtypes.bool_)
    used = rows.scatter(used, number(positions.shape, True, dtypes.bool_), (positions,), (0,))
    lengths = norm(input, norm_type, 1)
    limit = full_like(lengths, float(max_norm))
    ratio = div(limit, lengths + 1e-07)
    shorten = used & (limit < lengths)
    return mul(input, per_row(select(shorten, ratio, full_like(ratio, 1)), input))


def _by_frequency(found: Node, indices: Node, size: Size) -> Node:
    """The same rows, with gradients divided by how often each row was asked for."""
    zeros, ones = number((size,), 0, found.dtype), number(indices.shape, 1, found.dtype)
    counts = rows.gather(rows.scatter(zeros, ones, (indices,), (0,), "add"), (indices,), (0,))
    still = stop_gradient(found)
    return still + div(sub(found, still), per_row(counts, found))


@public(method=False, name="_embedding_bag")
def embedding_bag(
    input: Node,
    weight: Node,
    offsets: Node | None = None,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    per_sample_weights: Node | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Node:
    """Sums, means or maxima over bags of rows of `weight`."""
    if mode not in ("sum", "mean", "max"):
        raise BadValueError(f'embedding_bag knows modes "sum", "mean" and "max", not {mode!r}')
    indices, bags, count = _bags(input, offsets, include_last_offset)
    found = embedding(indices, weight, padding_idx, scale_grad_by_freq)
    if per_sample_weights is not None:
        if mode != "sum":
            raise BadValueError('per_sample_weights need mode="sum"')
        found = mul(found, movement.reshape(per_sample_weights, (*indices.shape, 1)))
    taking_part = full_like(indices, 1)
    if padding_idx is not None:
        padding = _is_row(indices, padding_idx, weight.shape[0])
        taking_part = select(padding, full_like(indices, 0), taking_part)
        blank = full_like(found, -math.inf if mode == "max" else 0.0)
        found = select(per_row(padding, found), blank, found)
    sizes = rows.scatter(number((count,), 0, dtypes.int64), taking_part, (bags,), (0,), "add")
    return _joined_bags(found, bags, sizes, mode)


def _bags(input: Node, offsets: Node | None, include_last: bool) -> tuple[Node, Node, Size]:
    """Flat indices, the bag that each belongs to, and how many bags there are."""
    indices = as_index(input, "embedding_bag")
    if len(indices.shape) == 2:
        if offsets is not None:
            raise BadValueError("embedding_bag of a matrix of indices takes no offsets")
        return flat(indices), flat(ramp(indices.shape, 0)), indices.shape[0]
    if offsets is None or len(indices.shape) != 1:
        raise BadValueError("embedding_bag needs a matrix of indices, or a vector and offsets")
    count = offsets.shape[0] - 1 if include_last else offsets.shape[0]
    shape = (indices.shape[0], offsets.shape[0])
    starts = movement.broadcast(as_index(offsets, "embedding_bag"), shape, (1,))
    begun = cast(starts <= ramp(shape, 0), dtypes.int64)
    bag = sub(sum_(begun, (1,)), 1)
    return indices, minimum(bag, full_like(bag, count - 1)), count


def _joined_bags(found: Node, bags: Node, sizes: Node, mode: str) -> Node:
    blank = number((sizes.shape[0], found.shape[1]), 0, found.dtype)
    empty = per_row(sizes.eq(0), blank)
    if mode == "max":
        best = rows.scatter(full_like(blank, -math.inf), found, (bags,), (0,), "max")
        return select(empty, blank, best)
    total = rows.scatter(blank, found, (bags,), (0,), "add")
    if mode == "sum":
        return total
    count = per_row(cast(sizes, found.dtype), blank)
    return div(total, select(empty, full_like(count, 1), count))


@public(method=False)
def one_hot(tensor: Node, num_classes: int = -1) -> Node:
    """1 where the class is, 0 elsewhere, along a new last axis."""
    indices = as_index(tensor, "one_hot")
    if num_classes == -1:
        values = concrete(indices, "one_hot without num_classes", "pass num_classes=")
        if not values.size:
            raise BadValueError("one_hot of no elements needs num_classes")
        num_classes = int(values.max()) + 1
    elif num_classes < 1:
        raise BadValueError(f"one_hot needs at least one class, not {num_classes}")
    shape = (*indices.shape, num_classes)
    indices = labels(indices, num_classes, "one_hot")
    classes = ramp(shape, len(shape) - 1)
    return cast(classes.eq(per_row(indices, classes)), dtypes.int64)
