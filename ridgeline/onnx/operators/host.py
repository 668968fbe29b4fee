"""Shape arithmetic: operators on arrays that are known on the host, computed there at once.

Arrays of sizes may hold symbolic ones; NumPy applies Python's operators to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.sizes import SizeExpr
from ridgeline.onnx.operators.elements import STRING, numpy_type
from ridgeline.onnx.program import NodeStep
from ridgeline.onnx.rows import OperatorRow
from ridgeline.onnx.values import NARROW, SMALL, Array, Ints, OnnxError, Value, has_sizes, is_text


def folds(name: str) -> bool:
    """True if there is a rule for an operator on the host."""
    return name in _TABLE


def fold(step: NodeStep, inputs: Sequence[Value]) -> Sequence[Value] | None:
    """The results of a step on small arrays of the host; None where it is computed with tensors."""
    row = _TABLE.get(step.name)
    given = [each for each in inputs if each is not None]
    if row is None or not isinstance(step.body, OperatorRow) or step.body.domain:
        return None
    if any(each.size > SMALL or each.dtype in NARROW or is_text(each) for each in given):
        return None
    with float_errors_ignored():
        result = row.call(inputs, step.attributes, len(step.outputs), step.opset)
    if result is NotImplemented:
        return None
    return [_plain(each) for each in (result if isinstance(result, list) else [result])]


def _plain(value: Any) -> Array:
    """A result as an array; one of objects without a symbolic size is one of integers."""
    array = np.asarray(value, object if isinstance(value, SizeExpr) else None)
    if array.dtype == object and not has_sizes(array):
        return array.astype(np.int64)
    return array


def _numbers(array: Array) -> Array:
    """An array of sizes as plain numbers: under `jit` the program is then for these sizes."""
    return np.array([int(each) for each in array.flat], np.int64).reshape(array.shape)


def _cast(input: Array, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    if to == STRING or numpy_type(to) in NARROW or numpy_type(to).itemsize == 1:
        return NotImplemented
    if not has_sizes(input):
        return input.astype(numpy_type(to))
    return input if to == 7 else _numbers(input).astype(numpy_type(to))


def _identity(input: Array) -> Array:
    return input


def _div(a: Array, b: Array) -> Array:
    if a.dtype == object or b.dtype == object:
        return a // b
    if a.dtype.kind in "iu":
        quotient = np.where(b == 0, 0, np.trunc(np.divide(a, np.where(b == 0, 1, b))))
        return quotient.astype(a.dtype)
    return a / b


def _mod(a: Array, b: Array, fmod: int = 0) -> Array:
    return np.fmod(a, b) if fmod else a % b


def _pow(x: Array, y: Array) -> Array:
    return np.power(x, y).astype(x.dtype)


def _slice(data: Array, starts: Ints, ends: Ints, axes: Ints | None = None,
           steps: Ints | None = None) -> Array:  # fmt: skip
    picked: list[slice] = [slice(None)] * data.ndim
    for number, axis in enumerate(axes if axes is not None else range(len(starts))):
        step = 1 if steps is None else steps[number]
        end = ends[number]
        stop = None if step < 0 and end < -data.shape[axis] else end
        picked[axis] = slice(starts[number], stop, step)
    return data[tuple(picked)]


def _gather(data: Array, indices: Array, axis: int = 0) -> Array:
    length = data.shape[axis]
    if indices.size and (indices.min() < -length or indices.max() >= length):
        raise OnnxError(f"an index lies outside of an axis of {length}")
    return np.take(data, indices, axis)


def _reshape(data: Array, shape: Ints, allowzero: int = 0) -> Any:
    if any(isinstance(each, SizeExpr) for each in shape):
        return NotImplemented
    if not allowzero:
        shape = [data.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return data.reshape(shape)


def _squeeze(data: Array, axes: Ints | None = None) -> Array:
    return np.squeeze(data, None if axes is None else tuple(axes))


def _unsqueeze(data: Array, axes: Ints) -> Array:
    return np.expand_dims(data, tuple(axes))


def _transpose(data: Array, perm: Ints | None = None) -> Array:
    return np.transpose(data, perm)


def _few(shape: Ints) -> bool:
    """True for a shape of numbers, with few elements."""
    return not any(isinstance(n, SizeExpr) for n in shape) and int(np.prod(shape)) <= SMALL


def _expand(input: Array, shape: Ints) -> Any:
    if not _few(shape):
        return NotImplemented
    return np.broadcast_to(input, np.broadcast_shapes(input.shape, tuple(shape))).copy()


def _tile(input: Array, repeats: Ints) -> Any:
    return np.tile(input, repeats) if _few(repeats) else NotImplemented


def _filled(shape: Ints, value: Array | None = None) -> Any:
    if not _few(shape):
        return NotImplemented
    return np.full(shape, 0 if value is None else value[0], np.float32 if value is None else None)


def _range(start: Array, limit: Array, delta: Array) -> Any:
    if any(each.dtype == object for each in (start, limit, delta)):
        return NotImplemented
    first, end, step = (each.ravel()[0] for each in (start, limit, delta))
    if step == 0 or (float(end) - float(first)) / float(step) > SMALL:
        return NotImplemented
    return np.arange(first, end, step, dtype=start.dtype)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(
        data: Array, axes: Ints | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Any:
        if not axes and noop_with_empty_axes:
            return data
        if data.size == 0:
            return NotImplemented
        kind = None if data.dtype == object else data.dtype
        found = function(data, axis=tuple(axes) if axes else None, keepdims=bool(keepdims))
        return np.asarray(found, kind)

    return reduce


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def compare(a: Array, b: Array) -> Any:
        return np.asarray(function(a, b)).astype(bool)

    return compare


def _pointwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*xs: Array) -> Any:
        result = xs[0]
        if len(xs) == 1 and isinstance(function, np.ufunc) and function.nin == 1:
            return function(result)
        for each in xs[1:]:
            result = function(result, each)
        return result

    return apply


def _split(input: Array, split: Ints | None = None, axis: int = 0, num_outputs: int | None = None,
           outputs: int = 1) -> Any:  # fmt: skip
    if split is None:
        each = -(-input.shape[axis] // (num_outputs or outputs))
        return list(np.split(input, range(each, input.shape[axis], each), axis))
    return list(np.split(input, np.cumsum(split)[:-1].astype(np.int64), axis))


def _concat(*inputs: Array, axis: int = 0) -> Array:
    return np.concatenate(inputs, axis)


def _where(condition: Array, X: Array, Y: Array) -> Array:
    return np.where(condition, X, Y)


def _nonzero(X: Array) -> Any:
    return NotImplemented if has_sizes(X) else np.array(np.nonzero(X), np.int64)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Identity": _identity, "Cast": _cast, "Concat": _concat, "Gather": _gather,
    "Slice": _slice, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Reshape": _reshape,
    "Transpose": _transpose, "Expand": _expand, "Tile": _tile, "Range": _range,
    "ConstantOfShape": _filled, "Split": _split, "Where": _where, "NonZero": _nonzero,
    "Add": _pointwise(np.add), "Sub": _pointwise(np.subtract), "Mul": _pointwise(np.multiply),
    "Div": _div, "Mod": _mod, "Pow": _pow, "Neg": _pointwise(np.negative),
    "Min": _pointwise(np.minimum), "Max": _pointwise(np.maximum), "Abs": _pointwise(np.abs),
    "Floor": _pointwise(np.floor), "Ceil": _pointwise(np.ceil), "Sqrt": _pointwise(np.sqrt),
    "Equal": _compared(np.equal), "Less": _compared(np.less), "Greater": _compared(np.greater),
    "LessOrEqual": _compared(np.less_equal), "GreaterOrEqual": _compared(np.greater_equal),
    "And": _compared(np.logical_and), "Or": _compared(np.logical_or),
    "Not": _pointwise(np.logical_not), "ReduceSum": _reduced(np.sum),
    "ReduceProd": _reduced(np.prod), "ReduceMax": _reduced(np.max), "ReduceMin": _reduced(np.min),
}  # fmt: skip
_TABLE = {name: OperatorRow(name, function) for name, function in _FUNCTIONS.items()}
