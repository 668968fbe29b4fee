"""Loops, unpacking, items and membership: what each of them reads."""

from __future__ import annotations

import enum
import types
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.reads.kinds import (
    HEAP,
    is_a,
    is_library,
    is_library_type,
    is_our_type,
    plain_number,
)
from ridgeline.tracing.reads.notes import MISSING, SCALARS, entry_of_class
from ridgeline.tracing.reads.observing import (
    ARRAYS,
    EQUALITY,
    NUMBERS,
    SEQUENCES,
    asked,
    observe,
)
from ridgeline.tracing.reads.recorder import ReadRecorder, label, shown

Call = Callable[[Any], Callable[..., Any]]


def iterate(recorder: ReadRecorder, call: Call, value: Any, nested: bool = False) -> Any:
    """What a loop runs over; with `nested`, its elements are unpacked."""
    kind = type(value)
    if kind in (tuple, range, str, bytes) or is_a(value, Tensor):
        pass
    elif is_a(value, dict | list | set | frozenset | deque | tuple | bytearray | array):
        method = recorder.special(value, "__iter__")
        if method is not None:
            return _driven(recorder, call, call(method)(value))
        if is_a(value, dict) and not is_our_type(kind):
            recorder.note(value, "keys", None, tuple(value), f"the keys of a {kind.__name__}")
        elif is_a(value, SEQUENCES):
            recorder.elements(value, f"the elements of a {kind.__name__}")
        elif is_a(value, ARRAYS):
            recorder.memory(value, f"the elements of a {kind.__name__}")
    elif is_a(value, np.ndarray):
        recorder.memory(value, "the elements of an array")
    else:
        return _iterated_object(recorder, call, value)
    if nested and is_a(value, list | tuple):
        for element in value:
            if is_a(element, list):
                recorder.elements(element, "the elements of a list")
    return value


def _iterated_object(recorder: ReadRecorder, call: Call, value: Any) -> Any:
    kind = type(value)
    if is_a(value, enum.EnumMeta):  # its members, which may be added to
        observe(recorder, [value._member_names_, value._member_map_], instances=False)
    if is_our_type(kind) or (is_a(value, type) and is_library_type(kind)):
        return value
    method = recorder.special(value, "__iter__")
    if method is not None and not is_library_type(kind):
        return _driven(recorder, call, call(method)(value))
    if is_a(value, Iterator):
        recorder.opens_if_outside(value, f"{label(value)} from outside is advanced")
        return _driven(recorder, call, value)
    item = recorder.special(value, "__getitem__")
    if item is not None and entry_of_class(kind, "__iter__") is MISSING:
        return _by_items(call(item), value)
    recorder.opens_if_outside(value, f"{label(value)} is iterated over by code without source")
    return value


def _driven(recorder: ReadRecorder, call: Call, source: Any) -> Any:
    """An iterator whose `__next__` is Python of the user's, driven by its reporting copy."""
    step = recorder.special(source, "__next__")
    if step is None or is_a(source, types.GeneratorType):
        if is_a(source, Iterator):
            recorder.opens_if_outside(source, f"{label(source)} from outside is advanced")
        return source
    return _steps(call(step), source)


def _steps(step: Callable[[Any], Any], source: Any) -> Iterator[Any]:
    while True:
        try:
            value = step(source)
        except StopIteration:
            return
        yield value


def _by_items(item: Callable[[Any, int], Any], value: Any) -> Iterator[Any]:
    index = 0
    while True:
        try:
            found = item(value, index)
        except IndexError:
            return
        yield found
        index += 1


