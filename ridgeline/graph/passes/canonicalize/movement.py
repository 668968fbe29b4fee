"""Simplify chains of movement ops: reshape, permute, slice, pad, broadcast, concat.

%1 = permute %0 [order=(1, 0)]       becomes   %0
%2 = permute %1 [order=(1, 0)]

What stays is the single step that reads memory; values that need no step of their own are not
written to memory by fusion.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ridgeline.graph.node import Node, Op
from ridgeline.graph.sizes import bounds
from ridgeline.ops.checked import CHECKED
from ridgeline.ops.elementwise import ROWS, constant, number_in
from ridgeline.ops.movement import (
    BROADCAST,
    CONCAT,
    PAD,
    PERMUTE,
    RESHAPE,
    SLICE,
    broadcast,
    broadcast_scalar,
    concat,
    pad,
    permute,
    reshape,
    slice_,
)


def _increasing(numbers: tuple[int, ...]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _reshape(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.shape == node.shape:
        return inner
    return reshape(inner.inputs[0], node.shape) if inner.op is RESHAPE else None


def _permute(node: Node) -> Node | None:
    inner, order = node.inputs[0], node.attrs.order
    if inner.op is PERMUTE:
        return permute(inner.inputs[0], tuple(inner.attrs.order[a] for a in order))
    if inner.op is BROADCAST:
        axes = tuple(order.index(a) for a in inner.attrs.axes)
        return broadcast(inner.inputs[0], node.shape, axes) if _increasing(axes) else None
    if _increasing(tuple(a for a in order if inner.shape[a] != 1)):
        return reshape(inner, node.shape)  # only axes of size 1 move
    return None


def _broadcast(node: Node) -> Node | None:
    inner, attrs = node.inputs[0], node.attrs
    if inner.op is BROADCAST:
        axes = tuple(attrs.axes[a] for a in inner.attrs.axes)
        return broadcast(inner.inputs[0], attrs.shape, axes)
    if number_in(node) is not None:
        return None  # the one form of a number over a shape
    kept = dict(zip(attrs.axes, inner.shape))
    if _increasing(attrs.axes) and all(kept.get(a, 1) == s for a, s in enumerate(attrs.shape)):
        return reshape(inner, attrs.shape)  # nothing is repeated
    return None


def _slice(node: Node) -> Node | None:
    inner, attrs = node.inputs[0], node.attrs
    if inner.shape == node.shape and not any(attrs.starts) and all(s == 1 for s in attrs.steps):
        return inner
    if inner.op is SLICE:
        below = inner.attrs
        starts = tuple(b + s * t for b, s, t in zip(below.starts, attrs.starts, below.steps))
        steps = tuple(s * t for s, t in zip(attrs.steps, below.steps))
        return slice_(inner.inputs[0], starts, attrs.sizes, steps)
    if inner.op is BROADCAST and not inner.inputs[0].shape:
        return broadcast(inner.inputs[0], node.shape, ())
    if inner.op is PAD:
        return _slice_of_pad(node, inner)
    return _slice_of_concat(node, inner) if inner.op is CONCAT else None


def _slice_of_pad(node: Node, inner: Node) -> Node | None:
    """A slice without padding reads the source of the pad."""
    source, attrs = inner.inputs[0], node.attrs
    if any(inner.attrs.interior) or 0 in attrs.sizes:
        return None
    starts = tuple(start - low for start, low in zip(attrs.starts, inner.attrs.low))
    for start, size, step, length in zip(starts, attrs.sizes, attrs.steps, source.shape):
        if not (isinstance(size, int) and isinstance(length, int)):
            return None
        ends = (start, start + (size - 1) * step)
        if min(ends) < 0 or max(ends) >= length:
            return None
    return slice_(source, starts, attrs.sizes, attrs.steps)


def _slice_of_concat(node: Node, inner: Node) -> Node | None:
    """A slice of one part only is a slice of that part."""
    axis, attrs = inner.attrs.axis, node.attrs
    start, size, step = attrs.starts[axis], attrs.sizes[axis], attrs.steps[axis]
    if not isinstance(size, int) or size == 0:
        return None
    first, last = sorted((start, start + (size - 1) * step))
    begin = 0
    for part in inner.inputs:
        length = part.shape[axis]
        if not isinstance(length, int):
            return None
        if begin <= first and last < begin + length:
            starts = (*attrs.starts[:axis], start - begin, *attrs.starts[axis + 1 :])
            return slice_(part, starts, attrs.sizes, attrs.steps)
        begin += length
    return None


def _pad(node: Node) -> Node | None:
    inner, attrs = node.inputs[0], node.attrs
    if not any(attrs.low) and not any(attrs.high) and not any(attrs.interior):
        return inner
    if inner.op is not PAD:
        return None
    below = inner.attrs
    if (below.value, below.sign) != (attrs.value, attrs.sign):
        return None
    if any(w < 0 for w in (*attrs.low, *attrs.high, *below.low, *below.high)):
        return None  # cutting off and adding again is not adding less
    sides = zip(attrs.interior, below.low, below.high, below.interior)
    if any(between and any(own) for between, *own in sides):
        return None  # margins would be spread out as well
    low = tuple(a + b for a, b in zip(attrs.low, below.low))
    high = tuple(a + b for a, b in zip(attrs.high, below.high))
    between = tuple(a or b for a, b in zip(attrs.interior, below.interior))
    return pad(inner.inputs[0], low, high, between, attrs.value)


def _concat(node: Node) -> Node | None:
    """A concatenation of neighbouring slices of one tensor is one slice."""
    axis, parts = node.attrs.axis, list(node.inputs)
    kept = [p for p in parts if p.shape[axis] != 0]
    joined: list[Node] = []
    for part in kept:
        whole = _continued(joined[-1], part, axis) if joined else None
        if whole is None:
            joined.append(part)
        else:
            joined[-1] = whole
    if not joined or len(joined) == len(parts):
        return None
    return concat(joined, axis)


def _continued(before: Node, after: Node, axis: int) -> Node | None:
    if before.op is not SLICE or after.op is not SLICE or before.inputs != after.inputs:
        return None
    a, b = before.attrs, after.attrs
    elsewhere = [d for d in range(len(a.starts)) if d != axis]
    apart = a.steps != b.steps or any(a.starts[d] != b.starts[d] for d in elsewhere)
    if apart or a.starts[axis] + a.sizes[axis] * a.steps[axis] != b.starts[axis]:
        return None
    sizes = (*a.sizes[:axis], a.sizes[axis] + b.sizes[axis], *a.sizes[axis + 1 :])
    made = slice_(before.inputs[0], a.starts, sizes, a.steps)
    shorter = _slice(made) if made.op is SLICE else None
    return made if shorter is None else shorter


_MOVES: dict[Op, Callable[[Node], Node | None]] = {
    RESHAPE: _reshape, PERMUTE: _permute, BROADCAST: _broadcast, SLICE: _slice, PAD: _pad,
    CONCAT: _concat, CHECKED: lambda node: node.inputs[0],  # a program checks beside its kernels
}  # fmt: skip


def simplify_moves(node: Node) -> Node | None:
    """Move less, or read from a node nearer to memory."""
    rule = _MOVES.get(node.op)
    return rule(node) if rule is not None else None


# ---- sums of values that lie side by side among zeros, joined instead of added -------------------
# %1 = pad %0 [low=(0), high=(4)]       becomes   %1 = concat (%0 + 0), (%2 + 0)
# %3 = pad %2 [low=(4), high=(0)]
# %4 = add %1, %3
#
# This is the gradient of everything that cuts a tensor into parts: `chunk`, `split`, `unbind`. The
# zero that is added to every part keeps the identity exact to the bit, as -0 + 0 is 0.


_ADD = ROWS["add"]


@dataclass(frozen=True, slots=True)
class _Spread:
    """Parts at offsets along an axis, with zeros between them."""

    axis: int
    parts: dict[int, Node]


def join_parts(node: Node) -> Node | None:
    """A sum of two spread values whose parts do not overlap, as one spread value."""
    if node.op is not _ADD or node.dtype.kind not in ("float", "int", "uint"):
        return None
    left, right = map(_spread, node.inputs)
    if left is None or right is None or left.axis != right.axis:
        return None
    axis, parts = left.axis, left.parts | right.parts
    starts = sorted(parts)
    ends = {start: start + _length(part, axis) for start, part in parts.items()}
    overlap = any(ends[a] > b for a, b in pairwise(starts))
    if overlap or len(parts) < len(left.parts) + len(right.parts):
        return None
    joined: list[Node] = []
    done = 0
    for start in starts:
        joined += _zeros(node, axis, start - done)
        joined.append(_plus_zero(parts[start]))
        done = ends[start]
    joined += _zeros(node, axis, _length(node, axis) - done)
    return concat(joined, axis) if joined else None  # values without elements have no parts


def _spread(node: Node) -> _Spread | None:
    """The parts of a padded value or a concatenation that contains zeros."""
    if not all(isinstance(size, int) for size in node.shape):
        return None
    if node.op is PAD:
        attrs = node.attrs
        sides = (attrs.low, attrs.high, attrs.interior)
        moved = [a for a, widths in enumerate(zip(*sides)) if any(widths)]
        if len(moved) != 1 or any(attrs.interior) or not _is_zero(attrs.value):
            return None
        (axis,) = moved
        inside = min(attrs.low[axis], attrs.high[axis]) >= 0 and node.inputs[0].shape[axis] != 0
        return _Spread(axis, {attrs.low[axis]: node.inputs[0]}) if inside else None
    if node.op is not CONCAT:
        return None
    axis, start = node.attrs.axis, 0
    parts: dict[int, Node] = {}
    for part in node.inputs:
        if part.shape[axis] != 0 and not _is_zero(number_in(part)):
            parts[start] = part
        start += _length(part, axis)
    return _Spread(axis, parts) if len(parts) < len(node.inputs) else None


def _is_zero(number: Any) -> bool:
    """True for 0 but not for -0, which changes what it is added to."""
    return number is not None and number == 0 and math.copysign(1, number) > 0


def _length(node: Node, axis: int) -> int:
    return bounds(node.shape[axis])[1]


def _zeros(like: Node, axis: int, length: int) -> list[Node]:
    if not length:
        return []
    shape = (*like.shape[:axis], length, *like.shape[axis + 1 :])
    return [broadcast_scalar(constant(0, like.dtype, like.type.device), shape)]


def _plus_zero(part: Node) -> Node:
    if part.dtype.kind != "float":
        return part
    done = part.op is _ADD and any(_is_zero(number_in(i)) for i in part.inputs)
    return part if done else part + 0
