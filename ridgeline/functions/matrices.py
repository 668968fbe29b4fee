"""Norms, ranks, pseudo-inverses and powers of matrices; least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import AxisError, BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import div, maximum, mul, pow as power
from ridgeline.functions.creation import finfo
from ridgeline.functions.factorisations import solve, tolerance
from ridgeline.functions.linear import matmul
from ridgeline.functions.movement import cut, movedim
from ridgeline.functions.operands import Operand, axes_of, axis_of, require_float
from ridgeline.functions.pointwise import abs
from ridgeline.functions.reductions import keep, sum
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node
from ridgeline.ops import decompositions, linalg as ops, spectra, symmetric
from ridgeline.ops.complex import conj, real, real_of
from ridgeline.ops.elementwise import cast, constant, full_like, select, stop_gradient
from ridgeline.ops.math import isnan, sign, sqrt
from ridgeline.ops.movement import broadcast_scalar, broadcast_shapes, reshape, stretch
from ridgeline.ops.reduce import expand_back, reduce
from ridgeline.record.cells import known

Dims = int | Sequence[int] | None
Order = float | int | str | None


def _floats(x: Node, dtype: DType | None, what: str) -> Node:
    wanted = x if dtype is None else cast(x, dtype)
    if not wanted.dtype.is_differentiable:
        raise DTypeError(f"{what} needs floating values, got {x.dtype.name}", help="use .float()")
    return wanted


@public(namespace="linalg", wide=True)
def vector_norm(
    x: Node, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Node:
    """The norm of order `ord` over some axes, or all."""
    values = _floats(x, dtype, "vector_norm")
    axes = axes_of(dim, len(values.shape))
    if isinstance(ord, bool) or not isinstance(ord, int | float):
        raise BadValueError(f"a vector norm has a number as its order, not {ord!r}")
    if (ord < 0 or ord == math.inf) and math.prod(known(values.shape[a]) for a in axes) == 0:
        raise BadValueError(f"the norm of order {ord} of no elements does not exist")
    return keep(_vector_norm(values, float(ord), axes), values.shape, axes, keepdim)


def _vector_norm(x: Node, ord: float, axes: Sequence[int]) -> Node:
    if ord == 0:  # through sign, whose derivative is zero, where that of a comparison is none
        sizes = abs(x)
        ones = select(isnan(sizes), full_like(sizes, 1), sign(sizes))
        return reduce(ones, "sum", axes)
    if not axes:
        return abs(x)
    sizes = abs(x)
    if ord == math.inf or all(x.shape[axis] == 1 for axis in axes):  # a power may overflow
        return reduce(sizes, "max", axes)
    if ord == 2:
        return _euclidean(x, axes)
    if ord == -math.inf:
        return reduce(sizes, "min", axes)
    if ord == 1:
        return reduce(sizes, "sum", axes)
    return _rooted(reduce(_powered(sizes, ord), "sum", axes), ord)


def _powered(sizes: Node, ord: float) -> Node:
    """|x| ** p with a derivative of 0 (not NaN) at 0."""
    zero = sizes.eq(0)
    safe = select(zero, full_like(sizes, 1), sizes)
    return select(zero, full_like(sizes, 0 if ord > 0 else math.inf), power(safe, ord))


def _rooted(total: Node, ord: float) -> Node:
    """total ** (1 / p), with a derivative of 0 at 0."""
    zero = total.eq(0)
    safe = select(zero, full_like(total, 1), total)
    return select(zero, full_like(total, 0), power(safe, 1.0 / ord))


def _euclidean(x: Node, axes: Sequence[int]) -> Node:
    squares = real(x * conj(x)) if x.dtype.is_complex else x * x
    total = reduce(squares, "sum", axes)
    zero = total.eq(0)
    safe = select(zero, full_like(total, 1), total)
    return select(zero, full_like(total, 0), sqrt(safe))


@public(namespace="linalg", wide=True)
def matrix_norm(
    A: Node,
    ord: Order = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Node:
    """The norm of matrices: "fro", "nuc", or of order 1, 2, inf and their negatives."""
    x = _floats(A, dtype, "matrix_norm")
    rank = len(x.shape)
    if len(dim) != 2:
        raise AxisError(f"a matrix norm needs two axes, got {tuple(dim)}")
    first, second = (axis_of(d, rank) for d in dim)
    if first == second:
        raise AxisError(f"a matrix norm needs two different axes, got {tuple(dim)}")
    axes = (first, second)
    if ord in ("fro", None):
        return keep(_euclidean(x, sorted(axes)), x.shape, axes, keepdim)
    if ord in (1, -1, math.inf, -math.inf):
        summed, kept = (first, second) if ord in (1, -1) else (second, first)
        totals = reduce(abs(x), "sum", (summed,))
        axis = kept - (kept > summed)
        pick = _extreme(ord > 0, x.shape[kept] == 0)
        return keep(reduce(totals, pick, (axis,)), x.shape, axes, keepdim)
    if ord not in ("nuc", 2, -2):
        raise BadValueError(f"matrix norm of order {ord!r} is not defined")
    values = spectra.svd(movedim(x, axes, (-2, -1)))[1]
    last = len(values.shape) - 1
    monoid = "sum" if ord == "nuc" else _extreme(ord == 2, values.shape[last] == 0)
    return keep(reduce(values, monoid, (last,)), x.shape, axes, keepdim)


def _extreme(largest: bool, empty: bool) -> str:
    """The monoid of a largest or smallest value; nothing has a largest one of 0."""
    if empty and not largest:
        raise BadValueError("the smallest of no values does not exist")
    return "sum" if empty else "max" if largest else "min"


@public(namespace="linalg", name="norm", wide=True)
def linalg_norm(
    A: Node,
    ord: Order = None,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Node:
    """A vector norm over one axis (or all), or a matrix norm over two."""
    rank = len(A.shape)
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if (dim is None and rank == 1) or isinstance(dim, int):
        return vector_norm(A, ord, dim, keepdim, dtype=dtype)  # type: ignore[arg-type]
    axes = tuple(range(rank)) if dim is None else tuple(dim)
    if len(axes) == 1:
        return vector_norm(A, ord, axes, keepdim, dtype=dtype)  # type: ignore[arg-type]
    if len(axes) != 2:
        raise ShapeError(f"norm of order {ord!r} needs one or two axes, got {list(A.shape)}")
    return matrix_norm(A, ord, axes, keepdim, dtype=dtype)


@public(namespace="linalg")
def cond(A: Node, p: Order = None) -> Node:
    """The condition number of matrices."""
    if p in (None, 2, -2):
        values = spectra.svd(A)[1]
        axis = len(values.shape) - 1
        large, small = reduce(values, "max", (axis,)), reduce(values, "min", (axis,))
        return div(small, large) if p == -2 else div(large, small)
    inverse = ops.inverse(A, checked=False)[0]
    result = mul(matrix_norm(A, p), matrix_norm(inverse, p))
    bad = isnan(result)
    return select(bad, full_like(result, math.inf), result)


def _default_tolerance(x: Node) -> float:
    return float(finfo(real_of(x.dtype)).eps) * max(known(s) for s in x.shape[-2:])


def _tolerances(x: Node, atol: Operand | None, rtol: Operand | None) -> tuple[Node, Node]:
    relative = 0.0 if atol is not None and rtol is None else _default_tolerance(x)
    if atol is not None and rtol is None and not isinstance(atol, Node) and not atol:
        relative = _default_tolerance(x)
    return tolerance(rtol, x, relative), tolerance(atol, x, 0.0)


@public(namespace="linalg")
def matrix_rank(
    A: Node,
    tol: Operand | None = None,
    *,
    atol: Operand | None = None,
    rtol: Operand | None = None,
    hermitian: bool = False,
) -> Node:
    """How many singular values lie above the tolerance."""
    source = stop_gradient(A)
    if tol is not None:
        atol, rtol = tol, 0.0
    values = abs(spectra.eigh(source)[0]) if hermitian else spectra.svd(source)[1]
    relative, absolute = _tolerances(source, atol, rtol)
    if 0 in A.shape[-2:]:
        return full_like(cast(relative, dtypes.int64), 0)
    wide = cast(values, dtypes.float64)
    axis = len(wide.shape) - 1
    top = reduce(wide, "max", (axis,))
    limit = maximum(absolute, mul(relative, top))
    counted = expand_back(limit, wide.shape, (axis,)) < wide
    return reduce(cast(counted, dtypes.int64), "sum", (axis,))


@public(namespace="linalg")
def pinv(
    A: Node,
    *,
    atol: Operand | None = None,
    rtol: Operand | None = None,
    hermitian: bool = False,
    rcond: Operand | None = None,
) -> Node:
    """The Moore-Penrose inverse."""
    if rcond is not None:
        rtol = rcond
    if len(A.shape) < 2:
        raise ShapeError(f"pinv needs matrices, got shape {list(A.shape)}")
    relative, absolute = _tolerances(A, atol, rtol)
    return decompositions.pseudo_inverse(A, relative, absolute, hermitian)


@public()
def pinverse(input: Node, rcond: float = 1e-15) -> Node:
    """The Moore-Penrose inverse."""
    return pinv(input, rtol=rcond)


@public(name="matrix_exp", wide=True)
def _matrix_exp(input: Node) -> Node:
    """The exponentials of square matrices."""
    return ops.matrix_exponential(input)


@public(namespace="linalg", wide=True)
def matrix_exp(A: Node) -> Node:
    """The exponentials of square matrices."""
    return ops.matrix_exponential(A)


@public(namespace="linalg")
def matrix_power(A: Node, n: int) -> Node:
    """The n-th power of square matrices; a negative one of the inverse."""
    return _matrix_power(A, n)


@public(name="matrix_power")
def _matrix_power(input: Node, n: int) -> Node:
    """The n-th power of square matrices; a negative one of the inverse."""
    if len(input.shape) < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"matrix_power needs square matrices, got {list(input.shape)}")
    base = ops.inverse(input)[0] if n < 0 else input
    count = n if n >= 0 else -n
    if count == 0:
        never = broadcast_scalar(constant(False, dtypes.bool_), base.shape)
        return select(never, base, ops.eye_like(base))  # a gradient of zeros, not none
    result: Node | None = None
    while count:
        if count & 1:
            result = base if result is None else matmul(result, base)
        count >>= 1
        if count:
            base = matmul(base, base)
    assert result is not None
    return result


class LeastSquares(NamedTuple):
    """A least-squares solution, squared residuals, rank and singular values."""

    solution: Node
    residuals: Node
    rank: Node
    singular_values: Node


@public(namespace="linalg")
def lstsq(
    A: Node, B: Node, rcond: Operand | None = None, *, driver: str | None = None
) -> LeastSquares:
    """The solution X that makes |A X - B| smallest."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise BadValueError(f"lstsq knows no driver {driver!r}")
    if A.dtype is not B.dtype:
        raise DTypeError(f"lstsq needs operands of one type: {A.dtype.name} and {B.dtype.name}")
    vector = len(B.shape) == len(A.shape) - 1
    right = reshape(B, (*B.shape, 1)) if vector else B
    solution = matmul(pinv(A, rtol=rcond), right)
    height, width = (known(s) for s in A.shape[-2:])
    rank = matrix_rank(A, rtol=rcond)
    empty = reshape(full_like(reduce(real(solution), "sum", range(len(solution.shape))), 0), (1,))
    nothing = _none_of(empty)
    residuals = nothing
    if height > width and driver != "gelsy" and driver is not None:
        away = matmul(A, solution) - right
        residuals = sum(power(abs(away), 2), -2)
    if driver in (None, "gelsy"):
        values = nothing
    elif driver == "gels":
        values, rank = nothing, _none_of(reshape(cast(empty, dtypes.int64), (1,)))
    else:
        values = spectra.svd(A)[1]
    shown = reshape(solution, solution.shape[:-1]) if vector else solution
    return LeastSquares(shown, residuals, rank, values)


