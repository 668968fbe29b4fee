"""Reductions: a monoid over some axes. The reduced axes disappear from the shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.graph.sizes import Size
from ridgeline.ops.batching import shift_axis
from ridgeline.ops.complex import conj
from ridgeline.ops.elementwise import cast, full_like, iota, select
from ridgeline.ops.movement import broadcast
from ridgeline.ops.values import sums
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching

_KINDS: dict[str, tuple[str, ...]] = {
    "sum": ("uint", "int", "float", "complex"),
    "wide_sum": ("float",),
    "prod": ("uint", "int", "float", "complex"),
    "max": ("bool", "uint", "int", "float"),
    "min": ("bool", "uint", "int", "float"),
    "any": ("bool",),
    "all": ("bool",),
}
_NUMPY: dict[str, Any] = {
    "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """A monoid and the axes it runs over, in increasing order.

    A `wide_sum` is one of floats in a type so wide that it may be added up in any way; only the
    compiler makes it.
    """

    monoid: str
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs(Attrs):
    """`argmax` or `argmin` along one axis; the outputs are the value and its first index."""

    monoid: str
    axis: int
    index: DType = dtypes.int64


def reduce(a: Node, monoid: str, axes: Sequence[int]) -> Node:
    """Join the elements along `axes`."""
    return node(REDUCE, (a,), ReduceAttrs(monoid, tuple(sorted(axes)))) if axes else a


def sum_(a: Node, axes: Sequence[int]) -> Node:
    """Sum along `axes`."""
    return reduce(a, "sum", axes)


Node.sum = sum_  # type: ignore[method-assign, assignment]


def arg_reduce(a: Node, monoid: str, axis: int, index: DType = dtypes.int64) -> tuple[Node, Node]:
    """The extreme value along an axis and where it stands first; NaN is extreme."""
    both = node(ARG_REDUCE, (a,), ArgReduceAttrs(monoid, axis, index))
    return proj(both, 0), proj(both, 1)


def kept_axes(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes that a reduction leaves."""
    return tuple([axis for axis in range(rank) if axis not in axes])


def expand_back(reduced: Node, shape: tuple[Size, ...], axes: Sequence[int]) -> Node:
    """Repeat a reduction's result along the axes that it removed."""
    return broadcast(reduced, shape, kept_axes(len(shape), axes))


