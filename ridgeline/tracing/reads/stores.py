"""Assignments and deletions: what they change, and the Python that they run.

`o.a = v` may run a property's setter, a descriptor or `__setattr__`, and `o[k] = v` the user's
`__setitem__`: those run as reporting copies. An index of a tensor and what is stored are read.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.attributes import TABLES
from ridgeline.tracing.reads.handlers import changing, changing_attribute
from ridgeline.tracing.reads.kinds import (
    is_a,
    is_our_type,
    is_ours,
    is_watched,
    kept_value,
    plain_number,
    python_method,
)
from ridgeline.tracing.reads.notes import SCALARS, entry_of_class
from ridgeline.tracing.reads.observing import observe
from ridgeline.tracing.reads.recorder import ReadRecorder, running

Call = Callable[[Any], Callable[..., Any]]


def set_attribute(recorder: ReadRecorder, call: Call, owner: Any, name: str, value: Any) -> None:
    """`owner.name = value`."""
    method = _python(recorder, owner, "__setattr__")
    if method is not None:
        call(method)(owner, name, value)
        return
    kind = type(owner)
    value = plain_number(value) if is_our_type(kind) else kept_value(value)
    stored = entry_of_class(kind, name)
    if _is_python(stored, "fset", "__set__") and not (is_watched(owner) and _is_registered(value)):
        recorder.note(kind, "class entry", name, stored, f"{kind.__qualname__}.{name}")
        if type(stored) is property:
            call(stored.fset)(owner, value)
        else:
            call(entry_of_class(type(stored), "__set__"))(stored, owner, value)
        return
    if not (_is_in_table(owner, name) and recorder.store(owner, name, value, True)):
        changing_attribute(recorder, owner, name)
        recorder.leaves(owner, value)
    setattr(owner, name, value)


def _is_in_table(owner: Any, name: str) -> bool:
    """True where an assignment just puts the value into the object's own table."""
    table = getattr(owner, "__dict__", None)
    if type(table) is not dict or is_a(owner, Tensor | type):
        return False
    if any(name in table.get(members, ()) for members in TABLES if is_watched(owner)):
        return False
    return not hasattr(type(entry_of_class(type(owner), name)), "__set__")


def delete_attribute(recorder: ReadRecorder, call: Call, owner: Any, name: str) -> None:
    """`del owner.name`."""
    method = _python(recorder, owner, "__delattr__")
    if method is not None:
        call(method)(owner, name)
        return
    stored = entry_of_class(type(owner), name)
    if type(stored) is property and _is_python(stored, "fdel", "__delete__"):
        call(stored.fdel)(owner)
        return
    changing_attribute(recorder, owner, name)
    delattr(owner, name)


def set_item(recorder: ReadRecorder, call: Call, owner: Any, key: Any, value: Any) -> None:
    """`owner[key] = value`."""
    if is_a(owner, Tensor):
        observe(recorder, key, instances=False)
        observe(recorder, value, instances=False)
        owner[key] = value
        return
    method = recorder.special(owner, "__setitem__")
    if method is not None:
        call(method)(owner, key, value)
        return
    if is_our_type(type(owner)):  # groups of an optimizer, which go on with open numbers
        key, value = plain_number(key), plain_number(value)
    else:
        key, value = kept_value(key), kept_value(value)
    if type(owner) is not dict or type(key) not in SCALARS or not recorder.store(owner, key, value):
        changing(recorder, owner)
        recorder.leaves(owner, value)
    owner[key] = value


def delete_item(recorder: ReadRecorder, call: Call, owner: Any, key: Any) -> None:
    """`del owner[key]`."""
    method = recorder.special(owner, "__delitem__")
    if method is not None:
        call(method)(owner, key)
        return
    changing(recorder, owner)
    del owner[key]


def _is_registered(value: Any) -> bool:
    """True for what a module registers before its properties are asked: parameters and layers."""
    return is_watched(value) or (is_a(value, Tensor) and type(value) is not Tensor)


def _python(recorder: ReadRecorder, owner: Any, name: str) -> types.FunctionType | None:
    """A special method of the user's; tensors and classes have none that counts."""
    if is_a(owner, Tensor | type) or python_method(type(owner), name) is None:
        return None
    return recorder.special(owner, name)


def _is_python(stored: Any, accessor: str, method: str) -> bool:
    """True for a property or descriptor whose change runs Python of the user's."""
    if type(stored) is property:
        function = getattr(stored, accessor)
    else:
        function = entry_of_class(type(stored), method)
    return is_a(function, types.FunctionType) and not is_ours(function)


class AttributeTarget:
    """Stands for an object in `o.name = …` and `del o.name`."""

    _call: Call
    _owner: Any

    def __init__(self, call: Call, owner: Any) -> None:
        object.__setattr__(self, "_call", call)
        object.__setattr__(self, "_owner", owner)

    def __setattr__(self, name: str, value: Any) -> None:
        assert running.call_recorder is not None
        set_attribute(running.call_recorder, self._call, self._owner, name, value)

    def __delattr__(self, name: str) -> None:
        assert running.call_recorder is not None
        delete_attribute(running.call_recorder, self._call, self._owner, name)


class ItemTarget:
    """Stands for an object in `o[key] = …` and `del o[key]`."""

    __slots__ = ("_call", "_owner")

    def __init__(self, call: Call, owner: Any) -> None:
        self._call, self._owner = call, owner

    def __setitem__(self, key: Any, value: Any) -> None:
        assert running.call_recorder is not None
        set_item(running.call_recorder, self._call, self._owner, key, value)

    def __delitem__(self, key: Any) -> None:
        assert running.call_recorder is not None
        delete_item(running.call_recorder, self._call, self._owner, key)
