"""Eigenvalues and singular values as library calls, with their vectors and derivatives.

Derivatives of vectors divide by gaps between values, so they exist where values are distinct; as
in torch, they are those of any choice of phase, and mean something for losses that ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import leading
from ridgeline.ops.complex import complex_of, conj, imag, join, real, real_of
from ridgeline.ops.contract import matmul
from ridgeline.ops.decompositions import empty_of, part
from ridgeline.ops.elementwise import cast, full_like, scale, select
from ridgeline.ops.linalg import (
    Parts,
    adjoint,
    columns,
    diagonal_of,
    eye_like,
    matrix_type,
    rows,
    solve,
)
from ridgeline.ops.math import reciprocal
from ridgeline.ops.movement import pad
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class TriangleAttrs(Attrs):
    """Which triangle of a Hermitian matrix is read."""

    upper: bool


@dataclass(frozen=True, slots=True)
class FullAttrs(Attrs):
    """Whether the vectors are completed to a square basis."""

    full: bool


def _on_diagonal(vector: Node, like: Node) -> Node:
    """Vectors on the diagonals of square matrices."""
    return eye_like(like) * rows(cast(vector, like.dtype), like)


def _inverse_gaps(values: Node, like: Node) -> Node:
    """1 / (values_j - values_i), and 0 on the diagonal."""
    gap = columns(values, like) - rows(values, like)
    eye = eye_like(gap).ne(full_like(gap, 0))
    inverse = reciprocal(select(eye, full_like(gap, 1), gap))
    return select(eye, full_like(gap, 0), inverse)


def _phases(square: Node) -> Node:
    """i times the imaginary parts of a diagonal, as vectors."""
    turn = imag(diagonal_of(square))
    return join(full_like(turn, 0), turn)


# ---- Hermitian matrices --------------------------------------------------------------------------


def eigh(a: Node, upper: bool = False) -> tuple[Node, Node]:
    """Real eigenvalues in rising order, and orthonormal eigenvectors in columns."""
    both = node(EIGH, (a,), TriangleAttrs(upper))
    return proj(both, 0), proj(both, 1)


def _infer_eigh(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "eigh")
    return (TensorType(source.shape[:-1], real_of(source.dtype), source.device), source)


def _eigh_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    values, vectors = np.linalg.eigh(inputs[0], UPLO="U" if current.attrs.upper else "L")
    return values, vectors


def _eigh_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    values, vectors = proj(current, 0), proj(current, 1)
    by_values, by_vectors = cotangents
    inner: Node | None = None
    if by_vectors is not None:
        turned = matmul(adjoint(vectors), by_vectors)
        # changes of a Hermitian matrix turn its vectors, by skew ones: the result is Hermitian
        skew = scale(turned - adjoint(turned), 0.5)
        inner = skew * cast(_inverse_gaps(values, vectors), vectors.dtype)
    if by_values is not None:
        diagonal = _on_diagonal(by_values, vectors)
        inner = diagonal if inner is None else inner + diagonal
    return [None if inner is None else matmul(matmul(vectors, inner), adjoint(vectors))]


def _eigh_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    values, vectors, tangent = proj(current, 0), proj(current, 1), tangents[0]
    if tangent is None:
        return [None, None]
    inner = matmul(adjoint(vectors), matmul(tangent, vectors))
    gaps = cast(_inverse_gaps(values, vectors), vectors.dtype)
    return [real(diagonal_of(inner)), matmul(vectors, inner * gaps)]


# ---- general matrices ----------------------------------------------------------------------------


def eig(a: Node) -> tuple[Node, Node]:
    """Complex eigenvalues, and eigenvectors of length 1 in columns."""
    both = node(EIG, (a,))
    return proj(both, 0), proj(both, 1)


def _infer_eig(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "eig")
    dtype = complex_of(source.dtype)
    return (
        TensorType(source.shape[:-1], dtype, source.device),
        TensorType(source.shape, dtype, source.device),
    )


def _eig_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    kind = current.dtype.numpy
    if 0 in inputs[0].shape:
        return tuple(empty_of(t) for t in current.types)
    values, vectors = np.linalg.eig(inputs[0])
    return values.astype(kind), vectors.astype(kind)


def _fits(part_: Node, source: Node) -> Node:
    return part_ if source.dtype.kind == "complex" else real(part_)


def _eig_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    values, vectors = proj(current, 0), proj(current, 1)
    by_values, by_vectors = cotangents
    inner: Node | None = None
    if by_vectors is not None:
        turned = matmul(adjoint(vectors), by_vectors)
        sizes = columns(cast(real(diagonal_of(turned)), vectors.dtype), vectors)
        turned = turned - matmul(adjoint(vectors), vectors) * sizes
        inner = turned * conj(_inverse_gaps(values, vectors))
    if by_values is not None:
        diagonal = _on_diagonal(by_values, vectors)
        inner = diagonal if inner is None else inner + diagonal
    if inner is None:
        return [None]
    result = solve(adjoint(vectors), matmul(inner, adjoint(vectors)))
    return [_fits(result, current.inputs[0])]


def _eig_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    values, vectors, tangent = proj(current, 0), proj(current, 1), tangents[0]
    if tangent is None:
        return [None, None]
    inner = solve(vectors, matmul(cast(tangent, vectors.dtype), vectors))
    moved = matmul(vectors, inner * _inverse_gaps(values, vectors))
    growth = real(diagonal_of(matmul(adjoint(vectors), moved)))
    kept = vectors * columns(cast(growth, vectors.dtype), vectors)
    return [diagonal_of(inner), moved - kept]


# ---- singular values -----------------------------------------------------------------------------


def svd(a: Node, full: bool = False) -> tuple[Node, Node, Node]:
    """A = U diag(S) Vh with singular values in falling order."""
    all_three = node(SVD, (a,), FullAttrs(full))
    return proj(all_three, 0), proj(all_three, 1), proj(all_three, 2)


def _infer_svd(types: Sequence[TensorType], attrs: FullAttrs) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "svd", square=False)
    *lead, height, width = source.shape
    inner = min(height, width)
    left, right = (height, width) if attrs.full else (inner, inner)
    return (
        TensorType((*lead, height, left), source.dtype, source.device),
        TensorType((*lead, inner), real_of(source.dtype), source.device),
        TensorType((*lead, right, width), source.dtype, source.device),
    )


def _svd_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    a = inputs[0]
    if 0 in a.shape:
        u, s, vh = (empty_of(t) for t in current.types)
        if current.attrs.full:
            u[...], vh[...] = np.eye(u.shape[-1]), np.eye(vh.shape[-1])
        return u, s, vh
    u, s, vh = np.linalg.svd(a, full_matrices=current.attrs.full)
    return u, s, vh


def _svd_pieces(current: Node) -> tuple[Node, Node, Node]:
    """U, S and Vh without the vectors that only complete a basis."""
    u, s, vh = (proj(current, n) for n in range(3))
    inner = s.shape[-1]
    return part(u, 0, 0, u.shape[-2], inner), s, part(vh, 0, 0, inner, vh.shape[-1])


def _narrowed(ct: Node | None, like: Node) -> Node | None:
    return None if ct is None else part(ct, 0, 0, like.shape[-2], like.shape[-1])


def _skew(a: Node) -> Node:
    return a - adjoint(a)


def _svd_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    u, s, vh = _svd_pieces(current)
    by_u, by_s, by_vh = _narrowed(cotangents[0], u), cotangents[1], _narrowed(cotangents[2], vh)
    square = matmul(adjoint(u), u)
    dtype = u.dtype
    scale = cast(s, dtype)
    inner = full_like(square, 0) if by_s is None else _on_diagonal(by_s, square)
    if by_u is None and by_vh is None:
        return [None if by_s is None else matmul(matmul(u, inner), vh)]
    gaps = cast(_inverse_gaps(s * s, square), dtype)
    if by_u is not None:
        turned = matmul(adjoint(u), by_u)
        inner = inner + _skew(turned) * gaps * columns(scale, square)
        if dtype.kind == "complex":
            inner = inner + _on_diagonal(_phases(turned) / scale, square)
    if by_vh is not None:
        turned = matmul(vh, adjoint(by_vh))
        inner = inner + rows(scale, square) * (_skew(turned) * gaps)
    result = matmul(matmul(u, inner), vh)
    if by_u is not None:
        beyond = by_u - matmul(u, matmul(adjoint(u), by_u))
        result = result + matmul(beyond / columns(scale, beyond), vh)
    if by_vh is not None:
        beyond = by_vh - matmul(matmul(by_vh, adjoint(vh)), vh)
        result = result + matmul(u, beyond / rows(scale, beyond))
    return [result]


def _svd_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent = tangents[0]
    if tangent is None:
        return [None, None, None]
    u, s, vh = _svd_pieces(current)
    dtype, scale = u.dtype, cast(s, u.dtype)
    inner = matmul(matmul(adjoint(u), tangent), adjoint(vh))
    gaps = cast(_inverse_gaps(s * s, inner), dtype)
    right, left = inner * columns(scale, inner), rows(scale, inner) * inner
    turn_u = gaps * (right + adjoint(right))
    turn_v = gaps * (left + adjoint(left))
    if dtype.kind == "complex":
        phase = _on_diagonal(_phases(inner) / scale, inner) * full_like(inner, 0.5)
        turn_u, turn_v = turn_u + phase, turn_v - phase
    over_u = matmul(tangent, adjoint(vh))
    over_u = over_u - matmul(u, matmul(adjoint(u), over_u))
    du = matmul(u, turn_u) + over_u / columns(scale, over_u)
    over_v = matmul(adjoint(u), tangent)
    over_v = over_v - matmul(matmul(over_v, adjoint(vh)), vh)
    dvh = matmul(adjoint(turn_v), vh) + over_v / rows(scale, over_v)
    whole_u, whole_vh = _completed(du, proj(current, 0)), _completed(dvh, proj(current, 2))
    return [whole_u, real(diagonal_of(inner)), whole_vh]


def _completed(a: Node, like: Node) -> Node:
    """Zeros for the vectors that only complete a basis."""
    missing: tuple[Any, ...] = tuple(x - y for x, y in zip(like.shape, a.shape))
    return pad(a, (0,) * len(missing), missing)


EIGH = Op("eigh", "library", _infer_eigh, _eigh_value, _eigh_vjp, _eigh_jvp, leading)
EIG = Op("eig", "library", _infer_eig, _eig_value, _eig_vjp, _eig_jvp, leading)
SVD = Op("svd", "library", _infer_svd, _svd_value, _svd_vjp, _svd_jvp, leading)
