"""Linear algebra as library calls over batches of matrices: LAPACK through NumPy.

Each op works on the last two axes. Holomorphic ops have one transpose rule, which reverse mode
runs between two conjugations; decompositions have rules of their own in `decompositions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import DTypeError, LinAlgError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.ops.batching import leading
from ridgeline.ops.complex import conj, imag, join, real, real_of
from ridgeline.ops.contract import matmul
from ridgeline.ops.elementwise import full_like, iota, select
from ridgeline.ops.movement import broadcast, concat, permute, slice_
from ridgeline.ops.reduce import sum_
from ridgeline.ops.values import matrices
from ridgeline.scalars import Array

Parts = Sequence[Node | None]
_LAPACK = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


@dataclass(frozen=True, slots=True)
class CheckAttrs(Attrs):
    """Whether a matrix without a solution is an error."""

    checked: bool


@dataclass(frozen=True, slots=True)
class TriangularAttrs(Attrs):
    """Which triangle holds the system, and whether its diagonal is taken to be 1."""

    upper: bool
    unit: bool


# ---- small pieces over nodes ---------------------------------------------------------------------


def transposed(a: Node) -> Node:
    """The last two axes exchanged."""
    rank = len(a.shape)
    return permute(a, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(a: Node) -> Node:
    """The conjugate transpose."""
    return conj(transposed(a))


def diagonal_of(a: Node) -> Node:
    """The main diagonals of square matrices."""
    return sum_(mask(a, 0), (len(a.shape) - 1,))


def mask(a: Node, kept: int) -> Node:
    """The lower triangle (-1), the diagonal (0) or the upper triangle (1), zeros elsewhere."""
    rank = len(a.shape)
    row, column = (iota(a.shape, rank - n, dtypes.int64) for n in (2, 1))
    test = {
        -1: lambda: column <= row,
        0: lambda: row.eq(column),
        1: lambda: row <= column,
    }[kept]()
    return select(test, a, full_like(a, 0))


def scaled_diagonal(a: Node, factor: float) -> Node:
    """The matrices with their diagonals times a factor."""
    return a - mask(a, 0) * full_like(a, 1 - factor)


def eye_like(a: Node) -> Node:
    """Identity matrices in the shape of another node."""
    return mask(full_like(a, 1), 0)


def columns(a: Node, like: Node) -> Node:
    """Vectors [..., n] repeated as rows of matrices [..., m, n]."""
    rank = len(like.shape)
    return broadcast(a, like.shape, (*range(rank - 2), rank - 1))


def rows(a: Node, like: Node) -> Node:
    """Vectors [..., m] repeated as columns of matrices [..., m, n]."""
    rank = len(like.shape)
    return broadcast(a, like.shape, (*range(rank - 2), rank - 2))


def everywhere(a: Node, like: Node) -> Node:
    """Scalars [...] repeated over matrices [..., m, n]."""
    return broadcast(a, like.shape, tuple(range(len(like.shape) - 2)))


def total(a: Node) -> Node:
    """The sum over the last two axes."""
    return sum_(a, (len(a.shape) - 2, len(a.shape) - 1))


# ---- type rules ----------------------------------------------------------------------------------


def matrix_type(t: TensorType, what: str, square: bool = True) -> TensorType:
    """Check that a type is a batch of (square) matrices that LAPACK takes."""
    if t.dtype not in _LAPACK:
        raise DTypeError(f"{what} is not defined for {t.dtype.name}", help="use .float()")
    if len(t.shape) < 2:
        raise ShapeError(f"{what} needs matrices, got shape {list(t.shape)}")
    if square and t.shape[-1] != t.shape[-2]:
        raise ShapeError(f"{what} needs square matrices, got shape {list(t.shape)}")
    return t


def _infer_inverse(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "inv")
    return (source, TensorType(source.shape[:-2], dtypes.int32, source.device))


def _infer_solve(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    a, b = matrix_type(types[0], "solve"), matrix_type(types[1], "solve", square=False)
    if a.dtype is not b.dtype:
        raise DTypeError(f"solve needs operands of one type: {a.dtype.name} and {b.dtype.name}")
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"solve: shapes {list(a.shape)} and {list(b.shape)} do not fit")
    return (b,)


def _infer_determinant(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "det")
    return (TensorType(source.shape[:-2], source.dtype, source.device),)


def _infer_log_determinant(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "slogdet")
    lead = source.shape[:-2]
    return (
        TensorType(lead, source.dtype, source.device),
        TensorType(lead, real_of(source.dtype), source.device),
    )


def _infer_square(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    return (matrix_type(types[0], "this function"),)


# ---- holomorphic ops -----------------------------------------------------------------------------

Rule = Callable[[Node, Parts], Sequence[Node | None]]


def between_conjugations(rule: Rule) -> Rule:
    """Reverse mode of a holomorphic op, from its plain transpose."""

    def vjp(current: Node, cotangents: Parts) -> list[Node | None]:
        turned = [None if ct is None else conj(ct) for ct in cotangents]
        return [None if part is None else conj(part) for part in rule(current, turned)]

    return vjp


def inverse(a: Node, checked: bool = True) -> tuple[Node, Node]:
    """The inverse and, per matrix, 0 or where the factorisation broke down."""
    both = node(INVERSE, (a,), CheckAttrs(checked))
    return proj(both, 0), proj(both, 1)


def _inverse_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    a = inputs[0]
    _, _, info = matrices.lu(a)
    if current.attrs.checked:
        matrices.checked(info, "inv: a matrix is singular and has no inverse")
    singular = (info != 0)[..., None, None]
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    result = np.linalg.inv(np.where(singular, eye, a)) if a.size else a.copy()
    return np.where(singular, np.nan, result).astype(a.dtype), info


def _inverse_transpose(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, turned = cotangents[0], transposed(proj(current, 0))
    return [None if ct is None else -matmul(matmul(turned, ct), turned)]


def _inverse_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, own = tangents[0], proj(current, 0)
    return [None if tangent is None else -matmul(matmul(own, tangent), own), None]


def solve(a: Node, b: Node) -> Node:
    """The solution X of A X = B."""
    return node(SOLVE, (a, b))


def _solve_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    try:
        return (np.linalg.solve(*inputs).astype(current.dtype.numpy),)
    except np.linalg.LinAlgError:
        raise LinAlgError("solve: a matrix is singular") from None


def _solve_transpose(current: Node, cotangents: Parts) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None, None]
    by_right = solve(transposed(current.inputs[0]), ct)
    return [-matmul(by_right, transposed(current)), by_right]


def _solve_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    (a, _), (da, db) = current.inputs, tangents
    moved = None if da is None else -matmul(da, current)
    right = moved if db is None else db if moved is None else db + moved
    return [None if right is None else solve(a, right)]


def solve_triangular(a: Node, b: Node, upper: bool, unit: bool) -> Node:
    """The solution of triangular systems A X = B."""
    return node(SOLVE_TRIANGULAR, (a, b), TriangularAttrs(upper, unit))


def _triangular_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    with float_errors_ignored():
        attrs = current.attrs
        result = matrices.solve_triangular(inputs[0], inputs[1], attrs.upper, attrs.unit)
        return (result.astype(current.dtype.numpy),)


def _triangle_of(a: Node, attrs: TriangularAttrs) -> Node:
    kept = mask(a, 1 if attrs.upper else -1)
    return kept - mask(kept, 0) if attrs.unit else kept


def _triangular_transpose(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, attrs = cotangents[0], current.attrs
    if ct is None:
        return [None, None]
    turned = transposed(current.inputs[0])
    by_right = solve_triangular(turned, ct, not attrs.upper, attrs.unit)
    return [_triangle_of(-matmul(by_right, transposed(current)), attrs), by_right]


def _triangular_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    (a, _), (da, db), attrs = current.inputs, tangents, current.attrs
    moved = None if da is None else -matmul(_triangle_of(da, attrs), current)
    right = moved if db is None else db if moved is None else db + moved
    return [None if right is None else solve_triangular(a, right, attrs.upper, attrs.unit)]


def determinant(a: Node) -> Node:
    """The determinants."""
    return node(DETERMINANT, (a,))


def _determinant_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (np.asarray(np.linalg.det(inputs[0])).astype(current.dtype.numpy),)


def _determinant_transpose(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, a = cotangents[0], current.inputs[0]
    return [None if ct is None else everywhere(ct, a) * node(COFACTORS, (a,))]


def _determinant_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, a = tangents[0], current.inputs[0]
    return [None if tangent is None else total(tangent * node(COFACTORS, (a,)))]


def _cofactors_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The derivative of the determinant, finite for singular matrices too."""
    a = inputs[0]
    if 0 in a.shape:
        return (a.copy(),)
    u, s, vh = np.linalg.svd(a)
    turn = np.linalg.det(u) * np.linalg.det(vh)
    size = s.shape[-1]
    others = np.stack([np.prod(np.delete(s, k, axis=-1), axis=-1) for k in range(size)], axis=-1)
    product = (u.conj() * others[..., None, :]) @ vh.conj()
    return ((turn[..., None, None] * product).astype(a.dtype),)


