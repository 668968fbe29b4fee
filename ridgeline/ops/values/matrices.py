"""Values of linear algebra that NumPy does not have, over batches of matrices."""

from __future__ import annotations

import math

import numpy as np

from ridgeline.errors import LinAlgError
from ridgeline.scalars import Array


def lu(a: Array) -> tuple[Array, Array, Array]:
    """LU with partial pivoting: both factors in one matrix, row exchanges (from 1), info."""
    packed = a.copy()
    rows, columns = a.shape[-2:]
    count = min(rows, columns)
    flat = packed.reshape(math.prod(a.shape[:-2]), rows, columns)
    pivots = np.zeros((flat.shape[0], count), np.int32)
    info = np.zeros(flat.shape[0], np.int32)
    batch = np.arange(flat.shape[0])
    for k in range(count):
        column = flat[:, k:, k]  # LAPACK compares |re| + |im|
        size = np.abs(column.real) + np.abs(column.imag)
        best = k + np.argmax(size, axis=1) if flat.size else np.zeros(len(flat), int)
        pivots[:, k] = best + 1
        top = flat[:, k].copy()
        flat[:, k] = flat[batch, best]
        flat[batch, best] = top
        pivot = flat[:, k, k]
        zero = pivot == 0
        info = np.where((info == 0) & zero, k + 1, info)
        factors = flat[:, k + 1 :, k] / np.where(zero, 1, pivot)[:, None]
        flat[:, k + 1 :, k] = factors
        flat[:, k + 1 :, k + 1 :] -= factors[:, :, None] * flat[:, None, k, k + 1 :]
    lead = a.shape[:-2]
    return flat.reshape(a.shape), pivots.reshape(*lead, count), info.astype(np.int32).reshape(lead)


