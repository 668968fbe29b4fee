"""The whole content of a value: containers, arrays, and the attributes of objects."""

from __future__ import annotations

import types
from array import array
from collections import deque
from typing import Any

import numpy as np

from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.kinds import (
    PURE_MODULES,
    is_compared,
    is_large,
    is_library,
    is_library_type,
    is_our_type,
    python_method,
)
from ridgeline.tracing.reads.notes import MISSING, SCALARS
from ridgeline.tracing.reads.recorder import ReadRecorder, label

SEQUENCES = (list, deque, set)  # what `elements` compares
ARRAYS = (bytearray, array, np.ndarray)
_FREE = (
    *SCALARS, range, slice, type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip
_VALUES = (np.generic, np.dtype, np.ufunc, types.CodeType, types.GenericAlias)  # cannot change
_MANY = 50_000  # objects that are looked into
_DUNDERS = (
    "__eq__", "__lt__", "__gt__", "__le__", "__ge__", "__hash__", "__bool__", "__len__", "__iter__",
    "__contains__", "__getitem__", "__repr__", "__str__", "__format__", "__index__", "__int__",
    "__float__", "__add__", "__radd__", "__mul__", "__rmul__", "__call__", "__next__", "__enter__",
)  # fmt: skip


def observe(recorder: ReadRecorder, value: Any, instances: bool = True) -> None:
    """All that a value holds is read: containers, arrays and, if so wanted, attributes."""
    if type(value) in SCALARS or isinstance(value, Tensor):
        return
    waiting, seen = [value], {id(value)}
    while waiting:
        current = waiting.pop()
        inner = _inner(recorder, current, instances)
        waiting += [v for v in inner if type(v) not in SCALARS and id(v) not in seen]
        seen.update(map(id, inner))
        if len(seen) > _MANY:
            recorder.opens(f"{label(value)} holds too many objects to compare before every call")
            return


def _inner(recorder: ReadRecorder, value: Any, instances: bool) -> list[Any]:
    kind, text = type(value), f"what is in a {type(value).__name__}"
    if isinstance(value, dict) and not is_our_type(kind):
        recorder.entries(value, text)
        return [*value.keys(), *dict.values(value)]
    if isinstance(value, SEQUENCES):
        recorder.elements(value, text)
        return list(value)
    if isinstance(value, tuple | frozenset):
        return list(value)
    if isinstance(value, ARRAYS):
        recorder.memory(value, text)
        recorder.settings_of_numpy()
        return []
    if isinstance(value, np.generic):
        recorder.settings_of_numpy()
    if is_compared(kind):
        return attributes_of(recorder, value)
    if isinstance(value, _FREE) or is_our_type(kind):
        return []
    if kind.__module__ == "builtins" or is_large(kind):
        if not isinstance(value, _VALUES):
            recorder.opens_if_outside(value, f"a {kind.__name__} from outside is looked into")
        return []
    if kind.__module__ in PURE_MODULES:  # such as a fraction
        return attributes_of(recorder, value)
    if not instances or is_library_type(kind):
        return []
    _ask_methods(recorder, kind)
    return attributes_of(recorder, value)


def _ask_methods(recorder: ReadRecorder, kind: type) -> None:
    """Special methods in Python, which C code may run, may read anything."""
    for name in _DUNDERS:
        method = python_method(kind, name)
        written = method is not None and not method.__code__.co_filename.startswith("<")
        if method is not None and written and not is_library(method):
            recorder.opens(f"{kind.__qualname__}.{name} runs inside of a C function")


def attributes_of(recorder: ReadRecorder, value: Any) -> list[Any]:
    """The attributes of an instance, in its table and in slots."""
    kind, table = type(value), getattr(value, "__dict__", None)
    found: list[Any] = []
    if isinstance(table, dict):
        recorder.note(value, "attribute", "__dict__", table, f"{label(value)}.__dict__")
        recorder.entries(table, f"the attributes of {label(value)}")
        found += table.values()
    for base in kind.__mro__:
        for name, stored in base.__dict__.items():
            if isinstance(stored, types.MemberDescriptorType):
                now = getattr(value, name, MISSING)
                recorder.note(value, "attribute", name, now, f"{label(value)}.{name}")
                found += [] if now is MISSING else [now]
    return found
