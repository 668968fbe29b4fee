"""Attributes: found as Python finds them, with a note of everything that decided what was found."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ridgeline.graph.sizes import SizeExpr
from ridgeline.record.numbers import Lifted
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.kinds import (
    is_a,
    is_compared,
    is_library_type,
    is_our_type,
    is_ours,
    is_watched,
    python_method,
    written_by_users,
)
from ridgeline.tracing.reads.notes import MISSING, entry_of_class, own_table
from ridgeline.tracing.reads.observing import observe
from ridgeline.tracing.reads.recorder import ReadRecorder, label

_MEMBER = types.MemberDescriptorType
_SLOTS = (_MEMBER, types.GetSetDescriptorType)
_VALUES = (str, bytes, int, float, complex, bool, type(None), tuple, frozenset, range, slice)
_NATIVE = (list, dict, set, *_VALUES)
TABLES = ("_parameters", "_buffers", "_modules")
# descriptors in C that give a method, or what they hold
_BINDING = (
    classmethod, staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, types.BuiltinFunctionType, types.MethodType,
    type(functools.lru_cache(lambda: None)),
)  # fmt: skip
_METHODS = (types.FunctionType, classmethod, staticmethod)
Call = Callable[[Any], Callable[..., Any]]


def attribute(recorder: ReadRecorder, call: Call, owner: Any, name: str) -> Any:
    """`owner.name`; `call` gives the form in which a function of the user's is called."""
    kind = type(owner)
    if kind is Tensor or kind in _NATIVE:
        return getattr(owner, name)
    if kind is SizeExpr:
        return getattr(owner.__index__(), name)
    if kind is Lifted:
        return float if name == "__class__" else getattr(owner, name)
    if is_a(owner, type):
        return of_class(recorder, call, owner, name)
    if is_a(owner, types.ModuleType):
        return of_module(recorder, owner, name)
    if is_a(owner, super):
        return _of_super(recorder, call, owner, name)
    if is_a(owner, np.ndarray):
        recorder.memory(owner, "an array")
        if kind is np.ndarray or not _is_kept(owner, name):
            return getattr(owner, name)
    if is_our_type(kind):
        return _of_ours(recorder, owner, name)
    if is_a(owner, threading.local):
        return _of_thread(recorder, owner, name)
    own = python_method(kind, "__getattribute__")
    if own is not None:
        recorder.special(owner, "__getattribute__")
        return call(own)(owner, name)
    return of_instance(recorder, call, owner, name)


def of_instance(recorder: ReadRecorder, call: Call, owner: Any, name: str) -> Any:
    """An attribute of an object whose class finds attributes as `object` does."""
    kind = type(owner)
    text = f"{label(owner)}.{name}"
    stored = entry_of_class(kind, name)
    if stored is not MISSING and hasattr(type(stored), "__set__"):  # comes before the instance
        if is_a(stored, _SLOTS):
            return _direct(recorder, owner, name, text)
        _by_class(recorder, owner, name, stored, text)
        return _bound(recorder, call, stored, owner, kind)
    own = own_table(owner)
    if own is not None and name in own:
        value = own[name]
        if is_watched(owner):
            _by_type(recorder, owner, text)
            recorder.own_entry(owner, name, value, text)
        elif not recorder.is_given(owner):
            if stored is not MISSING or not name.isidentifier():
                _by_type(recorder, owner, text)
            recorder.note(owner, "attribute", name, value, text)
        elif type(stored) is functools.cached_property and _is_dataclass(kind):
            recorder.opens(f"{text} was computed before, by an argument of the call")
        return value
    if stored is not MISSING:
        _by_class(recorder, owner, name, stored, text)
        if own is not None and not recorder.is_given(owner):
            recorder.note(owner, "own", name, MISSING, text)
        return _bound(recorder, call, stored, owner, kind)
    return _missing(recorder, call, owner, name, text)


def _is_kept(owner: Any, name: str) -> bool:
    """True for what users keep in an array of a class of their own."""
    return name in getattr(owner, "__dict__", ()) or bool(written_by_users(type(owner)))


def _direct(recorder: ReadRecorder, owner: Any, name: str, text: str) -> Any:
    """A slot, or an attribute that is implemented in C."""
    if recorder.is_given(owner) and is_a(entry_of_class(type(owner), name), _MEMBER):
        if not _is_dataclass(type(owner)):
            recorder.opens(f"{text} is a slot of an argument that is a container")
        return getattr(owner, name)
    try:
        value = getattr(owner, name)
    except AttributeError:
        recorder.note(owner, "attribute", name, MISSING, text)
        raise
    if name == "__dict__" or not _is_made_anew(owner, name, value):
        recorder.note(owner, "attribute", name, value, text)
    else:
        recorder.opens_if_outside(owner, f"{text} is computed by code that has no source")
    return value


def _is_made_anew(owner: Any, name: str, value: Any) -> bool:
    """True where every look gives another object, which identity cannot compare."""
    again = getattr(owner, name)
    if again is value:
        return False
    return is_a(value, list | dict | set) or type(again) is not type(value) or again != value