def _none_of(a: Node) -> Node:
    return cut(a, 0, 0, 0)


@public(namespace="linalg")
def tensorinv(A: Node, ind: int = 2) -> Node:
    """The inverse of a tensor as a map from its last axes to its first `ind`."""
    if ind < 1:
        raise BadValueError(f"tensorinv needs a positive ind, got {ind}")
    front, back = A.shape[:ind], A.shape[ind:]
    rows = math.prod(known(s) for s in front)
    columns = math.prod(known(s) for s in back)
    if rows != columns:
        raise ShapeError(f"tensorinv: {list(A.shape)} is not square when split at axis {ind}")
    return reshape(ops.inverse(reshape(A, (rows, columns)))[0], (*back, *front))


@public(namespace="linalg")
def tensorsolve(A: Node, B: Node, dims: Sequence[int] | None = None) -> Node:
    """The solution X of tensordot(A, X) = B."""
    if dims is not None:
        A = movedim(A, tuple(dims), tuple(range(len(A.shape) - len(dims), len(A.shape))))
    shape = A.shape[len(B.shape) :]
    rows = math.prod(known(s) for s in B.shape)
    if math.prod(known(s) for s in shape) != rows:
        raise ShapeError(f"tensorsolve: shapes {list(A.shape)} and {list(B.shape)} do not fit")
    flat = solve(reshape(A, (rows, rows)), reshape(B, (rows,)))
    return reshape(flat, shape)


