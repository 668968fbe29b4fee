"""Interval arithmetic against counting cells on a small grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from ridgeline.profile import intervals as iv

SIZE = 40
pairs = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)


def cells(rows) -> set[int]:
    return {cell for low, high in rows for cell in range(int(low), int(high))}


def as_set(rows):
    edges = np.array(rows, dtype=float).reshape(-1, 2)
    return iv.union(edges[:, 0], edges[:, 1])


def check(result, expected: set[int]) -> None:
    assert cells(result) == expected
    assert iv.measure(result) == len(expected)
    # Disjoint, sorted, not empty, not touching.
    assert (result[:, 1] > result[:, 0]).all()
    assert (result[1:, 0] > result[:-1, 1]).all()


@given(pairs)
def test_union(rows):
    check(as_set(rows), cells(rows))


@given(pairs, pairs)
def test_two_sets(left, right):
    one, other = as_set(left), as_set(right)
    check(iv.intersect(one, other), cells(left) & cells(right))
    check(iv.subtract(one, other), cells(left) - cells(right))
    check(iv.merge((one, other)), cells(left) | cells(right))


@given(pairs, st.integers(0, SIZE), st.integers(1, SIZE))
def test_clip_and_complement(rows, low, length):
    whole, inside = as_set(rows), set(range(low, low + length))
    check(iv.clip(whole, low, low + length), cells(rows) & inside)
    check(iv.complement(whole, low, low + length), inside - cells(rows))


@given(pairs, st.integers(1, 5))
def test_closed_fills_small_gaps_only(rows, gap):
    whole = as_set(rows)
    filled = iv.closed(whole, gap)
    assert cells(whole) <= cells(filled)
    assert (filled[1:, 0] - filled[:-1, 1] >= gap - 1e-9).all() if len(filled) > 1 else True
