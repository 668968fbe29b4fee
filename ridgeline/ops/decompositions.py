"""Factorisations of matrices as library calls: Cholesky, QR, LU, and the pseudo-inverse.

Reverse mode follows torch, which takes a Hermitian operand as it is and symmetrises where the
factorisation only reads one triangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import GradientError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.graph.sizes import Size
from ridgeline.ops.batching import leading, outputs_of
from ridgeline.ops.complex import imag, join
from ridgeline.ops.contract import matmul
from ridgeline.ops.elementwise import full_like
from ridgeline.ops.linalg import (
    CheckAttrs,
    Parts,
    adjoint,
    diagonal_of,
    eye_like,
    mask,
    matrix_type,
    rows,
    scaled_diagonal,
    solve_triangular,
)
from ridgeline.ops.movement import concat, slice_, spread
from ridgeline.ops.values import matrices
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class QRAttrs(Attrs):
    """ "reduced", "complete" or "r"."""

    mode: str


@dataclass(frozen=True, slots=True)
class PermutationAttrs(Attrs):
    """The number of rows, and the element type of the matrix."""

    rows: int
    dtype: dtypes.DType


@dataclass(frozen=True, slots=True)
class HermitianAttrs(Attrs):
    """Whether the operand is taken to be Hermitian."""

    hermitian: bool


def strictly_lower(a: Node) -> Node:
    """The triangle below the diagonal."""
    return mask(a, -1) - mask(a, 0)


def part(a: Node, row: Size, column: Size, height: Size, width: Size) -> Node:
    """A block of matrices."""
    lead = len(a.shape) - 2
    starts = (*(0,) * lead, row, column)
    sizes = (*a.shape[:lead], height, width)
    return slice_(a, starts, sizes, (1,) * (lead + 2))


def beside(left: Node, right: Node) -> Node:
    """Two blocks next to one another."""
    return concat([left, right], len(left.shape) - 1)


def above(top: Node, bottom: Node) -> Node:
    """Two blocks one above the other."""
    return concat([top, bottom], len(top.shape) - 2)


def _or_zero(ct: Node | None, like: Node) -> Node:
    return full_like(like, 0) if ct is None else ct


def _right_divided(a: Node, triangle: Node, upper: bool) -> Node:
    """a @ triangle^-H, by solving triangle X^H = a^H."""
    return adjoint(solve_triangular(triangle, adjoint(a), upper, False))


# ---- Cholesky ------------------------------------------------------------------------------------


def cholesky(a: Node, checked: bool = True) -> tuple[Node, Node]:
    """Lower factors L of A = L L^H and, per matrix, 0 or where it is not positive definite."""
    both = node(CHOLESKY, (a,), CheckAttrs(checked))
    return proj(both, 0), proj(both, 1)


def _infer_cholesky(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "cholesky")
    return (source, TensorType(source.shape[:-2], dtypes.int32, source.device))


def _cholesky_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    factors, info = matrices.cholesky(inputs[0])
    if current.attrs.checked:
        matrices.checked(info, "cholesky: a matrix is not positive definite")
    return factors, info


def _half_lower(a: Node) -> Node:
    return scaled_diagonal(mask(a, -1), 0.5)


def _cholesky_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, factor = cotangents[0], proj(current, 0)
    if ct is None:
        return [None]
    inner = _half_lower(matmul(adjoint(factor), ct))
    even = (inner + adjoint(inner)) * full_like(inner, 0.5)
    left = solve_triangular(adjoint(factor), even, True, False)
    return [adjoint(solve_triangular(adjoint(factor), adjoint(left), True, False))]


def _cholesky_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, factor = tangents[0], proj(current, 0)
    if tangent is None:
        return [None, None]
    left = solve_triangular(factor, tangent, False, False)
    inner = adjoint(solve_triangular(factor, adjoint(left), False, False))
    return [matmul(factor, _half_lower(inner)), None]


# ---- QR ------------------------------------------------------------------------------------------


def qr(a: Node, mode: str = "reduced") -> tuple[Node, Node]:
    """A = Q R with orthonormal columns and an upper triangle."""
    both = node(QR, (a,), QRAttrs(mode))
    return proj(both, 0), proj(both, 1)


def _infer_qr(types: Sequence[TensorType], attrs: QRAttrs) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "qr", square=False)
    *lead, height, width = source.shape
    assert isinstance(height, int) and isinstance(width, int), "factors have known sizes"
    inner = height if attrs.mode == "complete" else min(height, width)
    left = (*lead, height, inner) if attrs.mode != "r" else (0,)
    return (
        TensorType(left, source.dtype, source.device),
        TensorType((*lead, inner, width), source.dtype, source.device),
    )


def _qr_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    a, mode = inputs[0], current.attrs.mode
    left, right = (empty_of(t) for t in current.types)
    if 0 in a.shape:
        if mode == "complete":
            left[...] = np.eye(left.shape[-1], dtype=a.dtype)
        return left, right
    if mode == "r":
        return left, np.asarray(np.linalg.qr(a, mode="r"))
    q, r = np.linalg.qr(a, mode=mode)
    return q, r


def empty_of(t: TensorType) -> Array:
    """Zeros of a type whose sizes are known."""
    return np.zeros(t.shape, t.dtype.numpy)


def _qr_blocks(current: Node) -> tuple[int, int]:
    height, width = current.inputs[0].shape[-2:]
    assert isinstance(height, int) and isinstance(width, int)
    mode = current.attrs.mode
    if mode == "r" or (mode == "complete" and height > width):
        raise GradientError(
            f"qr in mode {mode!r} has no gradient for shape {list(current.inputs[0].shape)}",
            help='use mode="reduced"',
        )
    return height, width


def _qr_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    height, width = _qr_blocks(current)
    q, r, a = proj(current, 0), proj(current, 1), current.inputs[0]
    by_q, by_r = _or_zero(cotangents[0], q), _or_zero(cotangents[1], r)
    if height >= width:
        return [_tall_qr_vjp(q, r, by_q, by_r)]
    first, rest = part(r, 0, 0, height, height), part(a, 0, height, height, width - height)
    by_first = part(by_r, 0, 0, height, height)
    by_rest = part(by_r, 0, height, height, width - height)
    moved = by_q + matmul(rest, adjoint(by_rest))
    return [beside(_tall_qr_vjp(q, first, moved, by_first), matmul(q, by_rest))]


def _tall_qr_vjp(q: Node, r: Node, by_q: Node, by_r: Node) -> Node:
    inner = matmul(r, adjoint(by_r)) - matmul(adjoint(by_q), q)
    half = _half_lower(inner)
    whole = by_q + matmul(q, half + adjoint(half))
    return _right_divided(whole, r, True)


def _qr_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    height, width = _qr_blocks(current)
    q, r, tangent = proj(current, 0), proj(current, 1), tangents[0]
    if tangent is None:
        return [None, None]
    if height >= width:
        return list(_tall_qr_jvp(q, r, tangent))
    first, rest = part(r, 0, 0, height, height), part(r, 0, height, height, width - height)
    dq, dfirst = _tall_qr_jvp(q, first, part(tangent, 0, 0, height, height))
    moved = part(tangent, 0, height, height, width - height) - matmul(dq, rest)
    return [dq, beside(dfirst, matmul(adjoint(q), moved))]


def _qr_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    q, r = outputs_of(node(QR, inputs, current.attrs))
    return [spread(q, batching.size) if current.attrs.mode == "r" else q, r]


def _tall_qr_jvp(q: Node, r: Node, tangent: Node) -> tuple[Node, Node]:
    divided = adjoint(solve_triangular(adjoint(r), adjoint(tangent), False, False))
    inner = matmul(adjoint(q), divided)
    low = strictly_lower(inner)
    turning = low - adjoint(low)
    if q.dtype.kind == "complex":
        phase = imag(diagonal_of(inner))
        turning = turning + eye_like(inner) * rows(join(full_like(phase, 0), phase), inner)
    dq = divided - matmul(q, inner) + matmul(q, turning)
    return dq, matmul(inner - turning, r)


# ---- LU ------------------------------------------------------------------------------------------


def lu(a: Node) -> tuple[Node, Node, Node]:
    """Both factors in one matrix, the row exchanges (from 1), and where a pivot was 0."""
    all_three = node(LU, (a,))
    return proj(all_three, 0), proj(all_three, 1), proj(all_three, 2)


def permutation(pivots: Node, height: int, dtype: dtypes.DType) -> Node:
    """The matrix P of A = P L U, from row exchanges."""
    return node(PERMUTATION, (pivots,), PermutationAttrs(height, dtype))


def _infer_lu(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "lu", square=False)
    *lead, height, width = source.shape
    assert isinstance(height, int) and isinstance(width, int), "factors have known sizes"
    return (
        source,
        TensorType((*lead, min(height, width)), dtypes.int32, source.device),
        TensorType(tuple(lead), dtypes.int32, source.device),
    )


def lower_factor(packed: Node) -> Node:
    """The unit lower factor that a packed matrix holds."""
    height, width = packed.shape[-2:]
    inner = min(height, width)
    block = part(packed, 0, 0, height, inner)
    return strictly_lower(block) + eye_like(block)


def upper_factor(packed: Node) -> Node:
    """The upper factor that a packed matrix holds."""
    height, width = packed.shape[-2:]
    return mask(part(packed, 0, 0, min(height, width), width), 1)


def _lu_parts(current: Node) -> tuple[int, int, Node, Node, Node]:
    height, width = current.inputs[0].shape[-2:]
    assert isinstance(height, int) and isinstance(width, int)
    packed = proj(current, 0)
    order = permutation(proj(current, 1), height, packed.dtype)
    return height, width, lower_factor(packed), upper_factor(packed), order


def _lu_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None]
    height, width, low, high, order = _lu_parts(current)
    inner = min(height, width)
    by_low = strictly_lower(part(ct, 0, 0, height, inner))
    by_high = mask(part(ct, 0, 0, inner, width), 1)
    low1, high1 = part(low, 0, 0, inner, inner), part(high, 0, 0, inner, inner)
    under = matmul(adjoint(low1), part(by_low, 0, 0, inner, inner))
    over = matmul(part(by_high, 0, 0, inner, inner), adjoint(high1))
    extra: Node | None = None
    if width > height:
        by_rest = part(by_high, 0, inner, inner, width - inner)
        rest = part(high, 0, inner, inner, width - inner)
        under = under - matmul(by_rest, adjoint(rest))
        extra = solve_triangular(adjoint(low1), by_rest, True, True)
    elif height > width:
        by_rest = part(by_low, inner, 0, height - inner, inner)
        rest = part(low, inner, 0, height - inner, inner)
        over = over - matmul(adjoint(rest), by_rest)
        extra = _right_divided(by_rest, high1, True)
    core = strictly_lower(under) + mask(over, 1)
    core = _right_divided(solve_triangular(adjoint(low1), core, True, True), high1, True)
    if extra is not None:
        core = beside(core, extra) if width > height else above(core, extra)
    return [matmul(order, core)]


def _lu_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    if tangents[0] is None:
        return [None, None, None]
    height, width, low, high, order = _lu_parts(current)
    inner = min(height, width)
    moved = matmul(adjoint(order), tangents[0])
    low1, high1 = part(low, 0, 0, inner, inner), part(high, 0, 0, inner, inner)
    x = solve_triangular(low1, part(moved, 0, 0, inner, inner), False, True)
    x = adjoint(solve_triangular(adjoint(high1), adjoint(x), False, False))
    dlow, dhigh = matmul(low1, strictly_lower(x)), matmul(mask(x, 1), high1)
    packed = dlow + dhigh
    if width > height:
        rest = part(high, 0, inner, inner, width - inner)
        beyond = part(moved, 0, inner, inner, width - inner) - matmul(dlow, rest)
        packed = beside(packed, solve_triangular(low1, beyond, False, True))
    elif height > width:
        rest = part(low, inner, 0, height - inner, inner)
        beyond = part(moved, inner, 0, height - inner, inner) - matmul(rest, dhigh)
        turned = solve_triangular(adjoint(high1), adjoint(beyond), False, False)
        packed = above(packed, adjoint(turned))
    return [packed, None, None]


def _infer_permutation(
    types: Sequence[TensorType], attrs: PermutationAttrs
) -> tuple[TensorType, ...]:
    shape = (*types[0].shape[:-1], attrs.rows, attrs.rows)
    return (TensorType(shape, attrs.dtype, types[0].device),)


def _permutation_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    return (matrices.permutation(inputs[0], attrs.rows).astype(attrs.dtype.numpy),)


# ---- pseudo-inverse ------------------------------------------------------------------------------


def pseudo_inverse(a: Node, rtol: Node, atol: Node, hermitian: bool) -> Node:
    """The Moore-Penrose inverse; tolerances are float64, one per matrix."""
    return node(PSEUDO_INVERSE, (a, rtol, atol), HermitianAttrs(hermitian))


def _infer_pseudo(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "pinv", square=attrs.hermitian)
    *lead, height, width = source.shape
    return (TensorType((*lead, width, height), source.dtype, source.device),)


def _pseudo_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    a, rtol, atol = inputs
    return (matrices.pseudo_inverse(a, rtol, atol, current.attrs.hermitian).astype(a.dtype),)


def _pseudo_vjp(current: Node, cotangents: Parts) -> list[Node | None]:
    ct, a = cotangents[0], current.inputs[0]
    if ct is None:
        return [None, None, None]
    turned, back = adjoint(current), adjoint(ct)
    height, width = a.shape[-2:]
    if height <= width:
        inner = matmul(back, current)
        spread = matmul(inner, turned)
        result = spread - adjoint(matmul(current, inner))
        result = result - matmul(matmul(a, current), spread)
        missing = back - matmul(inner, a)
        return [result + matmul(matmul(turned, current), missing), None, None]
    inner = matmul(current, back)
    spread = matmul(turned, inner)
    result = spread - adjoint(matmul(inner, current))
    result = result - matmul(matmul(spread, current), a)
    missing = matmul(back - matmul(a, inner), current)
    return [result + matmul(missing, turned), None, None]


def _pseudo_jvp(current: Node, tangents: Parts) -> list[Node | None]:
    tangent, a = tangents[0], current.inputs[0]
    if tangent is None:
        return [None]
    back = adjoint(tangent)
    result = -matmul(matmul(current, tangent), current)
    left = matmul(matmul(current, adjoint(current)), back)
    result = result + (left - matmul(matmul(left, a), current))
    right = matmul(matmul(back, adjoint(current)), current)
    return [result + (right - matmul(current, matmul(a, right)))]


# ---- Householder's reflectors --------------------------------------------------------------------


def reflectors(a: Node) -> tuple[Node, Node]:
    """The QR factorisation as LAPACK keeps it: packed reflectors and their factors."""
    both = node(REFLECTORS, (a,))
    return proj(both, 0), proj(both, 1)


def _infer_reflectors(types: Sequence[TensorType], attrs: Any) -> tuple[TensorType, ...]:
    source = matrix_type(types[0], "geqrf", square=False)
    *lead, height, width = source.shape
    inner = min(height, width)
    return (source, TensorType((*lead, inner), source.dtype, source.device))


CHOLESKY = Op(
    "cholesky", "library", _infer_cholesky, _cholesky_value, _cholesky_vjp, _cholesky_jvp, leading
)
QR = Op("qr", "library", _infer_qr, _qr_value, _qr_vjp, _qr_jvp, _qr_batch)
LU = Op(
    "lu", "library", _infer_lu, lambda current, inputs: matrices.lu(inputs[0]),
    _lu_vjp, _lu_jvp, leading,
)  # fmt: skip
PERMUTATION = Op("permutation", "library", _infer_permutation, _permutation_value, batch=leading)
PSEUDO_INVERSE = Op(
    "pseudo_inverse", "library", _infer_pseudo, _pseudo_value, _pseudo_vjp, _pseudo_jvp, leading
)
REFLECTORS = Op(
    "reflectors", "library", _infer_reflectors,
    lambda current, inputs: matrices.householder(inputs[0]),
    batch=leading,
)  # fmt: skip
