"""Arithmetic on sets of time intervals: union, intersection, difference, measure.

A set is an (n, 2) float array of disjoint, sorted, non-empty [start, end) rows. Any list of
possibly overlapping intervals becomes one through `union`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.float64]

EMPTY: Intervals = np.zeros((0, 2))
EMPTY.setflags(write=False)


def union(start: NDArray[np.float64], end: NDArray[np.float64]) -> Intervals:
    """The time covered by at least one of the given intervals; empty and reversed ones vanish."""
    real = end > start
    start, end = start[real], end[real]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    # A new piece begins where a start lies beyond everything seen so far.
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.stack((start[opens], reach[closes]), axis=1)


def merge(sets: Iterable[Intervals]) -> Intervals:
    """The union of several sets."""
    rows = np.concatenate([EMPTY, *sets])
    return union(rows[:, 0], rows[:, 1])


def measure(intervals: Intervals) -> float:
    """Total length."""
    return float(np.sum(intervals[:, 1] - intervals[:, 0]))


def closed(intervals: Intervals, gap: float) -> Intervals:
    """The set with gaps shorter than `gap` filled in."""
    if not len(intervals):
        return intervals
    joined = union(intervals[:, 0], intervals[:, 1] + gap)
    joined[:, 1] -= gap
    return joined


def clip(intervals: Intervals, low: float, high: float) -> Intervals:
    """The part inside [low, high)."""
    if not len(intervals):
        return EMPTY
    start = np.maximum(intervals[:, 0], low)
    end = np.minimum(intervals[:, 1], high)
    keep = end > start
    return np.stack((start[keep], end[keep]), axis=1)


def complement(intervals: Intervals, low: float, high: float) -> Intervals:
    """What [low, high) holds besides the set."""
    inside = clip(intervals, low, high)
    start = np.concatenate(([low], inside[:, 1]))
    end = np.concatenate((inside[:, 0], [high]))
    keep = end > start
    return np.stack((start[keep], end[keep]), axis=1)


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """The time in both sets."""
    if not len(left) or not len(right):
        return EMPTY
    low = min(left[0, 0], right[0, 0])
    high = max(left[-1, 1], right[-1, 1])
    outside = merge((complement(left, low, high), complement(right, low, high)))
    return complement(outside, low, high)


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """The time in the first set but not in the second."""
    if not len(left) or not len(right):
        return left
    low, high = float(left[0, 0]), float(left[-1, 1])
    return intersect(left, complement(right, low, high))
