"""Arithmetic, comparisons, logic and functions of single elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.nn import functional as F
from ridgeline.onnx.operators.elements import element_type, numpy_type
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import Value, as_host, as_tensor, is_host
from ridgeline.tensors.tensor import Tensor


def _one(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function of one tensor; in older versions X, in newer ones input."""

    def apply(x: Tensor) -> Tensor:
        return function(x)

    return apply


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def apply(a: Tensor, b: Tensor) -> Tensor:
        return function(a, b)

    return apply


def _aligned(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """A function of two tensors as versions before 7 have it: the second starts at an axis."""

    def apply(a: Tensor, b: Tensor, axis: int | None = None) -> Tensor:
        if axis is not None and b.ndim:
            b = b.reshape(tuple(b.shape) + (1,) * (a.ndim - axis % a.ndim - b.ndim))
        return function(a, b)

    return apply


def _many(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def apply(*xs: Tensor) -> Tensor:
        result = xs[0]
        for each in xs[1:]:
            result = function(result, each)
        return result

    return apply


def divide(a: Tensor, b: Tensor) -> Tensor:
    """Integers are cut off towards zero."""
    return a / b if a.dtype.is_floating_point else rl.div(a, b, rounding_mode="trunc")


def power(a: Tensor, b: Tensor) -> Tensor:
    """Of the type of the base."""
    if not a.dtype.is_floating_point and b.dtype.is_floating_point:
        return rl.pow(a.to(rl.float64), b.to(rl.float64)).to(a.dtype)
    if a.dtype.is_floating_point:
        b = b.to(a.dtype)
    return rl.pow(a, b).to(a.dtype)


def _mean(*xs: Tensor) -> Tensor:
    return _many(rl.add)(*xs) / len(xs)


def _mod(a: Tensor, b: Tensor, fmod: int = 0) -> Tensor:
    return rl.fmod(a, b) if fmod else rl.remainder(a, b)


def _shift(x: Tensor, y: Tensor, direction: str) -> Tensor:
    """By more bits than there are, or fewer than none, all are shifted out."""
    if direction == "LEFT":
        return rl.bitwise_left_shift(x, y)
    bits = x.dtype.bits
    beyond = rl.logical_or(y < 0, y >= bits)
    return (
        rl.bitwise_right_shift(x, rl.where(beyond, rl.full_like(y, bits - 1), y))
        if (x.dtype.kind == "int")
        else rl.bitwise_right_shift(x, y)
    )


def _clip(input: Tensor, min: Value = None, max: Value = None) -> Tensor:
    result = input
    if min is not None:
        low = min if isinstance(min, float) else as_tensor(min).to(input.dtype).reshape(())
        result = rl.clamp(result, min=low) if isinstance(low, float) else rl.maximum(result, low)
    if max is not None:
        high = max if isinstance(max, float) else as_tensor(max).to(input.dtype).reshape(())
        result = rl.clamp(result, max=high) if isinstance(high, float) else rl.minimum(result, high)
    return result


def _isinf(x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    positive, negative = rl.isposinf(x), rl.isneginf(x)
    if not detect_negative:
        return positive if detect_positive else rl.zeros_like(positive)
    return rl.logical_or(positive, negative) if detect_positive else negative


def _where(condition: Tensor, x: Value, y: Value) -> Value:
    if is_host(x) and x.dtype == object and is_host(y):
        return np.where(as_host(condition), x, y)
    return rl.where(condition, as_tensor(x), as_tensor(y))


def _equal(a: Value, b: Value, axis: int | None = None) -> Value:
    if is_host(a) and is_host(b) and a.dtype == object:
        return a == b
    return _aligned(rl.eq)(as_tensor(a), as_tensor(b), axis)


def _identity(input: Value) -> Value:
    return input


def _elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


def _selu(
    x: Tensor, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return x.where(x > 0, alpha * rl.expm1(rl.clamp(x, max=0.0))) * gamma


def _leaky(x: Tensor, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


def _hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return rl.clamp(x * alpha + beta, 0.0, 1.0)


def _hard_swish(x: Tensor) -> Tensor:
    return F.hardswish(x)


def _thresholded(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x.where(x > alpha, 0.0)


def _shrink(x: Tensor, lambd: float = 0.5, bias: float = 0.0) -> Tensor:
    below = (x + bias).where(x < -lambd, 0.0)
    return (x - bias).where(x > lambd, below).to(x.dtype)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


def _swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    return x * rl.sigmoid(x * alpha) if alpha != 1 else F.silu(x)


def _prelu(x: Tensor, slope: Tensor, opset: int = 9) -> Tensor:
    if opset < 7 and slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return x.where(x >= 0, slope * x)


def _softmax_2d(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """As versions before 13 have it: over all axes from one on."""

    def apply(x: Tensor, axis: int = 1) -> Tensor:
        axis %= max(x.ndim, 1)
        if axis == x.ndim - 1:
            return function(x, dim=axis)
        return function(x.flatten(axis), dim=axis).reshape(x.shape)

    return apply


def _softmax(x: Tensor, axis: int = -1) -> Tensor:
    return F.softmax(x, dim=axis)


def _log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return F.log_softmax(x, dim=axis)


def _first_is_one(x: Tensor, axis: int) -> Tensor:
    places = rl.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - 1 - axis % x.ndim))
    return (places == rl.argmax(x, dim=axis, keepdim=True)).to(x.dtype)


def _hardmax(x: Tensor, axis: int = -1) -> Tensor:
    return _first_is_one(x, axis)


def _hardmax_2d(x: Tensor, axis: int = 1) -> Tensor:
    return _first_is_one(x.flatten(axis % x.ndim), axis % x.ndim).reshape(x.shape)


def _bit_cast(input: Tensor, to: int) -> Value:
    if input.dtype is element_type(to):
        return input
    if dtypes.bool_ in (input.dtype, element_type(to)):
        return as_host(input).view(numpy_type(to))
    return input.view(element_type(to))


def _scaled(x: Tensor, scale: float = 1.0) -> Tensor:
    return x * scale


def _affine(x: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    return x * alpha + beta


def _softsign(x: Tensor) -> Tensor:
    return F.softsign(x)


def _softplus(x: Tensor) -> Tensor:
    return F.softplus(x)


_ONE: dict[str, Callable[..., Tensor]] = {
    "Abs": rl.abs, "Acos": rl.acos, "Acosh": rl.acosh, "Asin": rl.asin, "Asinh": rl.asinh,
    "Atan": rl.atan, "Atanh": rl.atanh, "BitwiseNot": rl.bitwise_not, "Ceil": rl.ceil,
    "Cos": rl.cos, "Cosh": rl.cosh, "Erf": rl.erf, "Exp": rl.exp, "Floor": rl.floor,
    "HardSwish": _hard_swish, "IsNaN": rl.isnan, "Log": rl.log, "Mish": F.mish, "Neg": rl.neg,
    "Not": rl.logical_not, "Reciprocal": rl.reciprocal, "Relu": rl.relu, "Round": rl.round,
    "Sigmoid": rl.sigmoid, "Sign": rl.sign, "Sin": rl.sin, "Sinh": rl.sinh,
    "Softplus": _softplus, "Softsign": _softsign, "Sqrt": rl.sqrt, "Tan": rl.tan,
    "Tanh": rl.tanh,
}  # fmt: skip
_TWO: dict[str, Callable[..., Tensor]] = {
    "Add": rl.add, "Sub": rl.sub, "Mul": rl.mul, "Div": divide, "Pow": power,
    "Less": rl.lt, "Greater": rl.gt, "And": rl.logical_and, "Or": rl.logical_or,
    "Xor": rl.logical_xor,
}  # fmt: skip
_NEWER: dict[str, Callable[..., Tensor]] = {
    "LessOrEqual": rl.le, "GreaterOrEqual": rl.ge, "BitwiseAnd": rl.bitwise_and,
    "BitwiseOr": rl.bitwise_or, "BitwiseXor": rl.bitwise_xor,
}  # fmt: skip
_MANY: dict[str, Callable[..., Tensor]] = {"Max": rl.maximum, "Min": rl.minimum, "Sum": rl.add}

ROWS: tuple[OperatorRow, ...] = (
    *(OperatorRow(name, _one(function)) for name, function in _ONE.items()),
    *(OperatorRow(name, _aligned(function), 1, 6) for name, function in _TWO.items()),
    *(OperatorRow(name, _two(function), 7) for name, function in (_TWO | _NEWER).items()),
    *(OperatorRow(name, _many(function)) for name, function in _MANY.items()),
    OperatorRow("Equal", _equal),
    OperatorRow("Mean", _mean),
    OperatorRow("Mod", _mod),
    OperatorRow("BitShift", _shift),
    OperatorRow("Clip", _clip),
    OperatorRow("IsInf", _isinf),
    OperatorRow("Where", _where),
    OperatorRow("Identity", _identity),
    OperatorRow("Elu", _elu),
    OperatorRow("Celu", _celu),
    OperatorRow("Selu", _selu),
    OperatorRow("LeakyRelu", _leaky),
    OperatorRow("HardSigmoid", _hard_sigmoid),
    OperatorRow("ThresholdedRelu", _thresholded),
    OperatorRow("Shrink", _shrink),
    OperatorRow("Gelu", _gelu),
    OperatorRow("Swish", _swish),
    OperatorRow("PRelu", _prelu),
    OperatorRow("Softmax", _softmax_2d(F.softmax), 1, 12),
    OperatorRow("Softmax", _softmax, 13),
    OperatorRow("LogSoftmax", _softmax_2d(F.log_softmax), 1, 12),
    OperatorRow("LogSoftmax", _log_softmax, 13),
    OperatorRow("Hardmax", _hardmax_2d, 1, 12),
    OperatorRow("Hardmax", _hardmax, 13),
    OperatorRow("BitCast", _bit_cast),
    OperatorRow("Scale", _scaled),
    OperatorRow("Affine", _affine),
)
