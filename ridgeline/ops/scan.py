"""Prefix scans along one axis.

`scan` joins each element with all before it by a monoid; `extreme_scan` also says where the
running maximum or minimum stands; `linear_scan` solves r[i] = a[i] * r[i-1] + b[i]. The last is
its own derivative, and the derivative of products and log-sums too: stable, and exact at zeros,
in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.graph.sizes import Size, bounds
from ridgeline.ops.batching import shift_axis
from ridgeline.ops.complex import conj
from ridgeline.ops.elementwise import full_like, select
from ridgeline.ops.gather import gather_along, scatter_along
from ridgeline.ops.math import exp
from ridgeline.ops.movement import pad, slice_
from ridgeline.ops.values import sums
from ridgeline.scalars import Array

_KINDS: dict[str, tuple[str, ...]] = {
    "sum": ("uint", "int", "float", "complex"),
    "prod": ("uint", "int", "float", "complex"),
    "logaddexp": ("float", "complex"),
}
_SHORT = 16  # numbers whose sum may round at each addition


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    """The monoid ("sum", "prod", "logaddexp", "max", "min"), the axis and the direction."""

    monoid: str
    axis: int
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class LinearScanAttrs(Attrs):
    """The axis, and whether the recurrence runs from its end."""

    axis: int
    reverse: bool = False


def scan(a: Node, monoid: str, axis: int, reverse: bool = False) -> Node:
    """Every element joined with those before it (after it, in reverse)."""
    return node(SCAN, (a,), ScanAttrs(monoid, axis, reverse))


def extreme_scan(a: Node, monoid: str, axis: int) -> tuple[Node, Node]:
    """The running maximum or minimum and where it stands, last if there are several."""
    both = node(EXTREME_SCAN, (a,), ScanAttrs(monoid, axis))
    return proj(both, 0), proj(both, 1)


def linear_scan(a: Node, b: Node, axis: int, reverse: bool = False) -> Node:
    """r[i] = a[i] * r[i-1] + b[i] along an axis, starting from zero."""
    return node(LINEAR_SCAN, (a, b), LinearScanAttrs(axis, reverse))


def shifted(a: Node, axis: int, by: int, fill: float) -> Node:
    """The element `by` places before along an axis (1 or -1), `fill` where there is none."""
    rank, size = len(a.shape), a.shape[axis]
    if size == 0:
        return a
    starts = tuple(1 if d == axis and by < 0 else 0 for d in range(rank))
    sizes = tuple(s - 1 if d == axis else s for d, s in enumerate(a.shape))
    kept = slice_(a, starts, sizes, (1,) * rank)
    low = tuple(1 if d == axis and by > 0 else 0 for d in range(rank))
    high = tuple(1 if d == axis and by < 0 else 0 for d in range(rank))
    return pad(kept, low, high, value=fill)


def _infer(types: Sequence[TensorType], attrs: ScanAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.kind not in _KINDS[attrs.monoid]:
        raise DTypeError(f"a running {attrs.monoid} is not defined for {source.dtype.name}")
    return (source,)


def _infer_extreme(types: Sequence[TensorType], attrs: ScanAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.is_complex:
        raise DTypeError(f"a running {attrs.monoid} is not defined for {source.dtype.name}")
    return (source, TensorType(source.shape, dtypes.int64, source.device))


def _infer_linear(types: Sequence[TensorType], attrs: LinearScanAttrs) -> tuple[TensorType, ...]:
    if types[0] != types[1]:
        raise ShapeError(f"a linear scan needs operands of one type, got {types[0]} and {types[1]}")
    return (types[1],)


def carried(dtype: DType) -> DType:
    """The type in which a scan carries its running value: a wider one, so that it is rounded once
    for each element and not at every step."""
    if dtype.kind == "float":
        return dtypes.float64
    return dtypes.complex128 if dtype.kind == "complex" else dtype


def is_compensated(dtype: DType, length: Size) -> bool:
    """True for a running sum that keeps what its additions lost: no wider type carries it.

    A short one adds as NumPy does, to the bit: so few roundings are within the error of a sum.
    """
    return carried(dtype) is dtype and dtype.is_differentiable and bounds(length)[1] > _SHORT


def _widened(array: Array, dtype: DType) -> Array:
    return array.astype(carried(dtype).numpy, copy=False)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    wide = _widened(source, current.dtype)
    turned = np.flip(wide, attrs.axis) if attrs.reverse else wide
    with float_errors_ignored():
        if attrs.monoid == "sum" and is_compensated(current.dtype, source.shape[attrs.axis]):
            result = sums.running_sums(turned, attrs.axis)
        else:
            result = _running(attrs.monoid, turned, attrs.axis, wide.dtype == source.dtype)
        if attrs.monoid == "sum":
            result = result + result.dtype.type(0)  # a sum starts from 0, so it is never -0
        result = scalars.cast(result, current.dtype)
    return (np.flip(result, attrs.axis) if attrs.reverse else result,)


def _running(monoid: str, array: Array, axis: int, is_widest: bool) -> Array:
    """Running values; what has no wider type to be carried in is joined so that little is lost."""
    is_complex = array.dtype.kind == "c"
    joins = {"sum": np.add, "prod": np.multiply, "logaddexp": np.logaddexp}
    if monoid == "logaddexp" and is_complex:
        return sums.running(_complex_log_add, array, axis)
    if is_widest and array.dtype.kind in "fc" and monoid == "logaddexp":
        return sums.running(joins[monoid], array, axis)
    return joins[monoid].accumulate(array, axis=axis, dtype=array.dtype)


def _complex_log_add(a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) without overflow."""
    top, low = np.where(b.real > a.real, b, a), np.where(b.real > a.real, a, b)
    joined = top + np.log1p(np.exp(low - top))
    return np.where(np.isinf(top.real) & (top.real < 0), top, joined)


