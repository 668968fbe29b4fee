"""The `masked` namespace: reductions and normalisations that leave out masked elements.

An element takes part where the mask is True; the others are replaced by what changes nothing.
Without a mask each function is the ordinary one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions import matrices, reductions, scanning, trigonometry
from ridgeline.functions.arithmetic import clamp_min, div, mul, sub, truth
from ridgeline.functions.index_checks import number
from ridgeline.functions.operands import as_float, axes_of, floating
from ridgeline.functions.reductions import Dims
from ridgeline.functions.registry import public
from ridgeline.functions.sorting import nanmedian
from ridgeline.graph.node import Node
from ridgeline.ops.complex import conj, real, real_of
from ridgeline.ops.elementwise import cast, full_like, select
from ridgeline.ops.math import maximum
from ridgeline.ops.movement import reshape, stretch

Reduction = Callable[..., Node]


def _spread(input: Node, mask: Node) -> Node:
    """The mask as bools in the input's shape."""
    if len(mask.shape) > len(input.shape):
        raise ShapeError(f"a mask of shape {list(mask.shape)} for {list(input.shape)}")
    return stretch(truth(mask), input.shape)


def _filled(input: Node, mask: Node | None, value: float) -> Node:
    """The input with `value` where the mask does not hold."""
    if mask is None:
        return input
    return select(_spread(input, mask), input, number(input.shape, value, input.dtype))


def _lowest(dtype: DType) -> float:
    return -math.inf if dtype.is_differentiable else int(np.iinfo(dtype.numpy).min)


def _highest(dtype: DType) -> float:
    return math.inf if dtype.is_differentiable else int(np.iinfo(dtype.numpy).max)


