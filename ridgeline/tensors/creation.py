"""Tensors from Python and NumPy values."""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, BadValueError, DTypeError
from ridgeline.functions.operands import Operand, as_node, defaults, lift
from ridgeline.graph.node import TensorType
from ridgeline.graph.origins import here, stamp
from ridgeline.runtime.memory_spaces import check_device
from ridgeline.scalars import Array, cast
from ridgeline.tensors import execute
from ridgeline.tensors.cells import PLAIN, filled_leaf
from ridgeline.tensors.modes import modes
from ridgeline.tensors.tensor import Tensor, wrap
from ridgeline.tracing.guards import Lifted

T = TypeVar("T", bound=Tensor)


def from_array(array: Array, dtype: DType, place: str = CPU) -> Tensor:
    """A tensor over an array that nobody else will write to."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    node = filled_leaf(TensorType(array.shape, dtype, place), execute.adopt(contiguous, place))
    stamp(node, here(2))
    return wrap(node, PLAIN)


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, arrays or tensors."""
    place = None if device is None else check_device(device)
    dtype = dtypes.wanted(dtype)
    if isinstance(data, Tensor):
        wanted = data.detach().to(dtype=dtype, device=place)
        made = wanted.clone() if wanted._cell is data._cell else wanted
    elif isinstance(data, Lifted) and (dtype is None or dtype.kind == "float"):
        made = wrap(lift(data, dtype or defaults.dtype), PLAIN).to(device=place)
    else:
        array, found = array_from(data, dtype)
        traced = _traced_array(data, found)
        if traced is None:
            made = from_array(array, found, place or CPU)
        else:
            made = traced if place is None else traced.to(place)
    return made.requires_grad_() if requires_grad else made


def _traced_array(data: Any, dtype: DType) -> Tensor | None:
    """Inside jit, a large array that later calls read again; None for all else."""
    if modes.capture is None or not isinstance(data, np.ndarray):
        return None
    node = modes.capture.array(data, dtype)
    if node is None:
        return None
    stamp(node, here(3))
    return wrap(node, PLAIN)


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor; arrays and tensors that fit already are not copied."""
    if isinstance(data, Tensor):
        return data.to(dtype=dtype, device=device)
    if isinstance(data, np.ndarray):
        return from_numpy(data).to(dtype=dtype, device=device)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: Array) -> Tensor:
    """A tensor that shares memory with a NumPy array: each sees what the other writes."""
    if not isinstance(array, np.ndarray):
        raise BadTypeError(f"from_numpy needs a NumPy array, not {type(array).__name__}")
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None:
        raise DTypeError(f"arrays of {array.dtype} have no element type here")
    traced = _traced_array(array, dtype)
    made = wrap(execute.leaf_over(array, dtype), PLAIN) if traced is None else traced
    if modes.capture is None:
        execute.share(made._cell, execute.Shared(TensorType(array.shape, dtype), array=array))
    return made


def wrap_operand(value: Operand, dtype: DType) -> Tensor:
    """A number as a 0-d tensor."""
    return wrap(as_node(value, dtype), PLAIN)


def unpickled(
    cls: type[T],
    values: bytes,
    dtype: DType,
    shape: tuple[int, ...],
    requires_grad: bool,
    place: str = CPU,
) -> T:
    """A tensor from what pickle stored of it."""
    array = np.frombuffer(values, dtype.numpy).reshape(shape).copy()
    return from_array(array, dtype, place).as_subclass(cls).requires_grad_(requires_grad)


# ---- values of Python --------------------------------------------------------------------------

_PYTHON_NUMBERS = {bool, int, float, complex}
_DOUBLES = (dtypes.float64, dtypes.complex128, np.float64, np.complex128)


def array_from(data: Any, dtype: DType | None) -> tuple[Array, DType]:
    """Python values as an array of the wanted type, or of the type torch would choose."""
    if isinstance(data, np.ndarray | np.generic):
        array = np.asarray(data)
    else:
        array = _nested(data)
    found = dtypes.from_numpy(array.dtype)
    if found is None:
        raise DTypeError(f"values of {array.dtype} have no element type here")
    if not isinstance(data, np.ndarray | np.generic) and not _has_doubles(data):
        if found is dtypes.float64:
            found = defaults.dtype
        elif found is dtypes.complex128:
            found = dtypes.complex64 if defaults.dtype is dtypes.float32 else dtypes.complex128
        elif found is dtypes.uint64:  # NumPy's answer to large numbers; Python's are int64
            found = dtypes.int64
    wanted = dtype or found
    if not isinstance(data, np.ndarray):  # arrays wrap round, numbers do not
        _check_fit(array, wanted)
    return np.asarray(cast(array, wanted)), wanted


def _check_fit(array: Array, dtype: DType) -> None:
    """Raise where a number of Python's has no place in an element type."""
    if array.dtype.kind == "c" and not dtype.is_complex and dtype.kind != "bool":
        raise DTypeError(f"a complex number does not fit into {dtype.name}", help="use its .real")
    if not dtype.is_integer or array.dtype.kind not in "iuf" or not array.size:
        return
    for value in (array.min().item(), array.max().item()):
        if not dtypes.fits(value, dtype):
            raise BadValueError(
                f"{value} does not fit into {dtype.name}", help="use a wider element type"
            )


def _nested(data: Any) -> Array:
    if isinstance(data, Lifted) or (
        isinstance(data, list | tuple) and _holds(data, Tensor | Lifted)
    ):
        data = _as_lists(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise BadValueError(
            "nested lists must have equal lengths at every level", note=str(error)
        ) from None
    if _may_be_wide(array) and _wide_integers(data):
        raise BadValueError("an integer has no place in 64 bits", help="make it a float")
    if array.dtype == object:
        raise BadTypeError(f"cannot make a tensor from {type(data).__name__}: {data!r:.60}")
    if array.size == 0 and not isinstance(data, np.ndarray):
        array = array.astype(np.float64)
    return array


def _holds(data: Any, kind: type | UnionType) -> bool:
    return any(
        isinstance(item, kind) or (isinstance(item, list | tuple) and _holds(item, kind))
        for item in data
    )


def _has_doubles(data: Any) -> bool:
    """True for nested lists with a scalar, an array or a tensor of double precision in them."""
    if not isinstance(data, list | tuple):
        return getattr(data, "dtype", None) in _DOUBLES
    if set(map(type, data)) <= _PYTHON_NUMBERS:  # most lists, and long ones
        return False
    return any(map(_has_doubles, data))


def _may_be_wide(array: Array) -> bool:
    """True for what NumPy makes of integers beyond 64 bits, and of some other values."""
    return array.dtype == object or (
        array.dtype.kind == "f" and bool(array.size) and float(np.abs(array).max()) >= 1 << 63
    )


def _wide_integers(data: Any) -> bool:
    """True for integers of which one is beyond 64 bits, without a float among them."""
    if isinstance(data, list | tuple):
        return any(map(_wide_integers, data)) and not _holds(data, float)
    return isinstance(data, int) and not -(1 << 63) <= data < 1 << 63


def _as_lists(data: Any) -> Any:
    if isinstance(data, Tensor):
        values = data.tolist()
        return np.array(values, data.dtype.numpy) if data.dtype.is_integer else values
    if isinstance(data, Lifted):
        return float(data)
    return [_as_lists(item) for item in data] if isinstance(data, list | tuple) else data