def order_of(pivots: Array, rows: int) -> Array:
    """The row order that a list of exchanges leads to."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(rows), (flat.shape[0], 1))
    batch = np.arange(flat.shape[0])
    for k in range(flat.shape[1]):
        other = flat[:, k] - 1
        kept = order[:, k].copy()
        order[:, k] = order[batch, other]
        order[batch, other] = kept
    return order.reshape(*pivots.shape[:-1], rows)


def permutation(pivots: Array, rows: int) -> Array:
    """The matrix P of A = P L U."""
    order = order_of(pivots, rows)
    return np.swapaxes(np.eye(rows)[order], -1, -2)


def cholesky(a: Array) -> tuple[Array, Array]:
    """Lower factors, and the order of the first minor that is not positive (0 if all are)."""
    size = a.shape[-1]
    flat = a.reshape(math.prod(a.shape[:-2]), size, size)
    factors, info = np.zeros_like(flat), np.zeros(flat.shape[0], np.int32)
    for number, matrix in enumerate(flat):
        try:
            factors[number] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            factors[number], info[number] = _partial_cholesky(matrix)
    return factors.reshape(a.shape), info.reshape(a.shape[:-2])


def _partial_cholesky(matrix: Array) -> tuple[Array, int]:
    factor = np.tril(matrix)
    for k in range(matrix.shape[0]):
        rest = factor[k, k].real - np.sum(np.abs(factor[k, :k]) ** 2)
        if not rest > 0:
            return factor, k + 1
        factor[k, k] = math.sqrt(rest)
        below = factor[k + 1 :, k] - factor[k + 1 :, :k] @ factor[k, :k].conj()
        factor[k + 1 :, k] = below / factor[k, k]
    return factor, 0


_BLOCK = 16  # rows that are solved by the inverse of their part of the diagonal


def solve_triangular(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """The solution of a triangular system: by halves, and small blocks by their inverses.

    Inverses of all blocks are found together, so that there are few calls however large the
    system is. Where one of them is not finite (a zero on the diagonal, numbers that overflow in
    a product which the solution does not need), rows are solved one by one.
    """
    size = a.shape[-1]
    if size <= _BLOCK:
        return _substituted(a, b, upper, unit)
    starts = range(0, size - _BLOCK + 1, _BLOCK)
    blocks = np.stack([a[..., k : k + _BLOCK, k : k + _BLOCK] for k in starts])
    inverses = _substituted(blocks, np.eye(_BLOCK, dtype=a.dtype), upper, unit)
    if not np.isfinite(inverses).all():
        return _substituted(a, b, upper, unit)
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    solution = np.array(np.broadcast_to(b, (*shape, *b.shape[-2:])))

    def solve(low: int, high: int) -> None:
        if high - low <= _BLOCK:
            own, given = a[..., low:high, low:high], solution[..., low:high, :]
            whole = high - low == _BLOCK
            solution[..., low:high, :] = (
                inverses[low // _BLOCK] @ given if whole else _substituted(own, given, upper, unit)
            )
            return
        middle = low + -(-(high - low) // (2 * _BLOCK)) * _BLOCK
        parts = ((middle, high), (low, middle)) if upper else ((low, middle), (middle, high))
        first, second = slice(*parts[0]), slice(*parts[1])
        solve(*parts[0])
        solution[..., second, :] -= a[..., second, first] @ solution[..., first, :]
        solve(*parts[1])

    solve(0, size)
    return solution


def _substituted(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """The solution of a triangular system, row by row."""
    size = a.shape[-1]
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    solution = np.array(np.broadcast_to(b, (*shape, *b.shape[-2:])))
    order = range(size - 1, -1, -1) if upper else range(size)
    for k in order:
        row = a[..., k, :]
        done = slice(k + 1, size) if upper else slice(0, k)
        known = np.matmul(row[..., None, done], solution[..., done, :])[..., 0, :]
        rest = solution[..., k, :] - known
        solution[..., k, :] = rest if unit else rest / row[..., k, None]
    return solution


# numerators of the diagonal Padé approximants of exp, and the norms up to which they serve
_PADE = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
         129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
         40840800.0, 960960.0, 16380.0, 182.0, 1.0)  # fmt: skip
_PADE_REACH = 5.371920351148152


def exponential(a: Array) -> Array:
    """The matrix exponential by scaling, a Padé approximant of order 13, and squaring."""
    if 0 in a.shape:
        return a.copy()
    norm = float(np.max(np.abs(a).sum(axis=-2)))
    if not math.isfinite(norm):
        return np.full_like(a, np.nan)
    squarings = max(0, math.ceil(math.log2(norm / _PADE_REACH))) if norm > _PADE_REACH else 0
    x = a / 2.0**squarings
    eye = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    square = x @ x
    odd, even, power = eye * _PADE[1], eye * _PADE[0], eye
    for k in range(1, 7):
        power = power @ square
        even = even + _PADE[2 * k] * power
        odd = odd + _PADE[2 * k + 1] * power
    odd = x @ odd
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        result = result @ result
    return result


def pseudo_inverse(a: Array, rtol: Array, atol: Array, hermitian: bool) -> Array:
    """The Moore-Penrose inverse; singular values up to the tolerance count as zero."""
    if 0 in a.shape:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        values, vectors = np.linalg.eigh(a)
        kept = np.abs(values) > limit_of(np.abs(values), rtol, atol)[..., None]
        inverse = np.where(kept, 1 / np.where(kept, values, 1), 0)
        return np.asarray((vectors * inverse[..., None, :]) @ _adjoint(vectors))
    u, values, vh = np.linalg.svd(a, full_matrices=False)
    kept = values > limit_of(values, rtol, atol)[..., None]
    inverse = np.where(kept, 1 / np.where(kept, values, 1), 0)
    return np.asarray(_adjoint(vh) @ (inverse[..., None] * _adjoint(u)))


def _adjoint(a: Array) -> Array:
    return np.swapaxes(a.conj(), -1, -2)


def limit_of(values: Array, rtol: Array, atol: Array) -> Array:
    """The size up to which a singular value counts as zero."""
    return np.asarray(np.maximum(atol, rtol * values.max(axis=-1, initial=0.0)))


def checked(info: Array, message: str) -> None:
    """Raise where a factorisation did not succeed for some matrix of a batch."""
    bad = np.flatnonzero(info.reshape(-1))
    if bad.size:
        raise LinAlgError(f"{message} (matrix {int(bad[0])} of the batch)")


def householder(a: Array) -> tuple[Array, Array]:
    """The reflectors of a QR factorisation and their factors, as LAPACK keeps them."""
    rows, columns = a.shape[-2:]
    if 0 in a.shape:
        return a.copy(), np.zeros((*a.shape[:-2], min(rows, columns)), a.dtype)
    packed, factors = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -1, -2), factors