def _extreme_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    wide = _widened(source, current.dtype)
    best = np.maximum if attrs.monoid == "max" else np.minimum
    values = best.accumulate(wide, axis=attrs.axis)
    lengths = [1] * wide.ndim
    lengths[attrs.axis] = wide.shape[attrs.axis]
    ramp = np.arange(wide.shape[attrs.axis], dtype=np.int64).reshape(lengths)
    renewed = (wide == values) | (wide != wide)  # a later NaN takes the place of an earlier one
    indices = np.maximum.accumulate(np.where(renewed, ramp, 0), axis=attrs.axis)
    return values.astype(source.dtype), indices


def _linear_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    factors, terms = (np.moveaxis(_widened(i, current.dtype), attrs.axis, 0) for i in inputs)
    result = np.empty_like(terms)
    order = range(len(terms) - 1, -1, -1) if attrs.reverse else range(len(terms))
    state = np.zeros(terms.shape[1:], terms.dtype)
    with float_errors_ignored():
        if is_compensated(current.dtype, len(terms)) and terms.dtype.kind == "f":
            sums.recurrence(factors, terms, order, result)
        else:
            for position in order:
                state = result[position] = factors[position] * state + terms[position]
    return (scalars.cast(np.moveaxis(result, 0, attrs.axis), current.dtype),)


def _log_factors(current: Node) -> tuple[Node, Node]:
    """exp(y[i-1] - y[i]) and exp(x[i] - y[i]): the shares of what came before and of x[i]."""
    x, attrs = current.inputs[0], current.attrs
    step = -1 if attrs.reverse else 1
    if x.dtype.is_complex:
        before = shifted(current, attrs.axis, step, 0.0)
        kept, share = (part - current for part in (before, x))
        return exp(kept), exp(share)
    before = shifted(current, attrs.axis, step, -math.inf)
    zero, bottom = full_like(x, 0), full_like(x, -math.inf)
    top = select(current.eq(bottom), zero, current)
    no_more = before.eq(bottom)
    kept = exp(select(no_more, top, before) - top)
    return select(no_more, zero, kept), exp(x - top)


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs, x = cotangents[0], current.attrs, current.inputs[0]
    if ct is None:
        return [None]
    axis, back = attrs.axis, not attrs.reverse
    step = 1 if attrs.reverse else -1  # towards the elements that come later in the scan
    if attrs.monoid == "sum":
        return [scan(ct, "sum", axis, back)]
    if attrs.monoid == "prod":
        before = conj(shifted(current, axis, -step, 1.0))
        return [linear_scan(conj(shifted(x, axis, step, 0.0)), ct, axis, back) * before]
    kept, share = map(conj, _log_factors(current))
    return [linear_scan(shifted(kept, axis, step, 0.0), ct, axis, back) * share]


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent, attrs, x = tangents[0], current.attrs, current.inputs[0]
    if tangent is None:
        return [None]
    axis = attrs.axis
    if attrs.monoid == "sum":
        return [scan(tangent, "sum", axis, attrs.reverse)]
    if attrs.monoid == "prod":
        before = shifted(current, axis, -1 if attrs.reverse else 1, 1.0)
        return [linear_scan(x, tangent * before, axis, attrs.reverse)]
    kept, share = _log_factors(current)
    return [linear_scan(kept, tangent * share, axis, attrs.reverse)]


def _extreme_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None]
    blank = full_like(ct, 0)
    return [scatter_along(blank, ct, proj(current, 1), current.attrs.axis, "add")]


def _extreme_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    if tangent is None:
        return [None, None]
    return [gather_along(tangent, proj(current, 1), current.attrs.axis), None]


def _linear_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs, factors = cotangents[0], current.attrs, current.inputs[0]
    if ct is None:
        return [None, None]
    later = shifted(factors, attrs.axis, 1 if attrs.reverse else -1, 0.0)
    by_terms = linear_scan(conj(later), ct, attrs.axis, not attrs.reverse)
    before = shifted(current, attrs.axis, -1 if attrs.reverse else 1, 0.0)
    return [by_terms * conj(before), by_terms]


def _linear_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    by_factors, by_terms = tangents
    attrs, moved = current.attrs, by_terms
    if by_factors is not None:
        before = shifted(current, attrs.axis, -1 if attrs.reverse else 1, 0.0)
        part = by_factors * before
        moved = part if moved is None else moved + part
    if moved is None:
        return [None]
    return [linear_scan(current.inputs[0], moved, attrs.axis, attrs.reverse)]


SCAN = Op(
    "scan", "own_loops", _infer, _value, _vjp, _jvp, shift_axis,
    linear=((0,),), linear_if=lambda attrs: attrs.monoid == "sum", by_parts=True,
)  # fmt: skip
EXTREME_SCAN = Op(
    "extreme_scan",
    "own_loops",
    _infer_extreme,
    _extreme_value,
    _extreme_vjp,
    _extreme_jvp,
    shift_axis,
)
LINEAR_SCAN = Op(
    "linear_scan", "own_loops", _infer_linear, _linear_value, _linear_vjp, _linear_jvp, shift_axis
)
