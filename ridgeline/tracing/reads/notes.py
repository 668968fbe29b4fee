"""Reads: what a traced function saw of an object, and how to see it again.

A read is an object, a way to look at it, and what was found there. Values are compared by identity
first; numbers and texts that are other objects, by type and content.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from operator import is_
from struct import pack
from typing import Any, TypeAlias

import numpy as np

MISSING = object()  # found where there is nothing
SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_FLOATING = (float, complex)


@dataclass(slots=True)
class Read:
    """Something that was looked at: an owner, a way to look (see `LOOKS`), and what was found."""

    owner: Any
    look: str
    key: Any
    value: Any
    text: str

    def now(self, owner: Any) -> Any:
        """What is found at an owner now."""
        try:
            return LOOKS[self.look](owner, self.key)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError, NameError):
            return MISSING


def same(now: Any, before: Any) -> bool:
    """True for the same object, or an equal number or text of the same type."""
    if now is before:
        return True
    kind = type(now)
    if kind is not type(before) or kind not in SCALARS:
        return False
    if kind in _FLOATING:  # -0.0 is not 0.0, and NaN is itself
        a, b = complex(now), complex(before)
        return pack("dd", a.real, a.imag) == pack("dd", b.real, b.imag)
    return bool(now == before)


def same_all(now: Iterable[Any], before: tuple[Any, ...]) -> bool:
    """True where the elements are the same, one by one."""
    if isinstance(now, Sized) and len(now) != len(before):
        return False
    found = tuple(now)
    if len(found) != len(before):
        return False
    return all(map(is_, found, before)) or all(map(same, found, before))


Table: TypeAlias = tuple[tuple[str, ...], tuple[Any, ...]]  # the names in a dict, and the values


def same_table(owner: dict[str, Any], before: Table) -> bool:
    """True where a dict has the very values that it had, under the same names."""
    names, values = before
    return tuple(owner) == names and all(map(is_, owner.values(), values))


def _contents(owner: Any, _: Any) -> Any:
    try:
        return owner.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def entry_of_class(kind: type, name: str) -> Any:
    """What a class has under a name, its own or inherited, as it is stored."""
    for base in kind.__mro__:
        found = base.__dict__.get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def _memory(owner: Any, _: Any) -> Any:
    """The content of an array, with all that it means."""
    if isinstance(owner, np.ndarray):
        form = (owner.dtype.str, owner.shape, owner.strides, owner.flags.writeable)
        return (*form, owner.tobytes())
    if isinstance(owner, array):
        return (owner.typecode, owner.tobytes())
    return bytes(owner)


def _static(owner: Any, name: str) -> Any:
    """An attribute of an object without running code of its class."""
    found = entry_of_class(type(owner), name)
    return _own(owner, name) if found is MISSING else found


def _own(owner: Any, name: str) -> Any:
    return (own_table(owner) or {}).get(name, MISSING)


def own_table(owner: Any) -> dict[str, Any] | None:
    """The table of an object's own attributes, which no code of its class is asked for."""
    try:
        table = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return table if isinstance(table, dict) else None


# How the owner of a read is looked at.
LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "key": lambda owner, key: owner.get(key, MISSING),  # of a dict
    "item": lambda owner, key: owner[key],
    "attribute": getattr,
    "variable": lambda owner, name: getattr(owner, name, MISSING),  # of a thread
    "own": _own,  # an instance's own attribute, where its class has a method
    "class entry": entry_of_class,
    "static": _static,
    "type": lambda owner, _: type(owner),
    "cell": _contents,
    "length": lambda owner, _: len(owner),
    "elements": lambda owner, _: tuple(owner),
    "keys": lambda owner, _: tuple(owner),
    "values": lambda owner, _: tuple(owner.values()),
    "table": lambda owner, _: (tuple(owner), tuple(owner.values())),  # it hardly ever changes
    "memory": _memory,
    "call": lambda owner, key: owner(*key[0], **dict(key[1])),
    "context": lambda owner, key: owner.get(*key),  # of a context variable
    "identity": lambda owner, _: owner,
}
ALL = ("elements", "keys", "values")  # looks whose value is a tuple of what was found
CONTAINERS = (list, dict, set, tuple, frozenset, deque, bytearray, array, np.ndarray)