def item(recorder: ReadRecorder, call: Call, owner: Any, key: Any) -> Any:
    """`owner[key]`."""
    kind = type(owner)
    if kind in (tuple, str, bytes, range):
        return owner[_plain(recorder, call, key)]
    if is_a(owner, type) and recorder.special(owner, "__getitem__") is None:
        return _of_class(recorder, call, owner, key)
    if is_a(owner, Tensor) or is_our_type(kind):
        return owner[_plain(recorder, call, key)]
    method = recorder.special(owner, "__getitem__")
    if method is not None:
        return call(method)(owner, key)
    if is_a(owner, ARRAYS):
        recorder.memory(owner, f"an element of a {kind.__name__}")
        return owner[_plain(recorder, call, key)]
    key = plain_number(key)
    if is_a(owner, dict):
        return entry_of_dict(recorder, call, owner, key)
    if is_a(owner, list | deque):
        key = _plain(recorder, call, key)
        if type(key) is not int or is_a(owner, deque):
            recorder.elements(owner, f"the elements of a {kind.__name__}")
            return owner[key]
        if not recorder.is_given(owner):
            value = owner[key] if -len(owner) <= key < len(owner) else MISSING
            if value is MISSING:
                recorder.note(owner, "length", None, len(owner), f"the length of a {kind.__name__}")
            else:
                recorder.note(owner, "item", key, value, f"element {key} of a {kind.__name__}")
        return owner[key]
    if kind is types.MappingProxyType:
        value = owner.get(key, MISSING)
        recorder.note(owner, "key", key, value, f"the entry {shown(key)} of a mappingproxy")
    elif not is_a(owner, tuple):
        recorder.opens_if_outside(owner, f"{label(owner)}[…] is looked up by code without source")
    return owner[key]


def _plain(recorder: ReadRecorder, call: Call, key: Any) -> Any:
    """An index as C code takes it: the ints that objects of the user's stand for."""
    if type(key) in SCALARS:
        return key
    if type(key) is slice:
        parts = (key.start, key.stop, key.step)
        return slice(*[_plain(recorder, call, part) for part in parts])
    if type(key) is tuple:
        return tuple([_plain(recorder, call, part) for part in key])
    method = recorder.special(key, "__index__")
    if method is not None and not is_our_type(type(key)):
        return call(method)(key)
    observe(recorder, key, instances=False)  # a list or an array that chooses elements
    asked(recorder, key, (*NUMBERS, "__array__"))
    return key


def _of_class(recorder: ReadRecorder, call: Call, owner: Any, key: Any) -> Any:
    """`Kind[key]`, which a class may have a method for."""
    stored = entry_of_class(owner, "__class_getitem__")
    if owner.__flags__ & HEAP and not is_library_type(owner):
        recorder.note(owner, "class entry", "__class_getitem__", stored, f"{label(owner)}[…]")
    method = stored.__func__ if is_a(stored, classmethod) else stored
    if type(method) is types.FunctionType and not is_library(method):
        return call(types.MethodType(method, owner))(key)
    return owner[key]


def entry_of_dict(recorder: ReadRecorder, call: Call, owner: dict[Any, Any], key: Any) -> Any:
    """`dict.__getitem__(owner, key)`."""
    if recorder.is_given(owner):
        return dict.__getitem__(owner, key)
    asked(recorder, key, EQUALITY)
    value = dict.get(owner, key, MISSING)
    recorder.note(owner, "key", key, value, f"the entry {shown(key)} of a {type(owner).__name__}")
    if value is not MISSING:
        return value
    fallback = recorder.special(owner, "__missing__")
    if fallback is not None:
        return call(fallback)(owner, key)
    factory = getattr(owner, "default_factory", None)
    if factory is not None:
        made = owner[key] = call(factory)()
        return made
    return dict.__getitem__(owner, key)


def contains(recorder: ReadRecorder, call: Call, owner: Any, key: Any) -> bool:
    """`key in owner`."""
    kind = type(owner)
    if is_a(owner, Tensor) or is_our_type(kind) or kind in (str, bytes, range):
        return key in owner
    method = recorder.special(owner, "__contains__")
    if method is not None:
        return bool(call(method)(owner, key))
    key = plain_number(key)
    if is_a(owner, dict):
        asked(recorder, key, EQUALITY)
        if not recorder.is_given(owner):
            value = dict.get(owner, key, MISSING)
            recorder.note(owner, "key", key, value, f"the entry {shown(key)} of a {kind.__name__}")
        return key in owner
    asked(recorder, key, EQUALITY)
    if recorder.special(owner, "__iter__") or recorder.special(owner, "__getitem__"):
        return any(v is key or v == key for v in iterate(recorder, call, owner))
    observe(recorder, owner)
    return key in owner
