"""Sums of values that lie side by side among zeros, joined instead of added.

%1 = pad %0 [low=(0), high=(4)]       becomes   %1 = concat (%0 + 0), (%2 + 0)
%3 = pad %2 [low=(4), high=(0)]
%4 = add %1, %3

This is the gradient of everything that cuts a tensor into parts: `chunk`, `split`, `unbind`. The
zero that is added to every part keeps the identity exact to the bit, as -0 + 0 is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ridgeline.graph.node import Node
from ridgeline.graph.passes.canonicalize.splat import number_in, uniform
from ridgeline.graph.sizes import bounds
from ridgeline.ops.elementwise import ROWS, add, constant
from ridgeline.ops.movement import CONCAT, PAD, broadcast_scalar, concat

_ADD = ROWS["add"]


@dataclass(frozen=True, slots=True)
class _Spread:
    """Parts at places along an axis; zeros lie between them."""

    axis: int
    parts: dict[int, Node]


def join_parts(node: Node) -> Node | None:
    """A sum of two spread values whose parts do not overlap, as one of them."""
    if node.op is not _ADD or node.dtype.kind not in ("float", "int", "uint"):
        return None
    left, right = map(_spread, node.inputs)
    if left is None or right is None or left.axis != right.axis:
        return None
    axis, parts = left.axis, left.parts | right.parts
    places = sorted(parts)
    ends = {place: place + _length(part, axis) for place, part in parts.items()}
    overlap = any(ends[a] > b for a, b in pairwise(places))
    if overlap or len(parts) < len(left.parts) + len(right.parts):
        return None
    joined: list[Node] = []
    done = 0
    for place in places:
        joined += _zeros(node, axis, place - done)
        joined.append(_plus_zero(parts[place]))
        done = ends[place]
    joined += _zeros(node, axis, _length(node, axis) - done)
    return concat(joined, axis) if joined else None  # values without elements have no parts


def _spread(node: Node) -> _Spread | None:
    """What a padded value or a join consists of, where zeros are part of it."""
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
    axis, place = node.attrs.axis, 0
    parts: dict[int, Node] = {}
    for part in node.inputs:
        if part.shape[axis] != 0 and not _is_zero(number_in(part)):
            parts[place] = part
        place += _length(part, axis)
    return _Spread(axis, parts) if len(parts) < len(node.inputs) else None


def _is_zero(number: Any) -> bool:
    """True for 0, and not for -0, which leaves a trace where it is added."""
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
    return part if done else add(part, uniform(0, part))
