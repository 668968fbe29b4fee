"""Discrete Fourier transforms as library calls: complex, real to half a spectrum, and back.

Axes count from the end, so that batches in front do not matter. A transform is linear, and its
transpose is a transform again; the three ops are closed under differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline.errors import DTypeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.sizes import Size
from ridgeline.ops.batching import leading
from ridgeline.ops.complex import complex_of, real, real_of
from ridgeline.ops.elementwise import cast, full_like, iota, select
from ridgeline.ops.movement import pad
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class FourierAttrs(Attrs):
    """The axes (negative), the sign of the exponent, a factor, and the length of a real result."""

    axes: tuple[int, ...]
    forward: bool
    factor: float
    length: int = 0


def complex_transform(a: Node, axes: tuple[int, ...], forward: bool, factor: float) -> Node:
    """The transform of complex values along some axes."""
    return node(COMPLEX, (a,), FourierAttrs(axes, forward, factor))


def half_transform(a: Node, axis: int, factor: float) -> Node:
    """The first half of the spectrum of real values along one axis."""
    return node(HALF, (a,), FourierAttrs((axis,), True, factor))


def real_transform(a: Node, axis: int, length: int, factor: float) -> Node:
    """The real signal of some length whose half spectrum is given."""
    return node(REAL, (a,), FourierAttrs((axis,), False, factor, length))


def _infer_complex(types: Sequence[TensorType], attrs: FourierAttrs) -> tuple[TensorType, ...]:
    if types[0].dtype.kind != "complex":
        raise DTypeError(f"expected a complex type, got {types[0].dtype.name}")
    return (types[0],)


def _resized(shape: tuple[Size, ...], axis: int, size: Size) -> tuple[Size, ...]:
    axis_from_front = axis + len(shape)
    return (*shape[:axis_from_front], size, *shape[axis_from_front + 1 :])


def _infer_half(types: Sequence[TensorType], attrs: FourierAttrs) -> tuple[TensorType, ...]:
    source, axis = types[0], attrs.axes[0]
    if source.dtype.kind != "float":
        raise DTypeError(f"expected a real floating type, got {source.dtype.name}")
    size = int(source.shape[axis])  # transforms are made for one length
    shape = _resized(source.shape, axis, size // 2 + 1)
    return (TensorType(shape, complex_of(source.dtype), source.device),)


def _infer_real(types: Sequence[TensorType], attrs: FourierAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if source.dtype.kind != "complex":
        raise DTypeError(f"expected a complex type, got {source.dtype.name}")
    shape = _resized(source.shape, attrs.axes[0], attrs.length)
    return (TensorType(shape, real_of(source.dtype), source.device),)


def _complex_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    if 0 in source.shape:
        return (source.copy(),)
    if attrs.forward:
        result = np.fft.fftn(source, axes=attrs.axes)
    else:
        result = np.fft.ifftn(source, axes=attrs.axes, norm="forward")
    return ((result * attrs.factor).astype(current.dtype.numpy),)


def _nothing(current: Node) -> Array:
    return np.zeros(current.shape, current.dtype.numpy)


def _half_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    if 0 in source.shape:
        return (_nothing(current),)
    result = np.fft.rfft(source, axis=attrs.axes[0])
    return ((result * attrs.factor).astype(current.dtype.numpy),)


def _real_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    if 0 in source.shape:
        return (_nothing(current),)
    result = np.fft.irfft(source, n=attrs.length, axis=attrs.axes[0], norm="forward")
    return ((result * attrs.factor).astype(current.dtype.numpy),)


def _complex_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs = cotangents[0], current.attrs
    if ct is None:
        return [None]
    return [complex_transform(ct, attrs.axes, not attrs.forward, attrs.factor)]


def _half_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs = cotangents[0], current.attrs
    if ct is None:
        return [None]
    axis = attrs.axes[0] + len(ct.shape)
    missing = current.inputs[0].shape[axis] - ct.shape[axis]
    zeros = (0,) * len(ct.shape)
    high = tuple(missing if a == axis else 0 for a in range(len(ct.shape)))
    whole = pad(ct, zeros, high)
    return [real(complex_transform(whole, attrs.axes, False, attrs.factor))]


def _real_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    """Frequencies that stand for two (all but the first, and the last of an even length) count
    twice."""
    ct, attrs = cotangents[0], current.attrs
    if ct is None:
        return [None]
    spectrum = half_transform(ct, attrs.axes[0], attrs.factor)
    axis = attrs.axes[0] + len(spectrum.shape)
    positions = iota(spectrum.shape, axis, real_of(spectrum.dtype))
    single = positions.eq(0)
    if attrs.length % 2 == 0:
        single = single | positions.eq(attrs.length // 2)
    weights = select(single, full_like(positions, 1), full_like(positions, 2))
    return [spectrum * cast(weights, spectrum.dtype)]


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    return [None if tangent is None else node(current.op, (tangent,), current.attrs)]


COMPLEX = Op(
    "fourier", "library", _infer_complex, _complex_value, _complex_vjp, _jvp, leading,
    linear=((0,),),
)  # fmt: skip
HALF = Op(
    "half_fourier", "library", _infer_half, _half_value, _half_vjp, _jvp, leading,
    linear=((0,),),
)  # fmt: skip
REAL = Op(
    "real_fourier", "library", _infer_real, _real_value, _real_vjp, _jvp, leading,
    linear=((0,),),
)  # fmt: skip
