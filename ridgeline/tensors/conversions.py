"""Parsing the arguments of `to`, in any of torch's spellings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.dtypes import DType, as_dtype
from ridgeline.errors import BadTypeError
from ridgeline.layouts import memory_format

_NAMES = frozenset(("dtype", "device", "other", "non_blocking", "copy", "memory_format"))


@dataclass(frozen=True, slots=True)
class Conversion:
    """An element type, a place and an order of axes, None where they stay; whether it is a copy."""

    dtype: DType | None
    device: Any
    copy: bool
    memory_format: memory_format | None = None


def conversion(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Conversion:
    """The wish of a call of `to(dtype)`, `to(device, dtype)`, `to(other)`, or by keywords."""
    if len(args) == 1 and not kwargs and isinstance(args[0], DType):  # nearly every call
        return Conversion(args[0], None, False)
    unknown = kwargs.keys() - _NAMES
    if unknown:
        raise BadTypeError(
            f"to() has no argument {sorted(unknown)[0]!r}", help=f"it takes {sorted(_NAMES)}"
        )
    given = _by_name(args)
    for name, value in kwargs.items():
        if name in given:
            raise BadTypeError(f"to() was given {name} twice: {given[name]!r:.40}, {value!r:.40}")
        given[name] = value
    other, copy = given.get("other"), given.get("copy", False)
    if other is not None and given.keys() & {"dtype", "device"}:
        raise BadTypeError("to() takes another tensor, or an element type and a device, not both")
    if not isinstance(copy, bool):
        raise BadTypeError(f"to() has copy=True or copy=False, not {copy!r:.40}")
    dtype, target = given.get("dtype"), given.get("device")
    if other is not None:
        dtype, target = other.dtype, other.device
    return Conversion(
        None if dtype is None else as_dtype(dtype), target, copy, given.get("memory_format")
    )


def _by_name(args: Sequence[Any]) -> dict[str, Any]:
    """Arguments without names: (dtype), (device, dtype) or (other), then non_blocking and copy."""
    rest = list(args)
    found: dict[str, Any] = {}
    if rest and _is_tensor(rest[0]):
        found["other"] = rest.pop(0)
    elif rest and _is_type(rest[0]):
        found["dtype"] = rest.pop(0)
    elif rest and (rest[0] is None or _is_place(rest[0])):
        found["device"] = rest.pop(0)
        if rest and (rest[0] is None or _is_type(rest[0])):
            found["dtype"] = rest.pop(0)
    for name in ("non_blocking", "copy"):
        if found and rest and isinstance(rest[0], bool):
            found[name] = rest.pop(0)
    if rest:
        after = f" after {', '.join(found)}" if found else ""
        raise BadTypeError(
            f"to() takes an element type, a device or a tensor, not {rest[0]!r:.40}{after}"
        )
    return {name: value for name, value in found.items() if value is not None}


def _is_type(value: Any) -> bool:
    return isinstance(value, DType | type | np.dtype)


def _is_place(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _is_tensor(value: Any) -> bool:
    return not _is_type(value) and hasattr(value, "dtype") and hasattr(value, "device")
