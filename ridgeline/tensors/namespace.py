"""Small public functions that are not ops: defaults, questions about types."""

from __future__ import annotations

from typing import Any

from ridgeline.dtypes import DType, as_dtype
from ridgeline.errors import DTypeError
from ridgeline.functions import operands
from ridgeline.functions.operands import defaults
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor


def get_default_dtype() -> DType:
    """The element type of Python floats and of new tensors."""
    return defaults.dtype


def set_default_dtype(dtype: DType) -> None:
    """Set the element type of Python floats and of new tensors."""
    dtype = as_dtype(dtype)
    if not dtype.is_floating_point:
        raise DTypeError(f"the default element type is a floating one, not {dtype.name}")
    defaults.dtype = dtype


def is_tensor(obj: Any) -> bool:
    """True for tensors."""
    return isinstance(obj, Tensor)


def result_type(*values: Any) -> DType:
    """The element type of an op on tensors and numbers."""
    return operands.result_type(*[read(v) if isinstance(v, Tensor) else v for v in values])


def _assert(condition: Any, message: str) -> None:
    """Python's `assert` as a function, which `fx` can trace."""
    assert condition, message
