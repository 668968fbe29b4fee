"""The `linalg` namespace: inverses, systems, determinants and factorisations."""

from __future__ import annotations

from typing import Any, NamedTuple

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.movement import cut, drop
from ridgeline.functions.operands import Operand, as_node
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops import decompositions, linalg as ops, spectra
from ridgeline.ops.contract import matmul
from ridgeline.ops.elementwise import apply, cast, constant, full_like, stop_gradient
from ridgeline.ops.linalg import adjoint, transposed
from ridgeline.ops.math import log
from ridgeline.ops.movement import broadcast_scalar, broadcast_shapes, reshape, stretch


class InverseInfo(NamedTuple):
    """An inverse and, per matrix, 0 or where the factorisation broke down."""

    inverse: Node
    info: Node


class FactorInfo(NamedTuple):
    """A Cholesky factor and, per matrix, 0 or the order of a minor that is not positive."""

    L: Node
    info: Node


class SolutionInfo(NamedTuple):
    """A solution and, per matrix, 0 or where the factorisation broke down."""

    result: Node
    info: Node


class SignLog(NamedTuple):
    """The sign of a determinant and the logarithm of its magnitude."""

    sign: Node
    logabsdet: Node


class QR(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Node
    R: Node


class Spectrum(NamedTuple):
    """Eigenvalues, and eigenvectors in columns."""

    eigenvalues: Node
    eigenvectors: Node


class SVD(NamedTuple):
    """A = U diag(S) Vh."""

    U: Node
    S: Node
    Vh: Node


class FactoredLU(NamedTuple):
    """Both factors in one matrix, and the row exchanges."""

    LU: Node
    pivots: Node


class FactoredLUInfo(NamedTuple):
    """Both factors in one matrix, the row exchanges, and where a pivot was 0."""

    LU: Node
    pivots: Node
    info: Node


class PLU(NamedTuple):
    """A = P L U."""

    P: Node
    L: Node
    U: Node


def _batched(a: Node, b: Node, what: str) -> tuple[Node, Node]:
    """Two batches of matrices repeated to a common batch."""
    if a.dtype is not b.dtype:
        raise DTypeError(f"{what} needs operands of one type: {a.dtype.name} and {b.dtype.name}")
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ShapeError(f"{what} needs matrices, got {list(a.shape)} and {list(b.shape)}")
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return stretch(a, (*lead, *a.shape[-2:])), stretch(b, (*lead, *b.shape[-2:]))


@public(name="inverse")
def _inv(input: Node) -> Node:
    """The inverses of square matrices."""
    return ops.inverse(input)[0]


@public(namespace="linalg")
def inv(A: Node) -> Node:
    """The inverses of square matrices."""
    return ops.inverse(A)[0]


@public(namespace="linalg")
def inv_ex(A: Node, *, check_errors: bool = False) -> InverseInfo:
    """The inverses, and where matrices have none."""
    return InverseInfo(*ops.inverse(A, check_errors))


def _solution(A: Node, B: Node) -> Node:
    vector = len(B.shape) == 1 or (len(B.shape) == len(A.shape) - 1 and B.shape == A.shape[:-1])
    right = reshape(B, (*B.shape, 1)) if vector else B
    left, right = _batched(A, right, "solve")
    result = ops.solve(left, right)
    return reshape(result, result.shape[:-1]) if vector else result


@public(namespace="linalg")
def solve(A: Node, B: Node, *, left: bool = True) -> Node:
    """The solution X of A X = B, or of X A = B."""
    if left:
        return _solution(A, B)
    return transposed(_solution(transposed(A), transposed(B)))


@public(namespace="linalg")
def solve_ex(A: Node, B: Node, *, left: bool = True, check_errors: bool = False) -> SolutionInfo:
    """The solution, and where matrices are singular."""
    return SolutionInfo(solve(A, B, left=left), decompositions.lu(stop_gradient(A))[2])


@public(namespace="linalg")
def solve_triangular(
    A: Node, B: Node, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Node:
    """The solution of triangular systems."""
    a, b = _batched(A, B, "solve_triangular")
    if left:
        return ops.solve_triangular(a, b, upper, unitriangular)
    turned = ops.solve_triangular(transposed(a), transposed(b), not upper, unitriangular)
    return transposed(turned)


class TriangularSolution(NamedTuple):
    """The solution, and the matrix it was found with."""

    solution: Node
    cloned_coefficient: Node


@public()
def triangular_solve(
    input: Node, A: Node, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolution:
    """The solution of A X = input for triangular A."""
    a, b = _batched(A, input, "triangular_solve")
    turned = transposed(a) if transpose else a
    result = ops.solve_triangular(turned, b, upper != transpose, unitriangular)
    return TriangularSolution(result, a)


@public(namespace="linalg")
def det(A: Node) -> Node:
    """The determinants of square matrices."""
    return ops.determinant(A)


@public(name="det")
def _det(input: Node) -> Node:
    """The determinants of square matrices."""
    return ops.determinant(input)


@public(namespace="linalg")
def slogdet(A: Node) -> SignLog:
    """The signs of the determinants and the logarithms of their magnitudes."""
    return SignLog(*ops.log_determinant(A))


@public(name="slogdet")
def _slogdet(input: Node) -> SignLog:
    """The signs of the determinants and the logarithms of their magnitudes."""
    return SignLog(*ops.log_determinant(input))


@public()
def logdet(input: Node) -> Node:
    """The logarithms of the determinants; NaN where they are negative."""
    sign, size = ops.log_determinant(input)
    if input.dtype.is_complex:
        return cast(size, input.dtype) + log(sign)
    return size + _log_sign(sign)


def _log_sign(sign: Node) -> Node:
    """0 for 1 and 0, NaN for -1."""
    negative = sign < 0
    return apply("select", negative, full_like(sign, float("nan")), full_like(sign, 0))


@public(namespace="linalg")
def cholesky(A: Node, *, upper: bool = False) -> Node:
    """The lower (or upper) factors of positive definite matrices."""
    return _cholesky(A, upper)


@public(name="cholesky")
def _cholesky(input: Node, upper: bool = False) -> Node:
    """The lower (or upper) factors of positive definite matrices."""
    factor = decompositions.cholesky(adjoint(input) if upper else input)[0]
    return adjoint(factor) if upper else factor


@public(namespace="linalg")
def cholesky_ex(A: Node, *, upper: bool = False, check_errors: bool = False) -> FactorInfo:
    """The factors, and where matrices are not positive definite."""
    factor, info = decompositions.cholesky(adjoint(A) if upper else A, check_errors)
    return FactorInfo(adjoint(factor) if upper else factor, info)


@public()
def cholesky_solve(B: Node, L: Node, upper: bool = False) -> Node:
    """The solution X of A X = B, from the Cholesky factor of A."""
    right, factor = _batched(B, L, "cholesky_solve")
    # one triangle is read, but as in torch the gradient is that of the whole product
    fixed = stop_gradient(factor)
    whole = ops.mask(fixed, 1 if upper else -1) + (factor - fixed)
    low = adjoint(whole) if upper else whole
    return ops.solve(matmul(low, adjoint(low)), right)


@public()
def cholesky_inverse(L: Node, upper: bool = False) -> Node:
    """The inverse of A, from its Cholesky factor."""
    return cholesky_solve(ops.eye_like(L), L, upper)


@public(namespace="linalg")
def qr(A: Node, mode: str = "reduced") -> QR:
    """Orthonormal columns times an upper triangle."""
    if mode not in ("reduced", "complete", "r"):
        raise BadValueError(f'mode is "reduced", "complete" or "r", not {mode!r}')
    return QR(*decompositions.qr(A, mode))


@public(name="qr")
def _qr(input: Node, some: bool = True) -> QR:
    """Orthonormal columns times an upper triangle."""
    return QR(*decompositions.qr(input, "reduced" if some else "complete"))


@public()
def geqrf(input: Node) -> QR:
    """The reflectors of a QR factorisation and their factors, as LAPACK keeps them."""
    return QR(*decompositions.reflectors(input))


def _reflection_product(input: Node, tau: Node, size: Size) -> Node:
    """The first `size` columns of the product of reflections."""
    *lead, height, _ = input.shape
    like = full_like(decompositions.part(input, 0, 0, height, 1), 0)
    eye = ops.eye_like(broadcast_scalar(zero_of(input), (*lead, height, size)))
    result = eye
    count = tau.shape[-1]
    assert isinstance(count, int) and isinstance(height, int)
    for k in reversed(range(count)):
        below = decompositions.part(input, k + 1, k, height - k - 1, 1)
        head = full_like(decompositions.part(like, 0, 0, 1, 1), 1)
        rest = decompositions.above(head, below)
        vector = (
            rest if k == 0 else decompositions.above(decompositions.part(like, 0, 0, k, 1), rest)
        )
        factor = reshape(_column(tau, k), (*lead, 1, 1))
        moved = matmul(vector, matmul(adjoint(vector), result))
        result = result - stretch(factor, result.shape) * moved
    return result


def zero_of(like: Node) -> Node:
    """A 0-d zero of another node's type."""
    return constant(0, like.dtype)


def _column(vectors: Node, k: int) -> Node:
    axis = len(vectors.shape) - 1
    return drop(cut(vectors, axis, k, 1), axis)


@public(namespace="linalg")
def householder_product(A: Node, tau: Node) -> Node:
    """The first columns of a product of reflections, as `geqrf` gives them."""
    return _reflection_product(A, tau, A.shape[-1])


@public(name="orgqr")
def _orgqr(input: Node, tau: Node) -> Node:
    """The first columns of a product of reflections."""
    return _reflection_product(input, tau, input.shape[-1])


@public()
def ormqr(input: Node, tau: Node, other: Node, left: bool = True, transpose: bool = False) -> Node:
    """A product of reflections times a matrix, from the left or from the right."""
    whole = _reflection_product(input, tau, input.shape[-2])
    turned = adjoint(whole) if transpose else whole
    a, b = _batched(turned, other, "ormqr")
    return matmul(a, b) if left else matmul(b, a)


@public(namespace="linalg")
def eigh(A: Node, UPLO: str = "L") -> Spectrum:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return Spectrum(*spectra.eigh(A, _is_upper(UPLO)))


@public(namespace="linalg")
def eigvalsh(A: Node, UPLO: str = "L") -> Node:
    """Eigenvalues of Hermitian matrices."""
    return spectra.eigh(A, _is_upper(UPLO))[0]


def _is_upper(uplo: str) -> bool:
    if uplo not in ("L", "U", "l", "u"):
        raise BadValueError(f'UPLO is "L" or "U", not {uplo!r}')
    return uplo in "Uu"


@public(namespace="linalg")
def eig(A: Node) -> Spectrum:
    """Complex eigenvalues and eigenvectors of square matrices."""
    return Spectrum(*spectra.eig(A))


@public(namespace="linalg")
def eigvals(A: Node) -> Node:
    """Complex eigenvalues of square matrices."""
    return spectra.eig(A)[0]


@public(namespace="linalg")
def svd(A: Node, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """Singular values and vectors."""
    return SVD(*spectra.svd(A, full_matrices))


class OldSVD(NamedTuple):
    """A = U diag(S) V^H."""

    U: Node
    S: Node
    V: Node


@public(name="svd")
def _svd(input: Node, some: bool = True, compute_uv: bool = True) -> OldSVD:
    """Singular values and vectors, the right ones in columns."""
    u, s, vh = spectra.svd(input, not some)
    if not compute_uv:
        square = [(*input.shape[:-2], n, n) for n in input.shape[-2:]]
        zero = zero_of(input)
        return OldSVD(broadcast_scalar(zero, square[0]), s, broadcast_scalar(zero, square[1]))
    return OldSVD(u, s, adjoint(vh))


@public(namespace="linalg")
def svdvals(A: Node, *, driver: str | None = None) -> Node:
    """Singular values, in falling order."""
    return spectra.svd(A)[1]


@public(namespace="linalg")
def lu_factor(A: Node, *, pivot: bool = True) -> FactoredLU:
    """The factors of A = P L U in one matrix, and the row exchanges."""
    return FactoredLU(*decompositions.lu(_pivoted(A, pivot))[:2])


def _pivoted(A: Node, pivot: bool) -> Node:
    if not pivot:
        raise BadValueError("LU without pivoting exists on GPUs only", help="use pivot=True")
    return A


@public(namespace="linalg")
def lu_factor_ex(A: Node, *, pivot: bool = True, check_errors: bool = False) -> FactoredLUInfo:
    """As `lu_factor`, and where a pivot was 0."""
    return FactoredLUInfo(*decompositions.lu(_pivoted(A, pivot)))


@public(name="lu", function=False)
def _lu_method(input: Node, pivot: bool = True, get_infos: bool = False) -> tuple[Node, ...]:
    """As `linalg.lu_factor`; with `get_infos` also where a pivot was 0."""
    packed, pivots, info = decompositions.lu(_pivoted(input, pivot))
    return (packed, pivots, info) if get_infos else (packed, pivots)


def _unpacked(packed: Node, pivots: Node) -> PLU:
    height = packed.shape[-2]
    assert isinstance(height, int)
    order = decompositions.permutation(pivots, height, packed.dtype)
    return PLU(order, decompositions.lower_factor(packed), decompositions.upper_factor(packed))


@public(namespace="linalg")
def lu(A: Node, *, pivot: bool = True) -> PLU:
    """A = P L U."""
    return _unpacked(*decompositions.lu(_pivoted(A, pivot))[:2])


@public()
def lu_unpack(
    LU_data: Node, LU_pivots: Node, unpack_data: bool = True, unpack_pivots: bool = True
) -> PLU:
    """P, L and U, from what `lu_factor` gave; empty where not asked for."""
    found = _unpacked(LU_data, cast(LU_pivots, dtypes.int32))
    empty = broadcast_scalar(zero_of(LU_data), (0,))
    order = found.P if unpack_pivots else empty
    return PLU(order, found.L, found.U) if unpack_data else PLU(order, empty, empty)


def _solve_factored(packed: Node, pivots: Node, right: Node, left: bool, turned: bool) -> Node:
    height = packed.shape[-1]
    assert isinstance(height, int)
    order = decompositions.permutation(pivots, height, packed.dtype)
    packed, right = _batched(packed, right if left else adjoint(right), "lu_solve")
    order, right = _batched(order, right, "lu_solve")
    if turned == left:  # systems with the conjugate transpose
        first = ops.solve_triangular(adjoint(packed), right, False, False)
        second = ops.solve_triangular(adjoint(packed), first, True, True)
        result = matmul(order, second)
    else:
        first = ops.solve_triangular(packed, matmul(transposed(order), right), False, True)
        result = ops.solve_triangular(packed, first, True, False)
    return result if left else adjoint(result)


@public(namespace="linalg")
def lu_solve(LU: Node, pivots: Node, B: Node, *, left: bool = True, adjoint: bool = False) -> Node:
    """The solution of A X = B, from what `lu_factor` gave."""
    return _solve_factored(LU, pivots, B, left, adjoint)


@public(name="lu_solve")
def _lu_solve(b: Node, LU_data: Node, LU_pivots: Node) -> Node:
    """The solution of A X = b, from what `lu_factor` gave."""
    return _solve_factored(LU_data, LU_pivots, b, True, False)


def tolerance(value: Operand | None, like: Node, default: float) -> Node:
    """A tolerance as one float64 per matrix."""
    lead = like.shape[:-2]
    given: Any = default if value is None else value
    return stop_gradient(stretch(as_node(given, dtypes.float64), lead))
