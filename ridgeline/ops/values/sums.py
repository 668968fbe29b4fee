"""Sums in NumPy whose error grows with the logarithm of how many numbers they are made of.

What is narrower than double precision is summed in it, one number after the other, and rounded
once at the end: millions of roundings that small are nothing. Double precision itself is summed
in pairs; running sums of it carry along what each addition lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ridgeline.scalars import Array


def summed_in(dtype: np.dtype) -> np.dtype:
    """The type in which numbers of a type are summed: double precision for all that round."""
    if dtype.kind == "c":
        return np.dtype(np.complex128)
    return dtype if dtype.kind in "biu" else np.dtype(np.float64)


def total(array: Array, axes: Sequence[int]) -> Array:
    """The sum along axes, not yet rounded."""
    wide = summed_in(array.dtype)
    if wide != array.dtype or wide.kind in "biu":
        return np.asarray(np.add.reduce(array, axis=tuple(axes), dtype=wide))
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    rows = np.ascontiguousarray(np.transpose(array, (*kept, *axes)))
    last = tuple(range(len(kept), array.ndim))
    flat = rows.reshape(*rows.shape[: len(kept)], int(np.prod([rows.shape[a] for a in last])))
    return np.asarray(np.add.reduce(flat, axis=-1))  # numpy pairs numbers that lie side by side


def running(join: Callable[[Array, Array], Array], array: Array, axis: int) -> Array:
    """Each element joined with all before it, in pairs, then pairs of pairs, and so on."""
    result = np.moveaxis(array, axis, 0)
    reach = 1
    while reach < len(result):
        result = np.concatenate([result[:reach], join(result[:-reach], result[reach:])])
        reach *= 2
    return np.moveaxis(result, 0, axis)


def running_sums(array: Array, axis: int) -> Array:
    """The sum of each element and those before it, in double precision, nearly rounded once."""
    values = np.moveaxis(array, axis, 0)
    result = np.add.accumulate(values, axis=0)
    before, after = result[:-1], result[1:]
    added = after - before
    lost = (before - (after - added)) + (values[1:] - added)  # exactly, where nothing overflowed
    lost[~np.isfinite(lost)] = 0
    result[1:] += np.add.accumulate(lost, axis=0)
    return np.moveaxis(result, 0, axis)


def recurrence(factors: Array, terms: Array, order: Sequence[int], result: Array) -> None:
    """state := factor * state + term in double precision, with what each step lost beside it."""
    state = np.zeros(terms.shape[1:])
    lost = np.zeros_like(state)
    for position in order:
        factor, term = factors[position], terms[position]
        product = factor * state
        total = product + term
        added = total - product
        missed = (product - (total - added)) + (term - added) + _rounding(factor, state, product)
        lost = factor * lost + missed
        lost, state = np.where(np.isfinite(lost), lost, 0.0), total
        result[position] = total + lost


def _rounding(a: Array, b: Array, product: Array) -> Array:
    """What a product lost, exactly where nothing overflows: its factors are cut in halves."""
    (high, low), (top, rest) = _halves(a), _halves(b)
    lost: Array = ((high * top - product) + high * rest + low * top) + low * rest
    return lost


def _halves(a: Array) -> tuple[Array, Array]:
    """A number as a sum of two with half as many digits."""
    large = a * (2.0**27 + 1)
    high = large - (large - a)
    return high, a - high


def scattered(base: Array, updates: Array, indices: Sequence[Array]) -> Array:
    """The base with updates added where indices along its first axes say, not yet rounded."""
    wide = summed_in(base.dtype)
    result = base.astype(wide)
    if wide != base.dtype or wide.kind in "biu" or not updates.size:
        np.add.at(result, tuple(indices), updates.astype(wide))
        return result
    extents = base.shape[: len(indices)]
    flat = np.ravel_multi_index([np.ravel(index) for index in indices], extents)
    order = np.argsort(flat, kind="stable")
    values = updates.reshape(-1, *base.shape[len(indices) :])[order]
    flat, values = _joined_in_pairs(flat[order], values)
    result[np.unravel_index(flat, extents)] += values
    return result


def _joined_in_pairs(flat: Array, values: Array) -> tuple[Array, Array]:
    """Values of which those of one place, which follow one another, are summed."""
    while (flat[1:] == flat[:-1]).any():
        starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
        lengths = np.diff([*starts, len(flat)])
        turn = np.arange(len(flat)) - np.repeat(starts, lengths)
        kept = np.flatnonzero(turn % 2 == 0)
        left = kept[kept + 1 < len(flat)]
        left = left[flat[left] == flat[left + 1]]
        values[left] += values[left + 1]
        flat, values = flat[kept], values[kept]
    return flat, values