# ---- LDL factors of symmetric and Hermitian matrices, and systems solved by them -----------------


class FactoredLDL(NamedTuple):
    """L and D in one matrix, and the row exchanges."""

    LD: Node
    pivots: Node


class FactoredLDLInfo(NamedTuple):
    """L and D in one matrix, the row exchanges, and where a block of D was zero."""

    LD: Node
    pivots: Node
    info: Node


@public(namespace="linalg")
def ldl_factor(A: Node, *, hermitian: bool = False) -> FactoredLDL:
    """A = P L D L^T P^T with D of blocks of one or two; only the lower triangle is read."""
    return FactoredLDL(*symmetric.ldl(A, hermitian, True)[:2])


@public(namespace="linalg")
def ldl_factor_ex(
    A: Node, *, hermitian: bool = False, check_errors: bool = False
) -> FactoredLDLInfo:
    """The LDL factors, and per matrix 0 or the place where a block of D was zero."""
    return FactoredLDLInfo(*symmetric.ldl(A, hermitian, check_errors))


@public(namespace="linalg")
def ldl_solve(LD: Node, pivots: Node, B: Node, *, hermitian: bool = False) -> Node:
    """The solution of A X = B, from what `ldl_factor` gives for A."""
    lead = broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    packed = stretch(LD, (*lead, *LD.shape[-2:]))
    rows = stretch(pivots, (*lead, *pivots.shape[-1:]))
    return symmetric.ldl_solve(packed, rows, stretch(B, (*lead, *B.shape[-2:])), hermitian)


@public(wide=True)
def norm(
    input: Node,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Node:
    """The vector norm of order p over some axes."""
    x = input if dtype is None else cast(input, dtype)
    require_float(x, "norm")
    if p == "nuc":
        axes = axes_of(dim, len(x.shape)) if dim is None or isinstance(dim, int) else tuple(dim)
        return matrix_norm(x, "nuc", axes, keepdim)
    if p is not None and p != "fro" and not isinstance(p, int | float):
        raise BadValueError(f"norm of order {p!r} is not defined", help="use a number")
    return vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim)  # type: ignore[arg-type]
