"""`asarray`: anything that holds numbers as a tensor, without a copy where memory allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.dtypes import DType, from_numpy as row_of, wanted
from ridgeline.interop.dlpack import ExchangeError, from_dlpack
from ridgeline.scalars import Array
from ridgeline.tensors.creation import from_numpy
from ridgeline.tensors.tensor import Tensor, tensor

# what has no memory to share; a scalar of NumPy's has some, but nobody may write to it
_COPIED = (bool, int, float, complex, list, tuple, np.generic)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`obj` as a tensor; its memory is shared where it can be, unless `copy=True`.

    Tensors, NumPy arrays, DLPack producers and objects with a buffer can share; numbers and
    sequences are copied. `copy=False` raises where a copy would be needed.
    """
    dtype = wanted(dtype)
    shared = None if isinstance(obj, _COPIED) else _shared(obj)
    if shared is None:
        if copy is False:
            raise ExchangeError(f"{type(obj).__name__} has no memory that could be shared")
        made = tensor(obj, dtype=dtype, device=device)
    elif dtype not in (None, shared.dtype):
        if copy is False:
            raise ExchangeError(f"{shared.dtype.name} cannot be seen as {dtype} without a copy")
        made = shared.to(dtype)
    else:
        made = shared.detach().clone() if copy else shared
    if device is not None:
        made = made.to(device=device)
    return made.requires_grad_() if requires_grad else made


def _shared(obj: Any) -> Tensor | None:
    """A tensor over memory that belongs to `obj`, or None where it has none to share."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        return from_numpy(obj) if _known(obj) else None
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return from_dlpack(obj)
    array = _buffer(obj)
    return None if array is None or not _known(array) else from_numpy(array)


def _buffer(obj: Any) -> Array | None:
    """The buffer of an object as an array; None where it has none."""
    try:
        return np.asarray(memoryview(obj))
    except TypeError:
        return None


def _known(array: Array) -> bool:
    return row_of(array.dtype) is not None and array.dtype.isnative
