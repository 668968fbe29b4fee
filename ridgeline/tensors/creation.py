"""Tensors from Python and NumPy values."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, DTypeError
from ridgeline.functions.operands import Operand, as_node, defaults, lift
from ridgeline.graph.node import TensorType
from ridgeline.graph.origins import here, stamp
from ridgeline.runtime.memory_spaces import check_device
from ridgeline.scalars import Array
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
        array, found = execute.array_from(data, dtype)
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
