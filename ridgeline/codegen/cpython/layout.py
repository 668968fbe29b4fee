"""Where the objects of a class with `__slots__` keep what is in them, found by looking."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any

WORD = 8
TYPE = WORD  # of any object: the reference count comes first, then the type


def check_layout() -> None:
    """Raise where objects do not lie in memory as compiled functions take it."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)
    samples: tuple[object, ...] = (0, "", (), [], {}, 0.5, None, object())
    for unlike, what in (
        (sys.implementation.name != "cpython", "an interpreter other than CPython"),
        (not gil(), "a Python without a global lock"),
        (ctypes.sizeof(ctypes.c_void_p) != WORD, f"pointers of other than {8 * WORD} bits"),
        (sys.byteorder != "little", "numbers that begin with their highest byte"),
        (hasattr(sys, "gettotalrefcount"), "a Python that counts all references"),
    ):
        if unlike:
            raise LayoutError(f"machine code of functions is not made for {what}")
    if any(_word(id(sample) + TYPE) != id(type(sample)) for sample in samples):
        raise LayoutError("objects do not begin with a count and a type")


def offsets(kind: type) -> Mapping[str, int]:
    """The places of all slots in an object of a class, in bytes from its start."""
    made: Any = object.__new__(kind)
    found: dict[str, int] = {}
    for base in reversed(kind.__mro__):
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType):
                found[name] = _offset(made, slot)
    return found


def _offset(made: Any, slot: MemberDescriptorType) -> int:
    """Where a slot of an object lies: the one word that changes with it."""
    before = _words(made)
    marker = object()
    slot.__set__(made, marker)
    after = _words(made)
    slot.__delete__(made)
    changed = [at for at, (old, new) in enumerate(zip(before, after)) if old != new]
    if len(changed) != 1 or after[changed[0]] != id(marker) or _words(made) != before:
        raise LayoutError(f"{type(made).__name__}.{slot.__name__} is not found in its object")
    return changed[0] * WORD


class LayoutError(Exception):
    """Objects do not lie in memory as they do in the Pythons that are known."""


def _words(made: Any) -> list[int]:
    """An object's memory, but for its count of references."""
    count = type(made).__basicsize__ // WORD
    return [0, *(_word(id(made) + at * WORD) for at in range(1, count))]


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value
