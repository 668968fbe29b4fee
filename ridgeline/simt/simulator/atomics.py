"""Atomic operations of many threads, in the order of their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.simt.ir import Atomic
from ridgeline.simt.simulator.lanes import AnyArray, IntArray

_AT: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def apply(op: Atomic, data: AnyArray, at: IntArray, value: Any, compare: Any) -> AnyArray:
    """Carry the operation out on elements, and give each thread the value it found."""
    if op.name == "cas" and data.dtype.kind not in "iu":  # it compares bits, as GPUs do
        words = (bits(part) for part in (value, compare))
        return np.asarray(apply(op, bits(data), at, *words).view(data.dtype))
    if op.name == "load":
        return data[at]
    if op.name == "store":
        found = data[at]
        data[at] = value
        return found
    if op.target is None and op.name in _AT and data.dtype.kind in "iuf" and data.itemsize >= 4:
        found = data[at]
        _AT[op.name].at(data, at, value)
        return found
    order = np.argsort(at, kind="stable")
    places = at[order]
    first = np.ones(len(at), bool)
    first[1:] = places[1:] != places[:-1]
    if first.all():
        found = data[at]
        data[at] = _combined(op, found, value, compare)
        return found
    if op.name in ("add", "sub") and data.dtype.kind in "iu":
        return _integer_sums(op, data, places, order, first, np.asarray(value))
    return _in_turn(op, data, at, value, compare)


def bits(values: AnyArray) -> AnyArray:
    """Elements as unsigned integers of their width; an array stays the same memory."""
    return np.asarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def _combined(op: Atomic, found: AnyArray, value: AnyArray, compare: Any) -> AnyArray:
    if op.name in _AT:
        wide = found.dtype.kind in "iu" or found.itemsize >= 4
        if wide:
            return np.asarray(_AT[op.name](found, value))
        joined = _AT[op.name](found.astype(np.float32), value.astype(np.float32))
        return np.asarray(joined.astype(found.dtype))
    if op.name == "exch":
        return value
    if op.name == "cas":
        return np.where(found == compare, value, found)
    one, at, most = found.dtype.type(1), bits(found), bits(value)  # they compare without a sign
    if op.name == "inc":
        return np.asarray(np.where(at >= most, found.dtype.type(0), found + one))
    return np.asarray(np.where((at == 0) | (at > most), value, found - one))


def _integer_sums(
    op: Atomic, data: AnyArray, places: IntArray, order: IntArray, first: AnyArray, value: AnyArray
) -> AnyArray:
    """Old values of many additions to one element: running sums within each element."""
    amounts = np.broadcast_to(value, order.shape)[order]
    amounts = amounts if op.name == "add" else (0 - amounts).astype(amounts.dtype)
    sums = np.cumsum(amounts, dtype=data.dtype)
    starts = np.flatnonzero(first)
    before = sums - amounts
    lengths = np.diff(np.append(starts, len(order)))
    relative = before - np.repeat(before[starts], lengths)
    found_sorted = data[places] + relative
    ends = starts + lengths - 1
    data[places[ends]] = found_sorted[ends] + amounts[ends]
    found = np.empty_like(found_sorted)
    found[order] = found_sorted
    return np.asarray(found)


def _in_turn(op: Atomic, data: AnyArray, at: IntArray, value: Any, compare: Any) -> AnyArray:
    """One thread of each element at a time; failed exchanges, which change nothing, at once."""
    found = np.empty(len(at), data.dtype)
    left = np.arange(len(at))
    value = np.broadcast_to(value, at.shape)
    other = None if compare is None else np.broadcast_to(compare, at.shape)
    while len(left):
        _, picked = np.unique(at[left], return_index=True)
        if other is not None:
            fails = data[at[left]] != other[left]
            failed = left[fails]
            if len(failed):
                # those before the first success see the element as it is, those after as it becomes
                winners = _first_success(at, left, fails)
                early = failed[winners]
                if len(early):
                    found[early] = data[at[early]]
                    left = np.setdiff1d(left, early, assume_unique=True)
                    continue
        turn = left[picked]
        old = data[at[turn]]
        found[turn] = old
        chosen = None if other is None else other[turn]
        data[at[turn]] = _combined(op, old, value[turn], chosen)
        left = np.delete(left, picked)
    return found


def _first_success(at: IntArray, left: IntArray, fails: AnyArray) -> AnyArray:
    """Of the failing threads, those before any that succeeds at the same element."""
    good = left[~fails]
    if not len(good):
        return np.ones(int(fails.sum()), bool)
    places, first = np.unique(at[good], return_index=True)
    failing = left[fails]
    spot = np.searchsorted(places, at[failing])
    spot = np.minimum(spot, len(places) - 1)
    known = places[spot] == at[failing]
    return np.asarray(~known | (failing < good[first[spot]]))