def _infer(types: Sequence[TensorType], attrs: ReduceAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.kind not in _KINDS[attrs.monoid]:
        raise DTypeError(f"{attrs.monoid} is not defined for {source.dtype.name}")
    shape = tuple([source.shape[a] for a in kept_axes(len(source.shape), attrs.axes)])
    return (TensorType(shape, source.dtype, source.device),)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    if attrs.monoid in ("sum", "wide_sum"):
        with float_errors_ignored():
            return (scalars.cast(sums.total(source, attrs.axes), current.dtype),)
    narrow = current.dtype.kind == "float" and current.dtype.itemsize < 4
    wide = source.astype(np.float32) if narrow else source
    initial: Any = None
    if 0 in source.shape and attrs.monoid in ("max", "min"):
        limits = (-np.inf, np.inf) if current.dtype.kind == "float" else (
            (False, True) if current.dtype.kind == "bool" else
            (np.iinfo(source.dtype).min, np.iinfo(source.dtype).max))  # fmt: skip
        initial = limits[0] if attrs.monoid == "max" else limits[1]
    with float_errors_ignored():
        ufunc = _NUMPY[attrs.monoid]
        extra = {} if initial is None else {"initial": initial}
        result = ufunc.reduce(wide, axis=attrs.axes, dtype=wide.dtype, **extra)
        if attrs.monoid in ("max", "min") and current.dtype.kind == "float":
            result = _with_sign(np.asarray(result), wide, attrs)
    return (scalars.cast(np.asarray(result), current.dtype),)


def _with_sign(extreme: Array, source: Array, attrs: ReduceAttrs) -> Array:
    """The largest or smallest numbers; of zeros, 0 is larger than -0."""
    zero = extreme == 0
    if not zero.any():
        return extreme
    signs = np.logical_and if attrs.monoid == "max" else np.logical_or
    negative = signs.reduce(np.signbit(source), axis=attrs.axes)
    return np.where(zero, np.where(negative, -0.0, 0.0).astype(extreme.dtype), extreme)


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs, source = cotangents[0], current.attrs, current.inputs[0]
    if ct is None or attrs.monoid in ("any", "all"):
        return [None]
    spread = expand_back(ct, source.shape, attrs.axes)
    if attrs.monoid == "sum":
        return [spread]
    if attrs.monoid == "prod":
        return [spread * conj(_product_of_others(current))]
    return [spread * _share_of_extremes(current)]


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent, attrs = tangents[0], current.attrs
    if tangent is None or attrs.monoid in ("any", "all"):
        return [None]
    if attrs.monoid == "sum":
        return [sum_(tangent, attrs.axes)]
    weight = _product_of_others if attrs.monoid == "prod" else _share_of_extremes
    return [sum_(tangent * weight(current), attrs.axes)]


def _share_of_extremes(current: Node) -> Node:
    """1/n at each of the n elements equal to the extreme, 0 elsewhere (torch's `amax`)."""
    source, axes = current.inputs[0], current.attrs.axes
    extreme = expand_back(current, source.shape, axes)
    hit = cast(source.eq(extreme), source.dtype)
    return hit / expand_back(sum_(hit, axes), source.shape, axes)


def _product_of_others(current: Node) -> Node:
    """The derivative of a product by each factor, right also where factors are zero."""
    source, axes = current.inputs[0], current.attrs.axes
    is_zero = source.eq(0)
    filled = select(is_zero, full_like(source, 1), source)
    zeros = expand_back(sum_(cast(is_zero, source.dtype), axes), source.shape, axes)
    nonzero_product = expand_back(reduce(filled, "prod", axes), source.shape, axes)
    none = zeros.eq(0)
    only_this = is_zero & zeros.eq(1)
    at_zero = select(only_this, nonzero_product, full_like(source, 0))
    return select(none, nonzero_product / filled, at_zero)


def _infer_arg(types: Sequence[TensorType], attrs: ArgReduceAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.kind not in ("bool", "uint", "int", "float"):
        raise DTypeError(f"{attrs.monoid} is not defined for {source.dtype.name}")
    shape = tuple(size for axis, size in enumerate(source.shape) if axis != attrs.axis)
    value = TensorType(shape, source.dtype, source.device)
    return (value, TensorType(shape, attrs.index, source.device))


def _arg_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    pick = np.argmax if attrs.monoid == "argmax" else np.argmin
    narrow = inputs[0].dtype.kind == "V" or inputs[0].dtype == np.float16
    source = inputs[0].astype(np.float32) if narrow else inputs[0]
    index = pick(source, axis=attrs.axis)
    value = np.take_along_axis(inputs[0], np.expand_dims(index, attrs.axis), attrs.axis)
    return np.squeeze(value, attrs.axis), np.asarray(index, attrs.index.numpy)


def _chosen(current: Node) -> Node:
    """True at the element that an arg-reduction picked."""
    source, axis = current.inputs[0], current.attrs.axis
    ramp = iota(source.shape, axis, current.attrs.index, source.type.device)
    return ramp.eq(expand_back(proj(current, 1), source.shape, (axis,)))


def _arg_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, source = cotangents[0], current.inputs[0]
    if ct is None:
        return [None]
    spread = expand_back(ct, source.shape, (current.attrs.axis,))
    return [select(_chosen(current), spread, full_like(spread, 0))]


def _arg_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    if tangent is None:
        return [None, None]
    picked = select(_chosen(current), tangent, full_like(tangent, 0))
    return [sum_(picked, (current.attrs.axis,)), None]


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    attrs = current.attrs
    return [reduce(inputs[0], attrs.monoid, [axis + 1 for axis in attrs.axes])]


REDUCE = Op(
    "reduce", "reduce", _infer, _value, _vjp, _jvp, _batch,
    linear=((0,),), linear_if=lambda attrs: attrs.monoid == "sum", by_parts=True,
)  # fmt: skip
ARG_REDUCE = Op("arg_reduce", "reduce", _infer_arg, _arg_value, _arg_vjp, _arg_jvp, shift_axis)