def _cofactors_transpose(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, a = cotangents[0], current.inputs[0]
    if ct is None:
        return [None]
    turned = transposed(inverse(a)[0])
    along = everywhere(total(ct * current), a) * turned
    return [along - matmul(matmul(current, transposed(ct)), turned)]


def _cofactors_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, a = tangents[0], current.inputs[0]
    if tangent is None:
        return [None]
    turned = transposed(inverse(a)[0])
    along = everywhere(total(turned * tangent), a) * current
    return [along - matmul(matmul(turned, transposed(tangent)), current)]


def matrix_exponential(a: Node) -> Node:
    """The matrix exponentials."""
    return node(EXPONENTIAL, (a,))


def _exponential_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    wide = inputs[0].astype(np.complex128 if inputs[0].dtype.kind == "c" else np.float64)
    with float_errors_ignored():
        return (matrices.exponential(wide).astype(current.dtype.numpy),)


def _frechet(a: Node, direction: Node) -> Node:
    """The derivative of the exponential: the corner of the exponential of a block matrix."""
    rank, size = len(a.shape), a.shape[-1]
    top = concat([a, direction], rank - 1)
    bottom = concat([full_like(a, 0), a], rank - 1)
    whole = matrix_exponential(concat([top, bottom], rank - 2))
    starts = (*(0,) * (rank - 1), size)
    return slice_(whole, starts, a.shape, (1,) * rank)


def _exponential_transpose(current: Node, cotangents: Parts) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else _frechet(transposed(current.inputs[0]), ct)]


