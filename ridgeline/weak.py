"""Tables that do not keep their members alive, or not for long; hash-consing on top of them, and
structural keys.

The containers of the standard library forget a member in a function written in Python. CPython runs
it wherever the last reference happens to go, and swallows the interrupt that comes while it runs.
Here the callback of every weak reference is C code: `dict.pop` with the id of the member, which no
two that are alive share, or `deque.append`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from math import inf
from threading import RLock
from typing import Any, ClassVar, Generic, TypeVar
from weakref import ref

from ridgeline.atomic import at_fork

T = TypeVar("T")
V = TypeVar("V")


class WeakSet(Generic[T]):
    """Objects by identity."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[int, ref[T]] = {}

    def add(self, member: T) -> None:
        """Take an object in."""
        key = id(member)
        self._members[key] = ref(member, partial(self._members.pop, key))

    def discard(self, member: T) -> None:
        """Leave an object out."""
        self._members.pop(id(member), None)

    def __contains__(self, member: object) -> bool:
        return id(member) in self._members

    def __bool__(self) -> bool:
        return bool(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[T]:
        found = [reference() for reference in list(self._members.values())]
        return iter([member for member in found if member is not None])


class WeakMap(Generic[T, V]):
    """Values by the identity of objects."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[int, tuple[ref[T], V]] = {}

    def __setitem__(self, key: T, value: V) -> None:
        identity = id(key)
        self._values[identity] = ref(key, partial(self._values.pop, identity)), value

    def __getitem__(self, key: T) -> V:
        return self._values[id(key)][1]

    def __contains__(self, key: object) -> bool:
        return id(key) in self._values

    def get(self, key: T) -> V | None:
        """The value that was kept for an object."""
        found = self._values.get(id(key))
        return None if found is None else found[1]


class _Entry(ref[T]):
    """A weak reference that knows its key."""

    __slots__ = ("key",)
    key: Hashable


class WeakTable(Generic[T]):
    """Objects by key: the first one stays as long as it lives.

    A key may take Python to hash, so callbacks only note which entries are dead; they are forgotten
    when the next object comes in.
    """

    __slots__ = ("_dead", "_entries", "_lock")

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry[T]] = {}
        self._dead: deque[_Entry[T]] = deque()
        self._lock = RLock()  # a finalizer that a collection runs inside may come back here

    def get(self, key: Hashable) -> T | None:
        """The object under a key."""
        entry = self._entries.get(key)
        return None if entry is None else entry()

    def keep(self, key: Hashable, made: T) -> T:
        """The object under a key: the one that another thread was faster to keep, or this one."""
        with self._lock:
            while self._dead:
                gone = self._dead.popleft()
                if self._entries.get(gone.key) is gone:
                    del self._entries[gone.key]
            found = self.get(key)
            if found is not None:
                return found
            entry = _Entry(made, self._dead.append)
            entry.key = key
            self._entries[key] = entry
            return made

    def __len__(self) -> int:
        return len(self._entries) - len(self._dead)


# ---- hash-consing: structurally equal immutable objects are one object ---------------------------
# Both IRs use it. Because children are already unique, a key compares them by identity, so making
# a node costs one dictionary look-up whatever the size of what hangs below it.


Instance = TypeVar("Instance", bound="Interned")


class Interned:
    """Base of hash-consed classes: `make` returns the one object with these fields."""

    __slots__ = ("__weakref__",)
    _table: ClassVar[WeakTable[Any]] = WeakTable()

    @classmethod
    def make(cls: type[Instance], *fields: Any) -> Instance:
        """The unique instance whose slots hold `fields`, in the order of `__slots__`."""
        key = (cls, *fields)
        found: Instance | None = Interned._table.get(key)
        if found is None:
            made = object.__new__(cls)
            for slot, value in zip(cls.__slots__, fields):
                object.__setattr__(made, slot, value)
            found = Interned._table.keep(key, made)
        assert found is not None
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __copy__(self: Instance) -> Instance:
        return self

    def __deepcopy__(self: Instance, memo: Any) -> Instance:
        return self


# ---- structural keys: equal for what is built alike ----------------------------------------------


class Structure:
    """How something is built: rows of ops, attributes and numbers. Compared by value, hashed once.

    Its text is complete, so that a fingerprint of it finds on disk what another process kept.
    """

    __slots__ = ("_hash", "_rows")

    def __init__(self, rows: Iterable[object]) -> None:
        self._rows = tuple(rows)
        self._hash = hash(self._rows)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._rows == other._rows

    def __repr__(self) -> str:
        return repr(self._rows)


def fingerprint(text: str | bytes, size: int = 16) -> str:
    """A hash of a text in hexadecimal digits, two for each byte; the same in every process."""
    return blake2b(text if isinstance(text, bytes) else text.encode(), digest_size=size).hexdigest()


# ---- what was used last, up to so many things and so much weight; the rest is forgotten ----------


Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")


# One thread at a time is in any of these tables: comparing keys may run Python, and an OrderedDict
# that another thread changes meanwhile ends the process. A child starts with a free lock.
_tables = RLock()


def _after_fork() -> None:
    global _tables
    _tables = RLock()


at_fork(after_in_child=_after_fork)


class Recent(Generic[Key, Kept]):
    """A table of the last used."""

    def __init__(self, most: int, most_weight: float = inf) -> None:
        self.most, self.most_weight = most, most_weight
        self.weight = 0
        # with each the key as it is kept, which is found again without comparing
        self._entries: OrderedDict[Key, tuple[Key, Kept, int]] = OrderedDict()

    def get(self, key: Key) -> Kept | None:
        """What is kept under a key, which counts as used now."""
        with _tables:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(found[0])
            return found[1]

    def keep(self, key: Key, value: Kept, weight: int = 1) -> list[Kept]:
        """Keep a value; gives those that are forgotten for it. The last one always stays."""
        forgotten = []
        with _tables:
            before = self._entries.pop(key, None)
            self.weight += weight - (before[2] if before else 0)
            self._entries[key] = key, value, weight
            while len(self._entries) > 1 and (
                len(self._entries) > self.most or self.weight > self.most_weight
            ):
                _, (_, oldest, its_weight) = self._entries.popitem(last=False)
                self.weight -= its_weight
                forgotten.append(oldest)
        return forgotten

    def clear(self) -> None:
        """Forget all."""
        with _tables:
            self._entries.clear()
            self.weight = 0

    def __len__(self) -> int:
        return len(self._entries)
