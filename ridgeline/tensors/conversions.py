"""What the arguments of `to` ask for, in any of torch's spellings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.dtypes import DType, as_dtype
from ridgeline.errors import BadTypeError

_NAMES = frozenset(("dtype", "device", "other", "non_blocking", "copy", "memory_format"))


@dataclass(frozen=True, slots=True)
class Conversion:
    """An element type and a place, None where they stay; a copy in any case, or where needed."""

    dtype: DType | None
    device: Any
    copy: bool


def conversion(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Conversion:
    """The wish of a call of `to(dtype)`, `to(device, dtype)`, `to(other)`, or by keywords."""
    if len(args) == 1 and not kwargs and isinstance(args[0], DType):  # nearly every call
        return Conversion(args[0], None, False)
    unknown = kwargs.keys() - _NAMES
    if unknown:
        raise BadTypeError(
            f"to() has no argument {sorted(unknown)[0]!r}", help=f"it takes {sorted(_NAMES)}"
        )
    dtype, place, copy = kwargs.get("dtype"), kwargs.get("device"), kwargs.get("copy", False)
    flags: list[Any] = []  # non_blocking and copy, which may follow without their names
    for position, value in enumerate((*args, kwargs.get("other"))):
        if value is None:
            continue
        if isinstance(value, bool) and position > 0:
            flags.append(value)
        elif isinstance(value, DType | type | np.dtype):
            dtype = value
        elif _is_place(value):
            place = value
        elif hasattr(value, "dtype") and hasattr(value, "device"):
            dtype, place = value.dtype, value.device
        else:
            raise BadTypeError(
                f"to() takes an element type, a device or a tensor, not {value!r:.40}"
            )
    if len(flags) > 2 or not isinstance(copy, bool):
        raise BadTypeError(f"to() has copy=True or copy=False, not {copy!r:.40} after {flags}")
    copied = copy or (len(flags) == 2 and flags[1])
    return Conversion(None if dtype is None else as_dtype(dtype), place, copied)


def _is_place(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