def _exponential_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent = tangents[0]
    return [None if tangent is None else _frechet(current.inputs[0], tangent)]


# ---- log-determinants, which are not holomorphic -------------------------------------------------


def log_determinant(a: Node) -> tuple[Node, Node]:
    """The sign (or phase) of the determinants and the logarithms of their magnitudes."""
    both = node(LOG_DETERMINANT, (a,))
    return proj(both, 0), proj(both, 1)


def _log_determinant_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    sign, size = np.linalg.slogdet(inputs[0])
    types = current.types
    return np.asarray(sign, types[0].dtype.numpy), np.asarray(size, types[1].dtype.numpy)


def _log_determinant_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    by_sign, by_size = cotangents
    a = current.inputs[0]
    turned = adjoint(inverse(a)[0])
    weight = by_size
    if a.dtype.kind == "complex":
        zero = real(full_like(proj(current, 0), 0))
        weight = zero if by_size is None else by_size
        turning = zero
        if by_sign is not None:  # only the phase of the sign can move
            turning = -imag(conj(by_sign) * proj(current, 0))
        weight = join(weight, turning)
    return [None if weight is None else everywhere(weight, a) * turned]


def _log_determinant_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, a = tangents[0], current.inputs[0]
    if tangent is None:
        return [None, None]
    moved = total(transposed(inverse(a)[0]) * tangent)
    if a.dtype.kind != "complex":
        return [None, moved]
    phase = imag(moved)
    turning = join(full_like(phase, 0), phase)
    return [proj(current, 0) * turning, real(moved)]


INVERSE = Op(
    "inverse", "library", _infer_inverse, _inverse_value,
    between_conjugations(_inverse_transpose), _inverse_jvp, leading,
)  # fmt: skip
SOLVE = Op(
    "solve", "library", _infer_solve, _solve_value,
    between_conjugations(_solve_transpose), _solve_jvp, leading,
)  # fmt: skip
SOLVE_TRIANGULAR = Op(
    "solve_triangular", "library", _infer_solve, _triangular_value,
    between_conjugations(_triangular_transpose), _triangular_jvp, leading,
)  # fmt: skip
DETERMINANT = Op(
    "determinant", "library", _infer_determinant, _determinant_value,
    between_conjugations(_determinant_transpose), _determinant_jvp, leading,
)  # fmt: skip
COFACTORS = Op(
    "cofactors", "library", _infer_square, _cofactors_value,
    between_conjugations(_cofactors_transpose), _cofactors_jvp, leading,
)  # fmt: skip
EXPONENTIAL = Op(
    "matrix_exponential", "library", _infer_square, _exponential_value,
    between_conjugations(_exponential_transpose), _exponential_jvp, leading,
)  # fmt: skip
LOG_DETERMINANT = Op(
    "log_determinant", "library", _infer_log_determinant, _log_determinant_value,
    _log_determinant_vjp, _log_determinant_jvp, leading,
)  # fmt: skip
