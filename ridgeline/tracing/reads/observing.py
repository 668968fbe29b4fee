"""The whole content of a value: containers, arrays, and the attributes of objects."""

from __future__ import annotations

import types
from array import array
from collections import deque
from collections.abc import Sequence
from datetime import datetime, time, tzinfo
from typing import Any

import numpy as np

from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.kinds import (
    PURE_MODULES,
    is_a,
    is_compared,
    is_large,
    is_library,
    is_library_type,
    is_our_type,
    python_method,
    written_by_users,
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
# special methods that make, name, change or leave an object: no C function asks one with them
_UNASKED = frozenset((
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__del__",
    "__setattr__", "__delattr__", "__setitem__", "__delitem__", "__subclasshook__",
    "__class_getitem__", "__exit__",
))  # fmt: skip
NUMBERS = ("__index__", "__int__", "__float__", "__complex__", "__bool__")
TEXTS = ("__str__", "__repr__", "__format__", *NUMBERS)
EQUALITY = ("__hash__", "__eq__")
ORDER = (*EQUALITY, "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


def observe(
    recorder: ReadRecorder, value: Any, instances: bool = True, methods: bool = False
) -> None:
    """All that a value holds is read: containers, arrays and, if so wanted, attributes.

    With `methods`, any method of an object may be called, and not the special ones alone.
    """
    if type(value) in SCALARS or is_a(value, Tensor):
        return
    waiting, seen = [value], {id(value)}
    while waiting:
        current = waiting.pop()
        inner = _inner(recorder, current, instances, methods)
        waiting += [v for v in inner if type(v) not in SCALARS and id(v) not in seen]
        seen.update(map(id, inner))
        if len(seen) > _MANY:
            recorder.opens(f"{label(value)} holds too many objects to compare before every call")
            return


def _inner(recorder: ReadRecorder, value: Any, instances: bool, methods: bool) -> list[Any]:
    kind, text = type(value), f"what is in a {type(value).__name__}"
    if is_a(value, dict) and not is_our_type(kind):
        recorder.entries(value, text)
        return [*value.keys(), *dict.values(value)]
    if is_a(value, SEQUENCES):
        recorder.elements(value, text)
        return list(value)
    if is_a(value, tuple | frozenset):
        return list(value)
    if is_a(value, ARRAYS):
        recorder.memory(value, text)
        recorder.settings_of_numpy()
        return []
    if is_a(value, np.generic):
        recorder.settings_of_numpy()
    if is_compared(kind):
        return attributes_of(recorder, value)
    if is_a(value, _FREE) or is_our_type(kind):
        return []
    if kind.__module__ == "builtins" or is_large(kind):
        if not is_a(value, _VALUES):
            recorder.opens_if_outside(value, f"a {kind.__name__} from outside is looked into")
        return []
    if kind.__module__ in PURE_MODULES:  # such as a fraction
        return attributes_of(recorder, value)
    if not instances or is_library_type(kind):
        return []
    _ask_methods(recorder, kind)
    if (methods or is_a(value, tzinfo)) and written_by_users(kind):
        recorder.opens(f"the methods of a {kind.__name__} may run inside of a library")
    if is_a(value, datetime | time):
        return [value.tzinfo]
    return attributes_of(recorder, value)


def _ask_methods(recorder: ReadRecorder, kind: type) -> None:
    """Special methods in Python, which C code may run, may read anything."""
    names = {name for base in kind.__mro__ for name in base.__dict__}
    for name in sorted(names - _UNASKED):
        if name.startswith("__") and name.endswith("__"):
            method = python_method(kind, name)
            written = method is not None and not method.__code__.co_filename.startswith("<")
            if method is not None and written and not is_library(method):
                recorder.opens(f"{kind.__qualname__}.{name} runs inside of a C function")


def asked(recorder: ReadRecorder, value: Any, names: Sequence[str]) -> None:
    """C code may run these special methods of a value, and of what a container of it holds."""
    waiting, seen = [value], {id(value)}
    while waiting:
        current = waiting.pop()
        if type(current) is float and current != current and names is EQUALITY:
            recorder.opens("which NaN it is decides what a container finds")
        if type(current) in SCALARS or is_a(current, Tensor) or is_our_type(type(current)):
            continue
        if is_a(current, (tuple, frozenset, *SEQUENCES)):
            inner = list(current)
        elif is_a(current, dict):
            inner = [*current.keys(), *dict.values(current)]
        else:
            inner = []
            if any(recorder.special(current, name) is not None for name in names):
                observe(recorder, current)
        waiting += [v for v in inner if id(v) not in seen]
        seen.update(map(id, inner))


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
            if is_a(stored, types.MemberDescriptorType):
                now = getattr(value, name, MISSING)
                recorder.note(value, "attribute", name, now, f"{label(value)}.{name}")
                found += [] if now is MISSING else [now]
    return found
