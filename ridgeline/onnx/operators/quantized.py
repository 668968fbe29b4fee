"""Numbers as small integers with a scale: to and from them, and products of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.onnx.operators.casting import converted
from ridgeline.onnx.operators.convolutions import convolve
from ridgeline.onnx.operators.elements import numpy_type
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Ints, Value, as_tensor, is_host
from ridgeline.tensors.tensor import Tensor

_LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def _kind(value: Value) -> np.dtype[Any]:
    kind: np.dtype[Any] = value.dtype if is_host(value) else value.dtype.numpy
    return kind


def _limits(kind: np.dtype[Any]) -> tuple[int, int]:
    if kind.name in _LIMITS:
        return _LIMITS[kind.name]
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)


def _spread(scale: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale for each element: of all, of an axis, or of blocks along it."""
    if scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1):
        return scale.reshape(())
    if block_size:
        axis %= x.ndim
        wide = rl.repeat_interleave(scale, block_size, axis)
        return rl.narrow(wide, axis, 0, x.shape[axis])
    if scale.ndim > 1:
        return scale
    return scale.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def _quantize(
    x: Tensor, y_scale: Tensor, y_zero_point: Value = None, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Value:  # fmt: skip
    kind = np.dtype(np.uint8)
    if y_zero_point is not None:
        kind = _kind(y_zero_point)
    elif output_dtype:
        kind = numpy_type(output_dtype)
    work = rl.float32 if x.dtype.itemsize < 4 or not x.dtype.is_floating_point else x.dtype
    scale = _spread(y_scale, x, axis, block_size)
    if precision:
        work_type = dtypes.from_numpy(numpy_type(precision)) or rl.float32
        scaled = (x.to(work_type) / scale.to(work_type)).to(work)
    else:
        scaled = x.to(work) / scale.to(work)
    if kind.name not in _LIMITS and kind.kind not in "iu":
        return converted(scaled, kind, bool(saturate))
    low, high = _limits(kind)
    whole = rl.round(scaled)
    if y_zero_point is not None:
        whole = whole + _spread(as_tensor(y_zero_point), x, axis, block_size).to(work)
    return converted(rl.clamp(whole, low, high).to(rl.int32), kind)


def _dequantize(
    x: Value, x_scale: Tensor, x_zero_point: Value = None, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    result = x_scale.dtype
    if output_dtype:
        found = dtypes.from_numpy(numpy_type(output_dtype))
        result = found or result
    values = as_tensor(x)
    work = x_scale.dtype if x_scale.dtype.itemsize >= 4 else rl.float32
    wide = values.to(work) if values.dtype.is_floating_point else values.to(rl.int32)
    if x_zero_point is not None:
        zero = _spread(as_tensor(x_zero_point), values, axis, block_size)
        wide = wide - zero.to(wide.dtype)
    scale = _spread(x_scale, values, axis, block_size).to(work)
    return (wide.to(work) * scale).to(result)


def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor in 8 bits, with the scale and the zero point that fit its values."""
    low = rl.clamp(rl.amin(x), max=0.0)
    high = rl.clamp(rl.amax(x), min=0.0)
    scale = (high - low) / 255
    scale = rl.where(high == low, rl.ones_like(scale), scale)
    zero = rl.clamp(rl.round(-low / scale), 0, 255)
    values = rl.clamp(rl.round(x / scale) + zero, 0, 255).to(rl.uint8)
    return values, scale, zero.to(rl.uint8)


def _centred(x: Tensor, zero: Tensor | None, shape: list[int] | None = None) -> Tensor:
    wide = x.to(rl.int32)
    if zero is None:
        return wide
    own = zero.to(rl.int32)
    return wide - (own.reshape(()) if own.numel() == 1 else own.reshape(shape or own.shape))


def _rows(zero: Tensor | None) -> Tensor | None:
    """Zero points of the rows of a matrix."""
    return zero if zero is None or zero.ndim != 1 else zero.reshape(-1, 1)


def _matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    return rl.matmul(_centred(a, _rows(a_zero_point)), _centred(b, b_zero_point))


def _conv_integer(
    x: Tensor, w: Tensor, x_zero_point: Tensor | None = None, w_zero_point: Tensor | None = None,
    auto_pad: str = "NOTSET", dilations: Ints | None = None, group: int = 1,
    kernel_shape: Ints | None = None, pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    own = _centred(w, w_zero_point, [-1] + [1] * (w.ndim - 1))
    return convolve(
        _centred(x, x_zero_point),
        own,
        None,
        auto_pad,
        dilations,
        group,
        kernel_shape,
        pads,
        strides,
    )


def _requantized(total: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    low, high = _limits(zero.dtype.numpy)
    work = rl.float32
    whole = rl.round(total.to(work) * scale.to(work)) + zero.to(work)
    return rl.clamp(whole, low, high).to(rl.int32).to(zero.dtype)


def _qlinear_matmul(
    a: Tensor, a_scale: Tensor, a_zero_point: Tensor, b: Tensor, b_scale: Tensor,
    b_zero_point: Tensor, y_scale: Tensor, y_zero_point: Tensor,
) -> Tensor:  # fmt: skip
    if not y_zero_point.dtype.is_integer:
        wide = [each.to(rl.float32) for each in (a, a_zero_point, b, b_zero_point)]
        product = (wide[0] - wide[1]) @ (wide[2] - wide[3])
        scaled = product * (a_scale * b_scale / y_scale) + y_zero_point.to(rl.float32)
        return as_tensor(converted(scaled, y_zero_point.dtype.numpy))
    total = rl.matmul(_centred(a, _rows(a_zero_point)), _centred(b, b_zero_point))
    left = a_scale.reshape(-1, 1) if a_scale.ndim == 1 and a_scale.numel() > 1 else a_scale
    scale = left.to(rl.float32) * b_scale.to(rl.float32) / y_scale.to(rl.float32)
    return _requantized(total, scale, y_zero_point)


def _qlinear_conv(
    x: Tensor, x_scale: Tensor, x_zero_point: Tensor, w: Tensor, w_scale: Tensor,
    w_zero_point: Tensor, y_scale: Tensor, y_zero_point: Tensor, b: Tensor | None = None,
    auto_pad: str = "NOTSET", dilations: Ints | None = None, group: int = 1,
    kernel_shape: Ints | None = None, pads: Ints | None = None, strides: Ints | None = None,
) -> Tensor:  # fmt: skip
    each = [-1] + [1] * (w.ndim - 2)
    own = _centred(w, w_zero_point, [-1] + [1] * (w.ndim - 1))
    total = convolve(
        _centred(x, x_zero_point), own, b, auto_pad, dilations, group, kernel_shape, pads, strides
    )
    scale = x_scale * w_scale / y_scale
    return _requantized(total, scale if scale.numel() == 1 else scale.reshape(each), y_zero_point)


ROWS: tuple[OperatorRow, ...] = (
    OperatorRow("QuantizeLinear", _quantize),
    OperatorRow("DequantizeLinear", _dequantize),
    OperatorRow("DynamicQuantizeLinear", dynamic_quantize),
    OperatorRow("MatMulInteger", _matmul_integer),
    OperatorRow("ConvInteger", _conv_integer),
    OperatorRow("QLinearMatMul", _qlinear_matmul),
    OperatorRow("QLinearConv", _qlinear_conv),
)
