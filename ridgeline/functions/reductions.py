"""Reductions over axes: sums, means, extremes, norms, and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, DTypeError, NoElementsError
from ridgeline.functions.arithmetic import add, maximum, minimum, truth
from ridgeline.functions.operands import (
    Operand,
    as_float,
    as_node,
    axes_of,
    axis_of,
    floating,
    require_float,
)
from ridgeline.functions.registry import grown, public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, SizeExpr, product
from ridgeline.ops.complex import imag, real
from ridgeline.ops.elementwise import apply, cast, constant, full_like, select, stop_gradient
from ridgeline.ops.math import exp, log, sqrt
from ridgeline.ops.movement import reshape, stretch
from ridgeline.ops.reduce import arg_reduce, expand_back, reduce

Dims = int | Sequence[int] | None


class ValuesIndices(NamedTuple):
    """Extreme values along an axis and where they stand."""

    values: Node
    indices: Node


def keep(reduced: Node, shape: tuple[Size, ...], axes: Sequence[int], keepdim: bool) -> Node:
    """A reduction's result, with axes of size 1 where they were reduced if asked for."""
    if not keepdim:
        return reduced
    return reshape(reduced, tuple(1 if a in axes else s for a, s in enumerate(shape)))


def count(shape: tuple[Size, ...], axes: Sequence[int]) -> Size:
    """How many elements each result of a reduction joins."""
    return product(shape[axis] for axis in axes)


def _summable(input: Node, dtype: DType | None) -> Node:
    """Small integers and bools are summed in int64, as in torch."""
    if dtype is None:
        dtype = input.dtype if input.dtype.is_differentiable else dtypes.int64
    return cast(input, dtype)


