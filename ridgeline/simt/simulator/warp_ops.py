"""What lanes of a warp compute together, for many warps at once, over [warp, 32] matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.simt.ir import WarpOp
from ridgeline.simt.simulator.lanes import AnyArray, IntArray

FULL = np.uint32(0xFFFFFFFF)
_BIT = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)


def lane_bits(ids: IntArray) -> AnyArray:
    """The bit of each thread's lane."""
    return np.asarray(_BIT[ids & 31])


def present_masks(ids: IntArray, warps: int) -> AnyArray:
    """For each warp, which of its lanes are among the threads."""
    found = np.zeros(warps, np.uint32)
    np.bitwise_or.at(found, ids >> 5, lane_bits(ids))
    return found


def shuffle_sources(op: WarpOp, ids: IntArray, argument: AnyArray) -> IntArray:
    """The lane that each thread reads; its own where the shuffle stays in place."""
    lane, width = ids & 31, op.width
    group = lane & ~(width - 1)
    amount = argument.astype(np.int64)
    if op.name == "shfl":
        return group + (amount & (width - 1))
    if op.name == "shfl_xor":
        target = lane ^ amount
        return np.where((target < 32) & (target >= 0) & (target < group + width), target, lane)
    target = lane - amount if op.name == "shfl_up" else lane + amount
    inside = (target >= group) & (target < group + width)
    return np.where(inside, target, lane)


def matrix(ids: IntArray, values: AnyArray) -> tuple[AnyArray, IntArray]:
    """Values in rows of 32 lanes, and the row of each thread."""
    warps, rows = np.unique(ids >> 5, return_inverse=True)
    table = np.zeros((len(warps), 32), values.dtype)
    table[rows, ids & 31] = values
    return table, rows


def vote(name: str, ids: IntArray, predicate: AnyArray, masks: AnyArray) -> Any:
    """ballot, any and all over each thread's mask."""
    warps, rows = np.unique(ids >> 5, return_inverse=True)
    words = np.zeros(len(warps), np.uint32)
    np.bitwise_or.at(words, rows, np.where(predicate, lane_bits(ids), np.uint32(0)))
    own = words[rows] & masks
    if name == "ballot":
        return own
    return own != 0 if name == "any" else own == masks


def match(ids: IntArray, values: AnyArray, masks: AnyArray) -> AnyArray:
    """Which lanes of the mask hold the thread's own value."""
    bits = np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))
    table, rows = matrix(ids, bits)
    same = table[rows] == bits[:, None]
    words = (same * _BIT[None, :]).sum(axis=1).astype(np.uint32)
    return np.asarray(words & masks)


def reduce(name: str, ids: IntArray, values: AnyArray, masks: AnyArray) -> AnyArray:
    """A reduction over each thread's mask, in the order of a butterfly of halves."""
    table, rows = matrix(ids, values)
    taken = (masks[:, None] & _BIT[None, :]) != 0
    wide = table[rows]
    if name == "sum":
        part = np.where(taken, wide, wide.dtype.type(0))
        while part.shape[1] > 1:
            half = part.shape[1] // 2
            part = (part[:, :half] + part[:, half:]).astype(values.dtype)
        return np.asarray(part[:, 0])
    first = values[:, None]  # any lane's own value is neutral for these
    part = np.where(taken, wide, first)
    joined = {
        "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    }.get(name)  # fmt: skip
    if joined is not None:
        return np.asarray(joined.reduce(part, axis=1))
    return np.asarray(np.bitwise_xor.reduce(np.where(taken, wide, wide.dtype.type(0)), axis=1))
