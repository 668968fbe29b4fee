"""Float64 scans by blocks of blocks, so that no running value ends a long chain of roundings.

What is narrower is carried in double precision, which itself has no wider type; and what a step of
a running log-sum or of a recurrence loses is no number that could be carried along. So a block of a
few elements is scanned by itself, the ends of the blocks are scanned in the same way, and what
stands before a block is joined with each of its elements: log₈ n short chains.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, bounds
from ridgeline.ops.elementwise import add, apply, full_like, mul, select, sub
from ridgeline.ops.movement import broadcast, pad, reshape, slice_
from ridgeline.ops.scan import SCAN, linear_scan, scan, shifted

_BLOCK = 8
_SHORT = 24  # elements that may be scanned one after the other


def blocked_scan(current: Node, inputs: Sequence[Node]) -> Node | None:
    """A long running log-sum or linear recurrence in float64 by blocks; None for other scans."""
    attrs, kind = current.attrs, current.types[0]
    length = kind.shape[attrs.axis]
    if kind.dtype is not dtypes.float64 or kind.device != "cpu":
        return None
    if _is_short(length):
        return None
    if current.op is not SCAN:
        return _recurrence(inputs[0], inputs[1], attrs.axis, attrs.reverse)
    return _log_sums(inputs[0], attrs.axis, attrs.reverse) if attrs.monoid == "logaddexp" else None


def _is_short(length: Size) -> bool:
    """True where the longest that an axis can be is scanned one after the other."""
    return bounds(length)[1] <= _SHORT


def _log_sums(a: Node, axis: int, reverse: bool) -> Node:
    if _is_short(a.shape[axis]):
        return scan(a, "logaddexp", axis, reverse)
    inner = scan(_in_blocks(a, axis, reverse, -np.inf), "logaddexp", axis + 1, reverse)
    ends = _log_sums(_ends(inner, axis, reverse), axis, reverse)
    before = shifted(ends, axis, -1 if reverse else 1, -np.inf)
    return _whole(_log_add(_along_blocks(before, inner, axis), inner), a, axis, reverse)


def _log_add(a: Node, b: Node) -> Node:
    """log(exp(a) + exp(b)) without overflow."""
    top, low = apply("max", a, b), apply("min", a, b)
    total = add(top, apply("log1p", apply("exp", sub(low, top))))
    infinite = apply("eq", apply("abs", top), full_like(top, np.inf))
    return select(infinite, top, total)


def _recurrence(a: Node, b: Node, axis: int, reverse: bool) -> Node:
    if _is_short(a.shape[axis]):
        return linear_scan(a, b, axis, reverse)
    factors, terms = _in_blocks(a, axis, reverse, 1.0), _in_blocks(b, axis, reverse, 0.0)
    inner = linear_scan(factors, terms, axis + 1, reverse)
    products = scan(factors, "prod", axis + 1, reverse)
    factor, end = _ends(products, axis, reverse), _ends(inner, axis, reverse)
    before = shifted(_recurrence(factor, end, axis, reverse), axis, -1 if reverse else 1, 0.0)
    start = _along_blocks(before, inner, axis)
    nothing = full_like(start, 0)  # stays nothing, though factors may overflow together
    came = select(apply("eq", start, nothing), nothing, mul(products, start))
    return _whole(add(came, inner), a, axis, reverse)


def _in_blocks(a: Node, axis: int, reverse: bool, fill: float) -> Node:
    """The axis as one that counts blocks and one inside a block; what is missing is filled up."""
    length = a.shape[axis]
    missing = (length + _BLOCK - 1) // _BLOCK * _BLOCK - length
    margin = tuple(missing if d == axis else 0 for d in range(len(a.shape)))
    none = (0,) * len(a.shape)
    low, high = (margin, none) if reverse else (none, margin)
    full = a if isinstance(missing, int) and not missing else pad(a, low, high, value=fill)
    return reshape(full, _cut(full.shape, axis))


def _cut(shape: tuple[Size, ...], axis: int) -> tuple[Size, ...]:
    return (*shape[:axis], shape[axis] // _BLOCK, _BLOCK, *shape[axis + 1 :])


def _ends(blocks: Node, axis: int, reverse: bool) -> Node:
    """Where the scan of each block ends."""
    rank = len(blocks.shape)
    starts = tuple((0 if reverse else _BLOCK - 1) if d == axis + 1 else 0 for d in range(rank))
    sizes = tuple(1 if d == axis + 1 else s for d, s in enumerate(blocks.shape))
    end = slice_(blocks, starts, sizes, (1,) * rank)
    return reshape(end, tuple(s for d, s in enumerate(end.shape) if d != axis + 1))


def _along_blocks(values: Node, blocks: Node, axis: int) -> Node:
    """A value of each block for all of its elements."""
    kept = tuple(d for d in range(len(blocks.shape)) if d != axis + 1)
    return broadcast(values, blocks.shape, kept)


def _whole(blocks: Node, like: Node, axis: int, reverse: bool) -> Node:
    """Blocks as one axis, without what was filled up."""
    length = blocks.shape[axis] * _BLOCK
    full = reshape(blocks, tuple(length if d == axis else s for d, s in enumerate(like.shape)))
    start = length - like.shape[axis] if reverse else 0
    starts = tuple(start if d == axis else 0 for d in range(len(like.shape)))
    return slice_(full, starts, like.shape, (1,) * len(like.shape))
