"""Symmetric and Hermitian indefinite factorisations A = P L D L^T P^T, one matrix at a time.

The pivots are Bunch's and Kaufman's, in LAPACK's packed form: D lies on the diagonal and, where its
blocks are 2 by 2, below it; L fills the rest of the lower triangle. A positive pivot names the row
(from 1) exchanged for a block of one, a negative one, twice, the row for a block of two.
"""

from __future__ import annotations

import math

import numpy as np

from ridgeline.scalars import Array

_GROWTH = (1 + math.sqrt(17)) / 8  # balances the growth of elements over both sizes of blocks


def factored(a: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    """Packed factors, pivots, and per matrix 0 or the place of the first block that is zero."""
    size = a.shape[-1]
    packed = np.tril(a).reshape(math.prod(a.shape[:-2]), size, size)
    pivots = np.zeros((len(packed), size), np.int32)
    info = np.zeros(len(packed), np.int32)
    for number, matrix in enumerate(packed):
        info[number] = _factor(matrix, pivots[number], hermitian)
    lead = a.shape[:-2]
    return packed.reshape(a.shape), pivots.reshape(*lead, size), info.reshape(lead)


def _magnitude(values: Array) -> Array:
    return np.asarray(np.abs(values.real) + np.abs(values.imag))  # as LAPACK compares


def _factor(a: Array, pivots: Array, hermitian: bool) -> int:
    """Factor the lower triangle of one matrix in its place."""
    size, k, info = len(a), 0, 0
    while k < size:
        row, width, zero = _pivot(a, k, hermitian)
        info = k + 1 if zero and not info else info
        if row != k + width - 1:
            _exchange(a, k, width, row, hermitian)
        if hermitian:
            for column in range(k, k + width):
                a[column, column] = a[column, column].real
        if not zero:
            _eliminate(a, k, width, hermitian)
        pivots[k : k + width] = row + 1 if width == 1 else -(row + 1)
        k += width
    return info


def _pivot(a: Array, k: int, hermitian: bool) -> tuple[int, int, bool]:
    """The row to exchange, the size of the block, and whether the whole column is zero."""
    own = float(abs(a[k, k].real) if hermitian else _magnitude(a[k, k]))
    below = _magnitude(a[k + 1 :, k])
    far = k + 1 + int(below.argmax()) if below.size else k
    largest = float(below.max(initial=0.0))
    if max(own, largest) == 0 or math.isnan(own):
        return k, 1, True
    if own >= _GROWTH * largest:
        return k, 1, False
    beside = max(
        float(_magnitude(a[far, k:far]).max(initial=0.0)),
        float(_magnitude(a[far + 1 :, far]).max(initial=0.0)),
    )
    if own * beside >= _GROWTH * largest * largest:
        return k, 1, False
    other = float(abs(a[far, far].real) if hermitian else _magnitude(a[far, far]))
    return far, 1 if other >= _GROWTH * beside else 2, False


def _exchange(a: Array, k: int, width: int, row: int, hermitian: bool) -> None:
    """Exchange a row and column of the trailing matrix, kept as its lower triangle."""
    last = k + width - 1
    a[row + 1 :, [last, row]] = a[row + 1 :, [row, last]]
    between = a[last + 1 : row, last].copy()
    crossing = a[row, last + 1 : row].copy()
    if hermitian:
        between, crossing = between.conj(), crossing.conj()
        a[row, last] = a[row, last].conj()
    a[last + 1 : row, last], a[row, last + 1 : row] = crossing, between
    a[last, last], a[row, row] = a[row, row], a[last, last]
    if width == 2:
        a[last, k], a[row, k] = a[row, k], a[last, k]


def _block(a: Array, k: int, hermitian: bool) -> Array:
    """The 2 by 2 block of D at a place, whole."""
    corner = a[k + 1, k]
    above = corner.conj() if hermitian else corner
    return np.array([[a[k, k], above], [corner, a[k + 1, k + 1]]], a.dtype)


def _eliminate(a: Array, k: int, width: int, hermitian: bool) -> None:
    """Divide the columns of a block by it and take their product off the trailing matrix."""
    rest = slice(k + width, None)
    columns = a[rest, k : k + width].copy()
    if width == 1:
        factors = columns / a[k, k]
    else:
        factors = columns @ np.linalg.inv(_block(a, k, hermitian))
    turned = columns.conj().T if hermitian else columns.T
    a[rest, rest] -= np.tril(factors @ turned)
    a[rest, k : k + width] = factors


def solved(packed: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """The solution of A x = b from the packed factors of A."""
    shape = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    result = np.array(np.broadcast_to(b, (*shape, *b.shape[-2:])))
    size = packed.shape[-1]
    count = math.prod(shape)
    matrices = np.broadcast_to(packed, (*shape, size, size)).reshape(count, size, size)
    orders = np.broadcast_to(pivots, (*shape, size)).reshape(count, size)
    flat = result.reshape(count, *b.shape[-2:])
    for matrix, order, x in zip(matrices, orders, flat):
        blocks = _blocks(order)
        for k, width, row in blocks:
            last = k + width - 1
            x[[last, row]] = x[[row, last]]
            x[k + width :] -= matrix[k + width :, k : k + width] @ x[k : k + width]
            whole = matrix[k : k + 1, k : k + 1] if width == 1 else _block(matrix, k, hermitian)
            x[k : k + width] = np.linalg.solve(whole, x[k : k + width])
        for k, width, row in reversed(blocks):
            columns = matrix[k + width :, k : k + width]
            turned = columns.conj().T if hermitian else columns.T
            x[k : k + width] -= turned @ x[k + width :]
            last = k + width - 1
            x[[last, row]] = x[[row, last]]
    return flat.reshape(result.shape)


def _blocks(pivots: Array) -> list[tuple[int, int, int]]:
    """Where the blocks of D start, how wide they are, and the row each was exchanged with."""
    found, k = [], 0
    while k < len(pivots):
        width = 1 if pivots[k] > 0 else 2
        found.append((k, width, abs(int(pivots[k])) - 1))
        k += width
    return found