def _is_dataclass(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__")


def _by_type(recorder: ReadRecorder, owner: Any, text: str) -> None:
    recorder.note(owner, "type", None, type(owner), f"the class of {text.partition('.')[0]}")


def _by_class(recorder: ReadRecorder, owner: Any, name: str, stored: Any, text: str) -> None:
    if not recorder.is_given(owner):
        _by_type(recorder, owner, text)
    kind = type(owner)
    if kind.__module__ != "builtins":
        recorder.note(kind, "class entry", name, stored, f"{kind.__qualname__}.{name}")


def _bound(recorder: ReadRecorder, call: Call, stored: Any, owner: Any, kind: type) -> Any:
    """What a class's entry gives for an instance (or for None, the class itself)."""
    if is_a(stored, types.FunctionType):
        return types.MethodType(stored, owner)
    if type(stored) is property and owner is not None:
        if stored.fget is None:
            return stored.__get__(owner, kind)
        return call(stored.fget)(owner)
    get = entry_of_class(type(stored), "__get__")
    if get is MISSING:
        return stored
    if is_a(get, types.FunctionType) and not is_ours(get):
        recorder.note(type(stored), "class entry", "__get__", get, type(stored).__qualname__)
        return call(get)(stored, owner, kind)
    if owner is not None and not is_a(stored, _BINDING) and not is_library_type(kind):
        recorder.opens_if_outside(owner, f"{label(owner)} is looked into by code without source")
    return get(stored, owner, kind)


def _missing(recorder: ReadRecorder, call: Call, owner: Any, name: str, text: str) -> Any:
    if is_watched(owner):
        for table in TABLES:  # a module's parameters, buffers and children
            members = vars(owner).get(table)
            if members is not None and name in members:
                recorder.found(owner)
                recorder.note(members, "key", name, members[name], text)
                return members[name]
    if not recorder.is_given(owner):
        _by_type(recorder, owner, text)
    recorder.note(owner, "static", name, MISSING, text)
    fallback = recorder.special(owner, "__getattr__")
    if fallback is not None:
        return call(fallback)(owner, name)
    value = getattr(owner, name)  # raises, or is found by code of ours, or by code in C
    if not is_watched(owner):
        recorder.opens_if_outside(owner, f"{text} is found by code without source")
    return value


def _of_ours(recorder: ReadRecorder, owner: Any, name: str) -> Any:
    """An object of this package: what users keep in it counts, the rest is seen to already."""
    if is_compared(type(owner)):
        observe(recorder, owner)
    recorder.our_class(type(owner))
    value = getattr(owner, name)
    own = own_table(owner)
    if own is not None and own.get(name, MISSING) is value:
        recorder.note(owner, "own", name, value, f"{label(owner)}.{name}")
        return value
    if own is not None and entry_of_class(type(owner), name) is not MISSING:
        recorder.note(owner, "own", name, MISSING, f"{label(owner)}.{name}")
    if is_watched(owner):
        for table in TABLES:
            members = (own or {}).get(table)
            if isinstance(members, dict) and name in members:
                recorder.note(members, "key", name, members[name], f"{label(owner)}.{name}")
        recorder.found(owner)
    return value


def _of_thread(recorder: ReadRecorder, owner: threading.local, name: str) -> Any:
    """A variable of the calling thread, which every thread reads for itself."""
    if name == "__dict__" or type(owner) is not threading.local:
        recorder.opens("the variables of a thread are looked at")
        return getattr(owner, name)
    value = getattr(owner, name, MISSING)
    recorder.note(owner, "variable", name, value, f"the thread's variable {name!r}")
    return getattr(owner, name)


def of_module(recorder: ReadRecorder, owner: types.ModuleType, name: str) -> Any:
    """An attribute of a module; modules and classes in this package count as fixed."""
    value = getattr(owner, name)
    ours = vars(owner).get("__name__", "").partition(".")[0] == "ridgeline"
    if not (ours and is_a(value, type | types.ModuleType)):
        recorder.note(owner, "attribute", name, value, f"{label(owner)}.{name}")
    return value


def of_class(recorder: ReadRecorder, call: Call, owner: type, name: str) -> Any:
    """An attribute of a class: its metaclass's, its own or inherited."""
    meta = type(owner)
    text = f"{owner.__qualname__}.{name}"
    if owner.__module__ == "builtins" or (is_our_type(owner) and meta is type):
        return getattr(owner, name)
    above = entry_of_class(meta, name)
    if above is not MISSING and hasattr(type(above), "__set__"):
        if meta is not type:
            recorder.note(meta, "class entry", name, above, text)
        if is_a(above, _SLOTS):
            value = getattr(owner, name)
            if name == "__dict__":
                recorder.table(value, owner)
            else:
                recorder.note(owner, "attribute", name, value, text)
            return value
        return _bound(recorder, call, above, owner, meta)
    stored = entry_of_class(owner, name)
    if stored is MISSING:
        recorder.note(owner, "class entry", name, MISSING, text)
        if above is not MISSING:
            recorder.note(meta, "class entry", name, above, f"{meta.__qualname__}.{name}")
            return _bound(recorder, call, above, owner, meta)
        fallback = recorder.special(owner, "__getattr__")
        return getattr(owner, name) if fallback is None else call(fallback)(owner, name)
    recorder.note(owner, "class entry", name, stored, text)
    if is_a(stored, types.FunctionType | property):
        return stored
    return _bound(recorder, call, stored, None, owner)


def _of_super(recorder: ReadRecorder, call: Call, owner: Any, name: str) -> Any:
    start, kind = owner.__thisclass__, owner.__self_class__
    order = kind.__mro__
    for base in order[order.index(start) + 1 :]:
        stored = base.__dict__.get(name, MISSING)
        if base.__module__ == "builtins" or is_our_type(base):
            if stored is not MISSING:
                break
        elif stored is MISSING:
            recorder.note(base.__dict__, "key", name, MISSING, f"{base.__qualname__}.{name}")
        else:
            recorder.note(base, "class entry", name, stored, f"{base.__qualname__}.{name}")
            bound = owner.__self__
            if is_a(bound, type) or is_a(stored, _METHODS):
                break
            return _bound(recorder, call, stored, bound, kind)
    return getattr(owner, name)
