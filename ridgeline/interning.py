"""Hash-consing: structurally equal immutable objects are one object.

Both IRs use it. Because children are already unique, a key compares them by identity, so making
a node costs one dictionary look-up whatever the size of what hangs below it.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ridgeline.weak import WeakTable

T = TypeVar("T", bound="Interned")


class Interned:
    """Base of hash-consed classes: `make` returns the one object with these fields."""

    __slots__ = ("__weakref__",)
    _table: ClassVar[WeakTable[Any]] = WeakTable()

    @classmethod
    def make(cls: type[T], *fields: Any) -> T:
        """The unique instance whose slots hold `fields`, in the order of `__slots__`."""
        key = (cls, *fields)
        found: T | None = Interned._table.get(key)
        if found is None:
            made = object.__new__(cls)
            for slot, value in zip(cls.__slots__, fields):
                object.__setattr__(made, slot, value)
            found = Interned._table.keep(key, made)
        assert found is not None
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: Any) -> T:
        return self