@public(namespace="masked")
def sum(
    input: Node,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The sum of the elements that take part."""
    return reductions.sum(_filled(input, mask, 0), dim, keepdim, dtype=dtype)


@public(namespace="masked")
def prod(
    input: Node,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The product of the elements that take part."""
    axes = axes_of(dim, len(input.shape))
    x = reductions.prod(_filled(input, mask, 1), axes[-1] if axes else None, True, dtype=dtype)
    for axis in axes[:-1]:
        x = reductions.prod(x, axis, True, dtype=dtype)
    return _settled(x, input, axes, keepdim)


def _settled(reduced: Node, input: Node, axes: tuple[int, ...], keepdim: bool) -> Node:
    """A result that kept its axes, without them unless they are wanted."""
    if keepdim or not input.shape:
        return reduced
    shape = tuple(s for axis, s in enumerate(input.shape) if axis not in axes)
    return reshape(reduced, shape)


def _extreme(name: str, ordinary: Reduction, others: Callable[[DType], float], about: str) -> None:
    """Register a reduction that passes over elements which hold the last number of its order."""

    def body(
        input: Node,
        dim: Dims = None,
        *,
        keepdim: bool = False,
        dtype: DType | None = None,
        mask: Node | None = None,
    ) -> Node:
        found = ordinary(_filled(input, mask, others(input.dtype)), dim, keepdim)
        return cast(found, dtype or input.dtype)

    if name.startswith("arg"):
        body.__annotations__["dim"] = "int | None"
    body.__doc__ = about
    public(namespace="masked", name=name)(body)


_extreme("amax", reductions.amax, _lowest, "The largest of the elements that take part.")
_extreme("amin", reductions.amin, _highest, "The smallest of the elements that take part.")
_ABOUT_PLACES = "Where the {} element that takes part stands, in the input's element type."
_extreme("argmax", reductions.argmax, _lowest, _ABOUT_PLACES.format("largest"))
_extreme("argmin", reductions.argmin, _highest, _ABOUT_PLACES.format("smallest"))


def _scan(
    ordinary: Reduction, nothing: int, input: Node, dim: int, dtype: DType | None, mask: Node | None
) -> Node:
    kept = input.dtype if input.dtype.is_integer else None
    return ordinary(_filled(input, mask, nothing), dim, dtype=dtype or kept)


@public(namespace="masked")
def cumsum(input: Node, dim: int, *, dtype: DType | None = None, mask: Node | None = None) -> Node:
    """The running sum of the elements that take part, in the element type that they have."""
    return _scan(scanning.cumsum, 0, input, dim, dtype, mask)


@public(namespace="masked")
def cumprod(input: Node, dim: int, *, dtype: DType | None = None, mask: Node | None = None) -> Node:
    """The running product of the elements that take part, in the element type that they have."""
    return _scan(scanning.cumprod, 1, input, dim, dtype, mask)


def _count(input: Node, dim: Dims, keepdim: bool, mask: Node | None) -> Node:
    """How many elements take part, in int64."""
    one = number(input.shape, True, dtypes.bool_) if mask is None else _spread(input, mask)
    return reductions.sum(cast(one, dtypes.int64), dim, keepdim)


@public(namespace="masked")
def mean(
    input: Node,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The mean of the elements that take part; NaN where none does."""
    wanted = dtype or input.dtype
    if not wanted.is_differentiable:
        raise BadValueError(f"the mean needs a floating element type, not {wanted.name}")
    total = sum(input, dim, keepdim=keepdim, dtype=wanted, mask=mask)
    return div(total, _count(input, dim, keepdim, mask))


@public(namespace="masked")
def median(
    input: Node,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The lower middle of the elements that take part; NaN where none does."""
    x = _filled(as_float(input), mask, math.nan)
    found = nanmedian(x, dim, keepdim)
    assert isinstance(found, tuple)
    return cast(found.values, dtype or input.dtype)


@public(namespace="masked")
def norm(
    input: Node,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The vector norm of the elements that take part."""
    order = 2.0 if ord is None else ord
    x = _filled(input, mask, math.inf if order == -math.inf else 0)
    return matrices.norm(x, order, dim, keepdim, dtype)


@public(namespace="masked")
def var(
    input: Node,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The variance of the elements that take part."""
    less = correction if correction is not None else 1.0 if unbiased in (None, True) else 0.0
    wanted = dtype or floating(input.dtype)
    x = cast(input, wanted)
    centre = div(sum(x, dim, keepdim=True, mask=mask), _count(input, dim, True, mask))
    away = sub(x, stretch(centre, x.shape))
    spread = real(sum(mul(away, conj(away)), dim, keepdim=keepdim, mask=mask))
    count = cast(_count(input, dim, keepdim, mask), real_of(wanted))
    freedom = count - float(less)
    return cast(div(spread, maximum(freedom, full_like(freedom, 0))), wanted)


@public(namespace="masked", like=var)
def std(*args: Any, **kwargs: Any) -> Node:
    """The standard deviation of the elements that take part."""
    return reductions.root(var(*args, **kwargs))


@public(namespace="masked")
def softmax(input: Node, dim: int, *, dtype: DType | None = None, mask: Node | None = None) -> Node:
    """The softmax over the elements that take part; 0 at the others."""
    return reductions.softmax(_filled(input, mask, _lowest(input.dtype)), dim, dtype)


@public(namespace="masked")
def log_softmax(
    input: Node, dim: int, *, dtype: DType | None = None, mask: Node | None = None
) -> Node:
    """The logarithm of the softmax over the elements that take part."""
    return reductions.log_softmax(_filled(input, mask, _lowest(input.dtype)), dim, dtype)


@public(namespace="masked")
def softmin(input: Node, dim: int, *, dtype: DType | None = None, mask: Node | None = None) -> Node:
    """The softmin over the elements that take part; 0 at the others."""
    return reductions.softmin(_filled(input, mask, _highest(input.dtype)), dim, dtype)


@public(namespace="masked")
def normalize(
    input: Node,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """The elements that take part, divided by their norm along an axis; 0 at the others."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return div(_filled(input, mask, 0), clamp_min(length, float(eps)))


@public(namespace="masked")
def logsumexp(
    input: Node,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Node | None = None,
) -> Node:
    """log(sum(exp(x))) over the elements that take part."""
    axes = axes_of(dim, len(input.shape))
    x = _filled(input, mask, _lowest(input.dtype))
    return cast(reductions.logsumexp(x, axes, keepdim), dtype or input.dtype)


@public(namespace="masked")
def logaddexp(
    input: Node,
    other: Node,
    *,
    dtype: DType | None = None,
    input_mask: Node | None = None,
    other_mask: Node | None = None,
) -> Node:
    """log(exp(input) + exp(other)), each only where its mask holds."""
    left = _filled(input, input_mask, _lowest(input.dtype))
    right = _filled(other, other_mask, _lowest(other.dtype))
    return cast(trigonometry.logaddexp(left, right), dtype or input.dtype)
