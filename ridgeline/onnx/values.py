"""What flows between the operators of an ONNX graph, and what each asks of it.

Data are tensors. What is known on the host stays there, as NumPy arrays: constants, and shapes
with what is computed of them, so that sizes never wait for data. Under `jit` with dynamic sizes an
array of sizes holds symbolic ones, as objects. Strings are arrays of objects too; sequences are
lists, maps are dicts, and an optional that is empty is None.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.errors import InputFileError
from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.modes import modes
from ridgeline.tensors.tensor import Tensor

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = Any  # Tensor | Array | list[Value] | dict[Any, Any] | None
Ints: TypeAlias = list[Any]  # of int, or symbolic sizes
Floats: TypeAlias = list[float]

# elements up to which an array is worth keeping on the host: shapes, axes, scalars
SMALL = 1024


# what Python raises for messages that are not what they should be
DAMAGE = (
    AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
    ZeroDivisionError,
)  # fmt: skip


class OnnxError(InputFileError):
    """An ONNX file that is damaged, hostile, or asks for what is not offered."""


def is_tracing() -> bool:
    """True where data have no values yet: inside `jit`."""
    return modes.capture is not None


def is_host(value: Value) -> bool:
    """True for an array on the host."""
    return isinstance(value, np.ndarray)


def has_sizes(array: Array) -> bool:
    """True for an array of integers with symbolic sizes among them."""
    return array.dtype == object and any(isinstance(each, SizeExpr) for each in array.flat)


def is_text(array: Array) -> bool:
    """True for an array of strings."""
    return array.dtype.kind in "OSU" and not has_sizes(array)


def as_tensor(value: Value) -> Tensor:
    """A value as a tensor; an array becomes a constant."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, np.ndarray | np.generic):
        raise OnnxError(f"an operator needs a tensor, not a {type(value).__name__}")
    array = np.asarray(value)
    if has_sizes(array):
        flat = [rl.full((), size, dtype=rl.int64) for size in array.flat]
        return rl.stack(flat).reshape(array.shape)
    if array.dtype in NARROW:
        array = array.astype(NARROW[array.dtype])
    if dtypes.from_numpy(array.dtype) is None:
        raise OnnxError(f"tensors of {array.dtype} have no element type here")
    return rl.from_numpy(array if array.flags.writeable else array.copy())


def as_host(value: Value) -> Array:
    """A value as an array; one that `jit` does not have yet cannot be one."""
    if isinstance(value, Tensor):
        return value.detach().numpy()
    if isinstance(value, list):
        return np.asarray(value)
    return np.asarray(value)


def as_sizes(value: Value) -> Ints:
    """Integers that shape something: axes, sizes, pads."""
    if isinstance(value, list | tuple):
        return list(value)
    array = as_host(value).ravel()
    return [each if isinstance(each, SizeExpr) else int(each) for each in array]


def as_floats(value: Value) -> Floats:
    """Numbers that shape something, such as factors of a resize."""
    if isinstance(value, list | tuple):
        return list(value)
    return [float(each) for each in as_host(value).ravel()]


def as_int(value: Value) -> Any:
    """One integer, which may be symbolic."""
    return value if isinstance(value, int | SizeExpr) else as_sizes(value)[0]


def as_float(value: Value) -> float:
    """One number."""
    return float(value) if isinstance(value, int | float) else as_floats(value)[0]


def as_bool(value: Value) -> bool:
    """One truth value."""
    return bool(value) if isinstance(value, bool | int) else bool(as_host(value).ravel()[0])


def _narrow_types() -> dict[np.dtype[Any], np.dtype[Any]]:
    """Element types that only files have, each with the least type here that has all its values."""
    wider: dict[str, Any] = {
        "int4": np.int8, "uint4": np.uint8, "int2": np.int8, "uint2": np.uint8,
        "float4_e2m1fn": np.float32, "float8_e4m3fnuz": np.float32,
        "float8_e5m2fnuz": np.float32, "float8_e8m0fnu": np.float32,
    }  # fmt: skip
    return {np.dtype(getattr(ml_dtypes, name)): np.dtype(to) for name, to in wider.items()}


NARROW = _narrow_types()