@public()
def sum(
    input: Node, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Node:
    """The sum over some axes, or all."""
    axes = axes_of(dim, len(input.shape))
    if dtype is dtypes.bool_:
        return keep(reduce(truth(input), "any", axes), input.shape, axes, keepdim)
    return keep(reduce(_summable(input, dtype), "sum", axes), input.shape, axes, keepdim)


@public()
def prod(
    input: Node, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Node:
    """The product over an axis, or all."""
    axes = axes_of(dim, len(input.shape))
    if dtype is dtypes.bool_:
        return keep(reduce(truth(input), "all", axes), input.shape, axes, keepdim)
    return keep(reduce(_summable(input, dtype), "prod", axes), input.shape, axes, keepdim)


@public()
def mean(
    input: Node, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Node:
    """The mean over some axes, or all; of narrow floats rounded once, after the division."""
    x = input if dtype is None else cast(input, dtype)
    require_float(x, "mean")
    axes = axes_of(dim, len(x.shape))
    total = reduce(grown(x), "sum", axes)
    size = count(x.shape, axes)
    average = total / size
    return keep(cast(average, x.dtype), x.shape, axes, keepdim)


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased is None else float(unbiased)


@public(wide=True)
def var(
    input: Node,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Node:
    """The variance over some axes; `correction` is taken from the number of elements."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    require_float(input, "var")
    if input.dtype.is_complex:
        parts = [var(p, dim, unbiased, keepdim, correction=correction)
                 for p in (real(input), imag(input))]  # fmt: skip
        return apply("add", *parts)
    axes = axes_of(dim, len(input.shape))
    size = count(input.shape, axes)
    centre = reduce(input, "sum", axes) / size
    if input.dtype is dtypes.float64:
        # no type is wider: what the mean is off by is added, so that equal numbers have none
        missed = reduce(input - expand_back(centre, input.shape, axes), "sum", axes) / size
        centre = centre + stop_gradient(missed)
    away = input - expand_back(centre, input.shape, axes)
    spread = reduce(away * away, "sum", axes)
    freedom = _freedom(size, _correction(unbiased, correction))
    return keep(spread / freedom, input.shape, axes, keepdim)


def _freedom(size: Size, correction: float) -> float | SizeExpr:
    """How many elements count for a variance, at least 0."""
    if isinstance(size, SizeExpr) and correction.is_integer():
        left = size - int(correction)
        return 0.0 if left < 0 or isinstance(left, int) else left
    return max_number(float(size) - correction, 0.0)


def max_number(a: float, b: float) -> float:
    """The larger of two Python numbers (`max` here is the tensor function)."""
    return a if a >= b else b


@public(wide=True, like=var)
def std(*args: Any, **kwargs: Any) -> Node:
    """The standard deviation over some axes."""
    return root(var(*args, **kwargs))


def root(spread: Node) -> Node:
    """The root of a variance; where that is 0 no gradient flows, in place of NaN."""
    zero = full_like(spread, 0)
    flat = spread.eq(zero)
    return select(flat, zero, sqrt(select(flat, full_like(spread, 1), spread)))


class VarMean(NamedTuple):
    """A variance (or standard deviation) and the mean it is taken around."""

    spread: Node
    mean: Node


def _centre(
    input: Node, dim: Dims | bool = None, unbiased: object = None, keepdim: bool = False, **_: Any
) -> Node:
    """The mean that the same arguments of a variance are taken around."""
    return mean(input, None if isinstance(dim, bool) else dim, keepdim)


@public(method=False, wide=True, like=var)
def var_mean(*args: Any, **kwargs: Any) -> VarMean:
    """The variance and the mean."""
    return VarMean(var(*args, **kwargs), _centre(*args, **kwargs))


@public(method=False, wide=True, like=var)
def std_mean(*args: Any, **kwargs: Any) -> VarMean:
    """The standard deviation and the mean."""
    return VarMean(std(*args, **kwargs), _centre(*args, **kwargs))


def _need_elements(input: Node, axes: Sequence[int], what: str) -> None:
    if count(input.shape, axes) == 0:
        raise NoElementsError(
            f"{what} of no elements does not exist: shape {list(input.shape)}, axes {list(axes)}"
        )


def _extreme(input: Node, monoid: str, dim: Dims, keepdim: bool) -> Node:
    axes = axes_of(dim, len(input.shape))
    _need_elements(input, axes, f"the {monoid}imum")
    return keep(reduce(input, monoid, axes), input.shape, axes, keepdim)


@public()
def amax(input: Node, dim: Dims = None, keepdim: bool = False) -> Node:
    """The largest value over some axes; equal ones share the gradient."""
    return _extreme(input, "max", dim, keepdim)


@public()
def amin(input: Node, dim: Dims = None, keepdim: bool = False) -> Node:
    """The smallest value over some axes; equal ones share the gradient."""
    return _extreme(input, "min", dim, keepdim)


def _along(input: Node, monoid: str, dim: int, keepdim: bool) -> ValuesIndices:
    if not input.shape:
        axis_of(dim, 0)
        return ValuesIndices(input, constant(0, dtypes.int64))
    axis = axis_of(dim, len(input.shape))
    _need_elements(input, (axis,), f"the {monoid[3:]}imum")
    values, indices = arg_reduce(input, monoid, axis)
    return ValuesIndices(
        keep(values, input.shape, (axis,), keepdim), keep(indices, input.shape, (axis,), keepdim)
    )


@public()
def max(
    input: Node,
    dim: Operand | None = None,
    keepdim: bool = False,
    *,
    other: Node | None = None,
    axis: Dims = None,
) -> Node | ValuesIndices:
    """The largest element; along `dim`, values and indices; of two tensors, elementwise.

    Along `axis`, the Array API's spelling, the values alone.
    """
    if other is not None or isinstance(dim, Node):
        return maximum(input, other if other is not None else dim)  # type: ignore[arg-type]
    if axis is not None:
        _only_axis(dim, "max")
        return _extreme(input, "max", axis, keepdim)
    if dim is None or isinstance(dim, tuple | list):
        return _extreme(input, "max", dim, keepdim)
    return _along(input, "argmax", dim, keepdim)  # type: ignore[arg-type]


@public()
def min(
    input: Node,
    dim: Operand | None = None,
    keepdim: bool = False,
    *,
    other: Node | None = None,
    axis: Dims = None,
) -> Node | ValuesIndices:
    """The smallest element; along `dim`, values and indices; of two tensors, elementwise.

    Along `axis`, the Array API's spelling, the values alone.
    """
    if other is not None or isinstance(dim, Node):
        return minimum(input, other if other is not None else dim)  # type: ignore[arg-type]
    if axis is not None:
        _only_axis(dim, "min")
        return _extreme(input, "min", axis, keepdim)
    if dim is None or isinstance(dim, tuple | list):
        return _extreme(input, "min", dim, keepdim)
    return _along(input, "argmin", dim, keepdim)  # type: ignore[arg-type]


def _only_axis(dim: Operand | None, what: str) -> None:
    if dim is not None:
        raise ArgumentError(f"{what} takes dim= or axis=, not both")


def _arg(input: Node, monoid: str, dim: int | None, keepdim: bool) -> Node:
    if dim is None:
        flat = reshape(input, (product(input.shape),))
        index = _along(flat, monoid, 0, False).indices
        return reshape(index, (1,) * len(input.shape)) if keepdim else index
    return _along(input, monoid, dim, keepdim).indices


@public()
def argmax(input: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    """Where the largest element stands, first if there are several."""
    return _arg(input, "argmax", dim, keepdim)


@public()
def argmin(input: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    """Where the smallest element stands, first if there are several."""
    return _arg(input, "argmin", dim, keepdim)


@public()
def any(input: Node, dim: Dims = None, keepdim: bool = False) -> Node:
    """True where at least one element is not zero."""
    return _answers(input, "any", dim, keepdim)


@public()
def all(input: Node, dim: Dims = None, keepdim: bool = False) -> Node:
    """True where no element is zero."""
    return _answers(input, "all", dim, keepdim)


def _answers(input: Node, monoid: str, dim: Dims, keepdim: bool) -> Node:
    """Truth is bool, but uint8 for uint8, as in torch; along no axis it is each element's."""
    axes = () if dim in ((), []) else axes_of(dim, len(input.shape))
    found = keep(reduce(truth(input), monoid, axes), input.shape, axes, keepdim)
    return cast(found, dtypes.uint8) if input.dtype is dtypes.uint8 else found


@public()
def count_nonzero(input: Node, dim: Dims = None) -> Node:
    """How many elements are not zero."""
    return sum(cast(truth(input), dtypes.int64), dim)


def _shifted(x: Node, axes: Sequence[int]) -> tuple[Node, Node]:
    """The input minus its maximum (which takes no part in the gradient), and that maximum."""
    top = stop_gradient(reduce(x, "max", axes))
    return x - expand_back(top, x.shape, axes), top


@public(wide=True)
def softmax(input: Node, dim: int | None = None, dtype: DType | None = None) -> Node:
    """exp(input), divided by its sum along an axis."""
    if dtype is None:
        require_float(input, "softmax")
    x = cast(input, dtype if dtype is not None else floating(input.dtype))
    axes = _softmax_axes(dim, len(x.shape))
    grown = exp(_shifted(x, axes)[0])
    total = reduce(grown, "sum", axes)
    return grown / expand_back(total, x.shape, axes)


@public(method=False, wide=True)
def _safe_softmax(input: Node, dim: int, dtype: DType | None = None) -> Node:
    """The softmax, and zeros where all of an axis is -inf."""
    axes = (_softmax_axis(dim, len(input.shape)),) if input.shape else ()
    nothing = expand_back(reduce(input.eq(-math.inf), "all", axes), input.shape, axes)
    # gradients of such an axis are zeros too, which they would not be of -inf - -inf
    result = softmax(select(nothing, full_like(input, 0), input), dim, dtype)
    return select(nothing, full_like(result, 0), result)


@public(wide=True)
def log_softmax(input: Node, dim: int | None = None, dtype: DType | None = None) -> Node:
    """The logarithm of the softmax, without overflow."""
    if dtype is None:
        require_float(input, "log_softmax")
    x = cast(input, dtype if dtype is not None else floating(input.dtype))
    axes = _softmax_axes(dim, len(x.shape))
    shifted, _ = _shifted(x, axes)
    total = log(reduce(exp(shifted), "sum", axes))
    return shifted - expand_back(total, x.shape, axes)


def _softmax_axes(dim: int | None, rank: int) -> tuple[int, ...]:
    """The axis to normalise along; a scalar has one of size 1."""
    axis = _softmax_axis(dim, rank)
    return (axis,) if rank else ()


def _softmax_axis(dim: int | None, rank: int) -> int:
    if dim is None:  # torch's implicit choice
        return 0 if rank in (0, 1, 3) else 1
    return axis_of(dim, rank)


@public(method=False)
def softmin(input: Node, dim: int | None = None, dtype: DType | None = None) -> Node:
    """The softmax of the negated input."""
    return softmax(-input, dim, dtype)


@public(wide=True)
def logsumexp(input: Node, dim: Dims, keepdim: bool = False) -> Node:
    """log(sum(exp(input))), without overflow."""
    x = as_float(input)
    axes = axes_of(dim, len(x.shape))
    top = reduce(real(x), "max", axes)
    # finite, since inf - inf is NaN; two instructions, also where they are repeated for each number
    largest = full_like(top, float(ml_dtypes.finfo(top.dtype.numpy).max))
    shift = cast(stop_gradient(minimum(maximum(top, -largest), largest)), x.dtype)
    grown = exp(x - expand_back(shift, x.shape, axes))
    total = add(log(reduce(grown, "sum", axes)), shift)
    return keep(total, x.shape, axes, keepdim)


def scalar_like(like: Node, value: float) -> Node:
    """A run-time number repeated over another node's shape."""
    if not like.dtype.is_differentiable:
        raise DTypeError(f"expected floating values, got {like.dtype.name}")
    return stretch(as_node(float(value), like.dtype), like.shape)
