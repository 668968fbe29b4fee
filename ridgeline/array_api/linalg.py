"""Linear algebra: the standard's extension, over `ridgeline.linalg`."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ridgeline.array_api.array import Array, SizeError, as_array, call, need_array, together
from ridgeline.array_api.linear import matmul, matrix_transpose, tensordot, vecdot
from ridgeline.array_api.manipulation import broadcast_shapes
from ridgeline.array_api.statistics import total_type
from ridgeline.array_api.types import FLOATING, NUMERIC, finfo, require
from ridgeline.dtypes import DType
from ridgeline.tensors import dispatch
from ridgeline.tensors.tensor import Tensor

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
_LIBRARY = dispatch.namespace("linalg")


class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors of Hermitian matrices."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors of any square matrices."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """An orthogonal and an upper triangular factor."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its magnitude."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """Left singular vectors, singular values, and right ones as rows."""

    U: Array
    S: Array
    Vh: Array


def _matrix(name: str, x: Tensor, *, square: bool = False) -> Tensor:
    """Check that an argument is a stack of floating matrices."""
    require(name, need_array(name, x).dtype, FLOATING)
    if x.ndim < 2:
        raise SizeError(f"{name} needs matrices, got shape {list(x.shape)}")
    if square and x.shape[-1] != x.shape[-2]:
        raise SizeError(f"{name} needs square matrices, got shape {list(x.shape)}")
    return x


def cholesky(x: Tensor, /, *, upper: bool = False) -> Array:
    """The triangular factor of positive definite matrices."""
    return as_array(_LIBRARY["cholesky"](_matrix("cholesky", x, square=True), upper=upper))


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """The cross product of vectors with three components."""
    a, b = together("cross", NUMERIC, need_array("cross", x1), need_array("cross", x2))
    if not -min(a.ndim, b.ndim) <= axis < min(a.ndim, b.ndim):
        raise SizeError(f"cross: axis {axis} does not exist in both operands")
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise SizeError(f"cross needs 3 components, got {list(a.shape)} and {list(b.shape)}")
    left = [call("select", a, axis, i) for i in range(3)]
    right = [call("select", b, axis, i) for i in range(3)]
    parts = [
        call("sub", left[i] * right[j], left[j] * right[i]) for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return call("stack", parts, axis if axis < 0 else axis - a.ndim)


def det(x: Tensor, /) -> Array:
    """The determinant."""
    return as_array(_LIBRARY["det"](_matrix("det", x, square=True)))


def diagonal(x: Tensor, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices."""
    if need_array("diagonal", x).ndim < 2:
        raise SizeError(f"diagonal needs matrices, got shape {list(x.shape)}")
    rows, columns = x.shape[-2:]
    if not -rows < offset < columns:
        return call("zeros", (*x.shape[:-2], 0), dtype=x.dtype)
    return call("diagonal", x, offset, -2, -1)


def eigh(x: Tensor, /) -> EighResult:
    """Eigenvalues, rising, and eigenvectors of Hermitian matrices."""
    return EighResult(*map(as_array, _LIBRARY["eigh"](_matrix("eigh", x, square=True))))


def eigvalsh(x: Tensor, /) -> Array:
    """Eigenvalues of Hermitian matrices, rising."""
    return as_array(_LIBRARY["eigvalsh"](_matrix("eigvalsh", x, square=True)))


def eig(x: Tensor, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices."""
    return EigResult(*map(as_array, _LIBRARY["eig"](_matrix("eig", x, square=True))))


def eigvals(x: Tensor, /) -> Array:
    """Eigenvalues of square matrices."""
    return as_array(_LIBRARY["eigvals"](_matrix("eigvals", x, square=True)))


def inv(x: Tensor, /) -> Array:
    """The inverse."""
    return as_array(_LIBRARY["inv"](_matrix("inv", x, square=True)))


def matrix_norm(
    x: Tensor, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro"
) -> Array:
    """A norm of matrices."""
    _matrix("matrix_norm", x)
    order = "fro" if ord is None else ord
    return as_array(_LIBRARY["matrix_norm"](x, order, keepdim=keepdims))


def matrix_power(x: Tensor, n: int, /) -> Array:
    """The n-th power; a negative one of the inverse."""
    return as_array(_LIBRARY["matrix_power"](_matrix("matrix_power", x, square=True), n))


def _tolerance(x: Tensor, rtol: Any) -> Any:
    """A relative tolerance, for each matrix or for all, in the type of the singular values."""
    if not isinstance(rtol, Tensor):
        return rtol
    return rtol.to(finfo(x).dtype)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Array:
    """How many singular values are larger than `rtol` times the largest."""
    _matrix("matrix_rank", x)
    return as_array(_LIBRARY["matrix_rank"](x, rtol=_tolerance(x, rtol)))


def outer(x1: Tensor, x2: Tensor, /) -> Array:
    """All products of an element of one vector and one of the other."""
    a, b = together("outer", NUMERIC, need_array("outer", x1), need_array("outer", x2))
    if a.ndim != 1 or b.ndim != 1:
        raise SizeError(f"outer needs vectors, got {list(a.shape)} and {list(b.shape)}")
    return call("mul", a.unsqueeze(1), b.unsqueeze(0))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Array:
    """The pseudo-inverse; singular values below `rtol` times the largest count as 0."""
    _matrix("pinv", x)
    return as_array(_LIBRARY["pinv"](x, rtol=_tolerance(x, rtol)))


def qr(x: Tensor, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """An orthogonal factor times an upper triangular one."""
    if mode not in ("reduced", "complete"):
        raise SizeError(f'mode is "reduced" or "complete", not {mode!r}')
    return QRResult(*map(as_array, _LIBRARY["qr"](_matrix("qr", x), mode)))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """The sign of the determinant and the logarithm of its magnitude."""
    return SlogdetResult(*map(as_array, _LIBRARY["slogdet"](_matrix("slogdet", x, square=True))))


def solve(x1: Tensor, x2: Tensor, /) -> Array:
    """The solution of linear equations; `x2` is one vector, or a stack of matrices."""
    a, b = together("solve", FLOATING, need_array("solve", x1), need_array("solve", x2))
    _matrix("solve", a, square=True)
    vector = b.ndim == 1
    right = b.unsqueeze(-1) if vector else b
    batch = broadcast_shapes(tuple(a.shape[:-2]), tuple(right.shape[:-2]))
    solution = _LIBRARY["solve"](
        a.expand((*batch, *a.shape[-2:])), right.expand((*batch, *right.shape[-2:]))
    )
    return as_array(solution.squeeze(-1) if vector else solution)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular vectors and values."""
    return SVDResult(*map(as_array, _LIBRARY["svd"](_matrix("svd", x), full_matrices)))


def svdvals(x: Tensor, /) -> Array:
    """Singular values, falling."""
    return as_array(_LIBRARY["svdvals"](_matrix("svdvals", x)))


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Array:
    """The sum of the diagonals of matrices."""
    require("trace", need_array("trace", x).dtype, NUMERIC)
    return call("sum", diagonal(x, offset=offset), -1, dtype=total_type(x, dtype))


def vector_norm(
    x: Tensor,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Array:
    """A norm of vectors along some axes, or of all elements."""
    require("vector_norm", need_array("vector_norm", x).dtype, FLOATING)
    if axis == ():
        magnitudes = call("abs", x)
        if ord == 0:
            return as_array((magnitudes != 0).to(magnitudes.dtype))
        return magnitudes
    return as_array(_LIBRARY["vector_norm"](x, ord, axis, keepdim=keepdims))
