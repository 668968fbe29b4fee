"""Snapshots of modules and optimizers, taken at capture and compared at later calls.

A snapshot of a module or an optimizer holds simple values by value and all others by identity. The
epoch says whether it is worth looking (`record/mutation.py`).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# pickles of modules and optimizers name these classes as members of this module
from ridgeline.record.mutation import ParamGroup, Row as Row, Table as Table

# Containers that classes of the user's extend, which may have attributes besides
_EXTENDED = (dict, list, tuple, deque, set, frozenset, bytearray, array)
SMALL_ARRAY = 4096  # arrays of at most so many bytes are compared by value
JITTED = "__jit_"  # attributes under which methods keep their jitted forms


def _whole(container: Any) -> Any:
    return container


def snapshot(obj: Any, look: Callable[[Any], Any] = _whole) -> Any:
    """The guarded contents of an object: simple values by value, all others by identity.

    An object may define `_guard_state(attributes)` to say what counts; by default its attributes
    do. `look` extracts what counts from a dict or a list.
    """
    attributes = look(vars(obj))
    if hasattr(obj, "_guard_state"):
        kept = obj._guard_state(attributes)
    else:
        kept = {k: v for k, v in attributes.items() if not k.startswith(JITTED)}
    return freeze({**kept, "__class__": type(obj)}, look)


def freeze(value: Any, look: Callable[[Any], Any] = _whole) -> Any:
    """A comparable image of a value: containers by content, others by value or identity."""
    if value is None or type(value) in (str, bytes, int) or isinstance(value, type):
        return value
    if isinstance(value, bool):  # equal to a number, and yet not the same
        return ("bool", value)
    if type(value) is float:
        return ("float", value.hex())
    if isinstance(value, str | bytes | int | float):  # a class of somebody's, or an enum's member
        return (type(value), value, SameObject(value))
    if isinstance(value, ParamGroup):  # its floats are read lifted, or guarded one by one
        kept = [(k, v) for k, v in dict.items(value) if not isinstance(v, float)]
        return ("dict", tuple((k, freeze(v)) for k, v in kept))
    kind = type(value)
    own = getattr(value, "__dict__", None) if isinstance(value, _EXTENDED) else None
    if own:
        attributes = tuple([(name, _by_identity(part)) for name, part in own.items()])
        return (_content(value, kind, look), attributes)
    return _content(value, kind, look)


def _by_identity(value: Any) -> Any:
    """An attribute of a container, which may hold the container in turn."""
    return freeze(value) if type(value) in (str, bytes, int, bool, float) else SameObject(value)


def _content(value: Any, kind: type, look: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        items = tuple(dict.items(look(value)))  # at once: a weak table may shrink meanwhile
        image = tuple((freeze(k), freeze(v, look)) for k, v in items)
        return ("dict", image) if kind is dict else ("dict", kind, image)
    if isinstance(value, list | tuple | deque):
        image = tuple([freeze(element, look) for element in look(value)])
        name = kind if kind.__module__ != "builtins" else kind.__name__
        return (name, image, value.maxlen) if isinstance(value, deque) else (name, image)
    if isinstance(value, set | frozenset):
        return (kind.__name__, tuple(map(freeze, value)))
    if isinstance(value, bytearray):
        return ("bytearray", bytes(value))
    if isinstance(value, array):
        return ("array.array", value.typecode, value.tobytes())
    if is_small_array(value):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    return SameObject(value)


def is_small_array(value: Any) -> bool:
    """True for a NumPy array that signatures and snapshots compare by value."""
    return isinstance(value, np.ndarray) and value.nbytes <= SMALL_ARRAY


def objects_in(image: Any) -> Iterator[Any]:
    """The objects that an image holds by identity."""
    waiting = [image]
    while waiting:
        current = waiting.pop()
        if isinstance(current, SameObject):
            yield current.value
        elif isinstance(current, tuple | frozenset):
            waiting += current


class SameObject:
    """A snapshot by identity: equal only to one of the very same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}>"


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Which parts of two snapshots differ, as readable paths."""
    if before == after:
        return
    both = isinstance(before, tuple) and isinstance(after, tuple) and len(before) == 2
    if both and len(after) == 2 and before[0] == after[0] == "dict":
        old, new = dict(before[1]), dict(after[1])
        for key in [*old, *(k for k in new if k not in old)]:
            if old.get(key) != new.get(key):
                inner = f"{path}.{key}" if path else str(key)
                yield from differences(old.get(key), new.get(key), inner)
        return
    yield path or "value"
