"""Tensors over existing values: NumPy arrays, tensors, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, DTypeError
from ridgeline.functions.operands import Operand, as_node
from ridgeline.graph.node import TensorType
from ridgeline.graph.origins import here, stamp
from ridgeline.record.cells import PLAIN
from ridgeline.record.memory import Shared, share
from ridgeline.record.modes import modes
from ridgeline.scalars import Array
from ridgeline.tensors.tensor import (
    Tensor,
    holding,
    tensor,
    traced_array,
    unpickled as unpickled,  # pickles name it as a member of this module
    wrap,
)


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
    shared = Shared(TensorType(array.shape, dtype), array=array)
    made = holding(shared.leaf(), PLAIN)
    if modes.capture is not None and not modes.capture.lend(made._cell, array):
        traced = traced_array(array, dtype)
        return wrap(shared.leaf(), PLAIN) if traced is None else traced
    stamp(made._cell.node, here(2))
    share(made._cell, shared)
    return made


def wrap_operand(value: Operand, dtype: DType) -> Tensor:
    """A number as a 0-d tensor."""
    return wrap(as_node(value, dtype), PLAIN)


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A vector over the memory of an object with a buffer, which sees what is written there.

    >>> rl.frombuffer(bytearray(b"abcd"), dtype=rl.uint8, count=3)
    tensor([97, 98, 99], dtype=ridgeline.uint8)
    """
    kind = dtypes.as_dtype(dtype).numpy
    made = from_numpy(np.frombuffer(buffer, kind, count, offset))
    return made.requires_grad_() if requires_grad else made
