"""Products of vectors and matrices beside matmul: sums of products, distances, covariances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ridgeline import dtypes
from ridgeline.errors import BadValueError, DTypeError, ShapeError
from ridgeline.functions.arithmetic import clamp, clamp_min, div, maximum, mul, sub
from ridgeline.functions.linear import bmm, matmul, mv, outer, plus, same_type
from ridgeline.functions.matrices import norm, vector_norm
from ridgeline.functions.movement import cut, roll
from ridgeline.functions.operands import (
    Operand,
    axis_of,
    defaults,
    pair,
    require_real,
    result_type,
    step_count,
)
from ridgeline.functions.pointwise import sqrt
from ridgeline.functions.reductions import mean, sum
from ridgeline.functions.registry import grown, is_narrow, public
from ridgeline.graph.node import Node
from ridgeline.ops.complex import conj, real
from ridgeline.ops.elementwise import cast, full_like
from ridgeline.ops.linalg import diagonal_of, transposed
from ridgeline.ops.movement import broadcast_shapes, concat, reshape, stretch
from ridgeline.ops.reduce import reduce
from ridgeline.record.cells import known


@public(inplace=True, wide=True)
def addmv(input: Node, mat: Node, vec: Node, *, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """beta * input + alpha * (mat @ vec)."""
    return plus(input, mv(mat, vec), beta, alpha)


@public(inplace=True, wide=True)
def addr(input: Node, vec1: Node, vec2: Node, *, beta: Operand = 1, alpha: Operand = 1) -> Node:
    """beta * input + alpha * outer(vec1, vec2)."""
    return plus(input, outer(vec1, vec2), beta, alpha)


@public(inplace=True, wide=True)
def addbmm(
    input: Node, batch1: Node, batch2: Node, *, beta: Operand = 1, alpha: Operand = 1
) -> Node:
    """beta * input + alpha * the sum of all products of a batch."""
    return plus(input, reduce(bmm(batch1, batch2), "sum", (0,)), beta, alpha)


@public()
def vdot(input: Node, other: Node) -> Node:
    """The inner product of two vectors, the first conjugated."""
    return matmul(conj(input), other)


@public()
def inner(input: Node, other: Node) -> Node:
    """The sum of products along the last axes."""
    if not input.shape or not other.shape:
        return mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise ShapeError(
            f"inner: the last axes of {list(input.shape)} and {list(other.shape)} differ"
        )
    rows = math.prod(known(s) for s in other.shape[:-1])
    flat = reshape(other, (rows, other.shape[-1]))
    return reshape(matmul(input, transposed(flat)), (*input.shape[:-1], *other.shape[:-1]))


@public()
def kron(input: Node, other: Node) -> Node:
    """The Kronecker product."""
    rank = max(len(input.shape), len(other.shape))
    left = (1,) * (rank - len(input.shape)) + input.shape
    right = (1,) * (rank - len(other.shape)) + other.shape
    spread = tuple(s for size in left for s in (size, 1))
    across = tuple(s for size in right for s in (1, size))
    product = mul(reshape(input, spread), reshape(other, across))
    return reshape(product, tuple(a * b for a, b in zip(left, right)))


def _cross(input: Node, other: Node, axis: int) -> Node:
    same_type(input, other, "cross")
    for vectors in (input, other):
        if vectors.shape[axis] != 3:
            raise ShapeError(
                f"cross needs axes of size 3, got {list(vectors.shape)} along axis {axis}"
            )
    a, b = pair(input, other)

    def turned(node: Node, by: int) -> Node:
        return grown(roll(node, by, axis))

    left = turned(a, -1) * turned(b, -2)
    return cast(left - turned(a, -2) * turned(b, -1), a.dtype)


@public()
def cross(input: Node, other: Node, dim: int | None = None) -> Node:
    """The cross product of vectors along an axis of size 3 (the first such, if not given)."""
    rank = len(broadcast_shapes(input.shape, other.shape))
    if len(input.shape) != len(other.shape):
        raise ShapeError(
            f"cross needs as many axes in both, got {list(input.shape)} and {list(other.shape)}"
        )
    if dim is None:
        shape = broadcast_shapes(input.shape, other.shape)
        found = [axis for axis, size in enumerate(shape) if size == 3]
        if not found:
            raise ShapeError(f"cross needs an axis of size 3, got shape {list(shape)}")
        return _cross(input, other, found[0])
    return _cross(input, other, axis_of(dim, rank))


@public(namespace="linalg", name="cross")
def linalg_cross(input: Node, other: Node, *, dim: int = -1) -> Node:
    """The cross product of vectors along an axis of size 3."""
    if len(input.shape) != len(other.shape):
        raise ShapeError(
            f"cross needs equal numbers of axes: {list(input.shape)} and {list(other.shape)}"
        )
    return _cross(input, other, axis_of(dim, len(input.shape)))


@public(namespace="linalg")
def vecdot(x: Node, y: Node, *, dim: int = -1) -> Node:
    """The inner product along an axis, the first operand conjugated."""
    dtype = result_type(x, y)
    found = sum(mul(conj(grown(x)), grown(y)), dim)
    return cast(found, dtype) if is_narrow(dtype) else found


@public(namespace="linalg")
def multi_dot(tensors: Sequence[Node]) -> Node:
    """The product of several matrices, in the order that costs least."""
    parts = list(tensors)
    if len(parts) < 2:
        raise BadValueError(f"multi_dot needs at least two tensors, got {len(parts)}")
    first_vector, last_vector = len(parts[0].shape) == 1, len(parts[-1].shape) == 1
    if first_vector:
        parts[0] = reshape(parts[0], (1, *parts[0].shape))
    if last_vector:
        parts[-1] = reshape(parts[-1], (*parts[-1].shape, 1))
    if any(len(p.shape) != 2 for p in parts):
        raise ShapeError(f"multi_dot needs matrices, got {[list(p.shape) for p in parts]}")
    result = _cheapest(parts)
    rows = () if first_vector else result.shape[:1]
    columns = () if last_vector else result.shape[1:]
    return reshape(result, (*rows, *columns))


def _cheapest(parts: Sequence[Node]) -> Node:
    """The product by the parenthesisation with the fewest multiplications."""
    sizes = [known(parts[0].shape[0]), *(known(p.shape[1]) for p in parts)]
    count = len(parts)
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(count)}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return _product(parts, best, 0, count - 1)


def _product(
    parts: Sequence[Node], best: Mapping[tuple[int, int], tuple[int, int]], i: int, j: int
) -> Node:
    """The product of some neighbours, parted where that costs least."""
    if i == j:
        return parts[i]
    middle = best[i, j][1]
    return matmul(_product(parts, best, i, middle), _product(parts, best, middle + 1, j))


@public(method=False)
def chain_matmul(*matrices: Node) -> Node:
    """The product of several matrices, in the order that costs least."""
    listed = list(matrices[0]) if isinstance(matrices[0], list) else list(matrices)
    return listed[0] if len(listed) == 1 else multi_dot(listed)


@public(namespace="linalg", name="vander")
def linalg_vander(x: Node, *, N: int | None = None) -> Node:
    """The powers 0, 1, … of vectors as rows."""
    if not x.shape:
        x = reshape(x, (1,))
    if not x.dtype.is_differentiable:
        x = cast(x, dtypes.int64)
    count = known(x.shape[-1]) if N is None else N
    columns = [full_like(x, 1)]
    for _ in range(step_count(count, "vander") - 1):
        columns.append(columns[-1] * x)
    return concat([reshape(c, (*c.shape, 1)) for c in columns[:count]], len(x.shape))


@public(wide=True)
def dist(input: Node, other: Node, p: float = 2) -> Node:
    """The norm of the difference."""
    return vector_norm(sub(input, other), p)


def _differences(x1: Node, x2: Node) -> Node:
    """All differences of rows, along a new axis before the last."""
    rows, others = known(x1.shape[-2]), known(x2.shape[-2])
    lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    width = x1.shape[-1]
    shape = (*lead, rows, others, width)
    left = reshape(stretch(x1, (*lead, rows, width)), (*lead, rows, 1, width))
    right = reshape(stretch(x2, (*lead, others, width)), (*lead, 1, others, width))
    return stretch(left, shape) - stretch(right, shape)


@public(method=False, wide=True)
def cdist(
    x1: Node,
    x2: Node,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Node:
    """The distances between all rows of two batches of matrices."""
    if len(x1.shape) < 2 or len(x2.shape) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: shapes {list(x1.shape)} and {list(x2.shape)} do not fit")
    if x1.dtype is not x2.dtype:
        raise DTypeError(f"cdist needs one type, got {x1.dtype.name} and {x2.dtype.name}")
    if not p >= 0:
        raise BadValueError(f"cdist needs a p of at least 0, got {p}")
    away = _differences(x1, x2)
    if away.shape[-1] == 0:
        return reduce(away, "sum", (len(away.shape) - 1,))
    return vector_norm(away, p, -1)


@public(method=False)
def pdist(input: Node, p: float = 2.0) -> Node:
    """The distances between all pairs of rows, each pair once."""
    if len(input.shape) != 2:
        raise ShapeError(f"pdist needs a matrix, got shape {list(input.shape)}")
    count = known(input.shape[0])
    rows = []
    for i in range(count - 1):
        rest = cut(input, 0, i + 1, count - 1 - i)
        rows.append(stretch(cut(input, 0, i, 1), rest.shape) - rest)
    if not rows or input.shape[1] == 0:
        return reduce(concat(rows or [cut(input, 0, 0, 0)], 0), "sum", (1,))
    return vector_norm(concat(rows, 0), p, 1)


@public()
def cov(
    input: Node,
    *,
    correction: int = 1,
    fweights: Node | None = None,
    aweights: Node | None = None,
) -> Node:
    """The covariances of variables in rows, observed in columns."""
    if len(input.shape) > 2:
        raise ShapeError(f"cov needs at most two axes, got shape {list(input.shape)}")
    matrix = reshape(input, (1, *input.shape)) if len(input.shape) < 2 else input
    if not input.shape:
        matrix = reshape(input, (1, 1))
    if not matrix.dtype.is_differentiable:
        matrix = cast(matrix, defaults.dtype)
    weights = aweights if fweights is None else fweights
    if fweights is not None and aweights is not None:
        weights = mul(fweights, aweights)
    if weights is None:
        centre = mean(matrix, 1, True)
        norm: Operand = float(max(known(matrix.shape[1]) - correction, 0))
        away = sub(matrix, centre)
        product = matmul(away, conj(transposed(away)))
    else:
        total = sum(weights)
        centre = div(sum(mul(matrix, weights), 1, True), total)
        away = sub(matrix, centre)
        product = matmul(mul(away, weights), conj(transposed(away)))
        if aweights is None:
            norm = sub(total, correction)
        else:
            norm = sub(total, div(mul(correction, sum(mul(weights, aweights))), total))
        norm = maximum(norm, 0)
    result = div(product, norm)
    return reshape(result, ()) if known(matrix.shape[0]) == 1 else result


@public()
def corrcoef(input: Node) -> Node:
    """The correlations of variables in rows, observed in columns."""
    found = cov(input)
    if not found.shape:
        return div(found, found)
    spread = sqrt(real(diagonal_of(found)))
    count = spread.shape[0]
    result = div(found, mul(reshape(spread, (count, 1)), reshape(spread, (1, count))))
    if result.dtype.is_complex:
        return result
    return clamp(result, -1, 1)


@public(shares=True)
def adjoint(input: Node) -> Node:
    """The last two axes exchanged, and conjugated."""
    return conj(transposed(input))


@public(method=False, wide=True)
def cosine_similarity(x1: Node, x2: Node, dim: int = 1, eps: float = 1e-8) -> Node:
    """The cosine of the angle between vectors along an axis."""
    a, b = pair(x1, x2)
    require_real(a.dtype, "cosine_similarity")
    dim = axis_of(dim, len(a.shape))
    dots = sum(a * b, dim)
    left, right = norm(a, 2, dim), norm(b, 2, dim)
    return div(dots, mul(maximum(left, float(eps)), maximum(right, float(eps))))


@public(method=False, wide=True)
def normalize(input: Node, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Node:
    """The input divided by its norm along an axis."""
    return div(input, clamp_min(norm(input, p, dim, keepdim=True), float(eps)))
