"""Element types: ONNX numbers them, and some are only known to NumPy here."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.onnx.values import OnnxError

STRING = 8


def numpy_type(number: int) -> np.dtype[Any]:
    """NumPy's type for ONNX's number of one."""
    try:
        found: np.dtype[Any] = np.dtype(tensor_dtype_to_np_dtype(number))
    except KeyError:
        raise OnnxError(f"{number} is no element type") from None
    return found


def element_type(number: int) -> DType:
    """Our type for ONNX's number of one."""
    found = dtypes.from_numpy(numpy_type(number))
    if found is None:
        raise OnnxError(f"tensors of {numpy_type(number)} have no element type here")
    return found
