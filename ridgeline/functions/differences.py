"""Finite differences along an axis, and integrals and gradients made of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.arithmetic import add, div, mul, neg, sub
from ridgeline.functions.movement import cat, cut
from ridgeline.functions.operands import Operand, as_node, axis_of, floating, listed, step_count
from ridgeline.functions.reductions import sum as total
from ridgeline.functions.registry import grown, public
from ridgeline.functions.scanning import cumsum
from ridgeline.graph.node import Node
from ridgeline.ops import movement
from ridgeline.ops.elementwise import cast
from ridgeline.ops.movement import stretch
from ridgeline.record.cells import known


@public()
def diff(
    input: Node, n: int = 1, dim: int = -1, prepend: Node | None = None, append: Node | None = None
) -> Node:
    """Differences of neighbours along an axis, taken n times."""
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        raise ShapeError("diff needs at least one axis")
    if n < 0:
        raise BadValueError(f"diff cannot be taken {n} times")
    x = input
    if n and (prepend is not None or append is not None):
        parts = [part for part in (prepend, input, append) if part is not None]
        x = cat(parts, axis)
    dtype, x = x.dtype, grown(x)
    for _ in range(step_count(n, "diff")):
        size = known(x.shape[axis])
        if size == 0:
            break
        later, earlier = cut(x, axis, 1, size - 1), cut(x, axis, 0, size - 1)
        x = later ^ earlier if x.dtype is dtypes.bool_ else sub(later, earlier)
    return cast(x, dtype)


def _steps(y: Node, x: Node | None, dx: Operand, axis: int) -> Operand:
    """The widths of the intervals, shaped so that they broadcast against pairs of y."""
    if x is None:
        return dx
    if len(x.shape) == 1:
        if x.shape[0] != y.shape[axis]:
            raise ShapeError(f"trapezoid: {x.shape[0]} points for {y.shape[axis]} values")
        widths = diff(x)
        after = len(y.shape) - 1 - axis
        return movement.reshape(widths, (*widths.shape, *(1,) * after))
    axis_from_end = axis - len(y.shape)
    return diff(x, dim=axis_from_end)


def _areas(y: Node, x: Node | None, dx: Operand, dim: int) -> tuple[Node, int]:
    """The area of every interval, and the axis along which they lie."""
    axis = axis_of(dim, len(y.shape))
    if not y.shape:
        raise ShapeError("trapezoid needs at least one axis")
    values = y if y.dtype.is_differentiable else cast(y, floating(y.dtype))
    size = known(y.shape[axis])
    count = max(size - 1, 0)
    pairs = add(cut(values, axis, min(1, size), count), cut(values, axis, 0, count))
    area = div(mul(pairs, _steps(y, x, dx, axis)), 2)
    return area, axis - len(y.shape)


@public("trapz", method=False)
def trapezoid(y: Node, x: Node | None = None, *, dx: Operand | None = None, dim: int = -1) -> Node:
    """The integral by the trapezoidal rule along an axis."""
    area, axis = _areas(y, x, 1 if dx is None else dx, dim)
    return total(area, axis)


@public(method=False)
def cumulative_trapezoid(
    y: Node, x: Node | None = None, *, dx: Operand | None = None, dim: int = -1
) -> Node:
    """The running integral by the trapezoidal rule along an axis."""
    area, axis = _areas(y, x, 1 if dx is None else dx, dim)
    return cumsum(area, axis)


@public(method=False)
def gradient(
    input: Node,
    *,
    spacing: Operand | Sequence[Operand] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Node, ...]:
    """Derivatives along axes by central differences; one-sided at the ends."""
    rank = len(input.shape)
    dims = range(rank) if dim is None else listed(dim)
    axes = [axis_of(d, rank) for d in dims]
    if edge_order not in (1, 2):
        raise BadValueError(f"gradient: edge_order is 1 or 2, not {edge_order}")
    spacings: Sequence[Operand]
    if isinstance(spacing, list | tuple):
        spacings = spacing
    else:
        spacings = [1 if spacing is None else spacing] * len(axes)  # type: ignore[list-item]
    if len(spacings) != len(axes):
        raise BadValueError(f"gradient: {len(spacings)} spacings for {len(axes)} axes")
    dtype = floating(input.dtype)
    x = grown(cast(input, dtype))
    return tuple(cast(_slope(x, axis, by, edge_order), dtype) for axis, by in zip(axes, spacings))


def _slope(x: Node, axis: int, spacing: Operand, edge_order: int) -> Node:
    """Slopes along an axis: three neighbours inside, two or three at the ends."""
    size = known(x.shape[axis])
    if size < edge_order + 1:
        raise ShapeError(f"gradient needs at least {edge_order + 1} points, axis {axis} has {size}")
    points = as_node(spacing, x.dtype)
    gaps = diff(points) if points.shape else stretch(points, (size - 1,))
    gaps = movement.reshape(gaps, (size - 1, *(1,) * (len(x.shape) - 1 - axis)))

    def weighted(start: int, weights: Sequence[Node], count: int) -> Node:
        terms = [mul(cut(x, axis, start + i, count), w) for i, w in enumerate(weights)]
        return reduce(add, terms)

    def gap(start: int, count: int = 1) -> Node:
        return cut(gaps, 0, start, count)

    def slope(start: int, count: int, at: int) -> Node:
        """The slope at point `at` (0, 1 or 2) of three points with gaps h and k."""
        h, k = gap(start, count), gap(start + 1, count)
        both, product = add(h, k), mul(h, k)
        forms = (
            (neg(div(add(h, both), mul(h, both))), div(both, product), neg(div(h, mul(k, both)))),
            (neg(div(k, mul(h, both))), div(sub(k, h), product), div(h, mul(k, both))),
            (div(k, mul(h, both)), neg(div(both, product)), div(add(k, both), mul(k, both))),
        )
        return weighted(start, forms[at], count)

    if edge_order == 2:
        ends = slope(0, 1, 0), slope(size - 3, 1, 2)
    else:
        ends = (
            div(diff(cut(x, axis, 0, 2), dim=axis), gap(0)),
            div(diff(cut(x, axis, size - 2, 2), dim=axis), gap(size - 2)),
        )
    inner = [slope(0, size - 2, 1)] if size > 2 else []
    return cat([ends[0], *inner, ends[1]], axis)
