"""Conversions between element types, also those that only files and NumPy have."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.float_errors import float_errors_ignored
from ridgeline.onnx.operators.elements import STRING, numpy_type
from ridgeline.onnx.values import NARROW, Array, Value, as_host, as_tensor, is_text
from ridgeline.tensors.tensor import Tensor

_SCALE = np.dtype(ml_dtypes.float8_e8m0fnu)


def cast(input: Value, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    """A value in the element type that ONNX numbers `to`."""
    if to == STRING:
        return _as_text(as_host(input))
    return converted(input, numpy_type(to), bool(saturate), round_mode)


def cast_like(input: Value, target_type: Value, saturate: int = 1, round_mode: str = "up") -> Value:
    """A value in the element type of another."""
    if isinstance(target_type, Tensor):
        return converted(input, target_type.dtype.numpy, bool(saturate), round_mode)
    if is_text(target_type):
        return _as_text(as_host(input))
    return converted(input, target_type.dtype, bool(saturate), round_mode)


def converted(
    value: Value, kind: np.dtype[Any], saturate: bool = True, rounding: str = "up"
) -> Value:
    """A value in a type of NumPy's: with tensors where both types are known to them."""
    own = dtypes.from_numpy(kind)
    if own is not None and (isinstance(value, Tensor) or dtypes.from_numpy(value.dtype)):
        x = as_tensor(value)
        if saturate and own.name.startswith("float8") and x.dtype is not own:
            most = float(ml_dtypes.finfo(kind).max)
            x = rl.clamp(x if x.dtype.is_floating_point else x.to(rl.float32), -most, most)
        if own is rl.float8_e4m3fn and not saturate:  # beyond the middle of 448 and 480 is NaN
            return rl.where(rl.abs(x) > 464.0, rl.full_like(x, math.nan), x).to(own)
        return x.to(own)
    array = as_host(value)
    if array.dtype == object and is_text(array):
        made = _from_text(array, kind)
    else:
        made = _narrowed(array, kind, saturate, rounding)
    return made if kind in NARROW else as_tensor(made)


def _narrowed(array: Array, kind: np.dtype[Any], saturate: bool, rounding: str) -> Array:
    wide = array.astype(NARROW[array.dtype]) if array.dtype in NARROW else array
    if kind == _SCALE:
        return _powers_of_two(wide.astype(np.float32), saturate, rounding)
    if kind.name.startswith("float8") and saturate:
        most = float(ml_dtypes.finfo(kind).max)
        wide = np.clip(wide.astype(np.float32), -most, most)
    if kind.name in ("int4", "uint4", "int2", "uint2"):
        if wide.dtype.kind not in "iub":
            wide = np.trunc(wide.astype(np.float32)).astype(np.int64)
        return wide.astype(np.int64).astype(kind)
    if kind.name == "float4_e2m1fn":
        wide = wide.astype(np.float32)
    with float_errors_ignored():
        return wide.astype(kind)


def _powers_of_two(x: Array, saturate: bool, rounding: str) -> Array:
    """Floats as their exponents: rounded up, down, or to the nearest."""
    bits = x.view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int64)
    fraction = bits & 0x7FFFFF
    if rounding == "up":
        grows = (fraction > 0) & ((exponent > 0) | (fraction > 0x400000))
    elif rounding == "nearest":
        grows = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent & 1 == 1))
        grows |= (exponent == 0) & (fraction >= 0x600000)
    else:
        grows = np.zeros_like(fraction, bool)
    grown = exponent + grows
    limit = 254 if saturate else 255
    grown = np.where(exponent == 255, 255, np.minimum(grown, limit))
    if saturate:
        grown = np.where(np.isinf(x), 254, grown)
    return np.asarray(grown.astype(np.uint8).view(_SCALE))


def _as_text(array: Array) -> Array:
    if array.dtype == object:
        return array
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array.astype(np.str_).astype(object)


def _from_text(array: Array, kind: np.dtype[Any]) -> Array:
    if kind.kind in "iu":
        return np.array([int(float(text)) for text in array.flat], kind).reshape(array.shape)
    numbers = [float(text) for text in array.flat]
    return np.array(numbers, np.float64).reshape(array.shape).astype(kind)
