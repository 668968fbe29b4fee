"""What was used last, up to so many things and so much weight; the rest is forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A table of the last used. Its users take care that one thread at a time changes it."""

    def __init__(self, most: int, most_weight: int) -> None:
        self.most, self.most_weight = most, most_weight
        self.weight = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """What is kept under a key, which counts as used now."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def keep(self, key: K, value: V, weight: int) -> list[V]:
        """Keep a value; gives those that are forgotten for it. The last one always stays."""
        _, before = self._entries.pop(key, (None, 0))
        self.weight += weight - before
        self._entries[key] = value, weight
        forgotten = []
        while len(self._entries) > 1 and (
            len(self._entries) > self.most or self.weight > self.most_weight
        ):
            _, (oldest, its_weight) = self._entries.popitem(last=False)
            self.weight -= its_weight
            forgotten.append(oldest)
        return forgotten

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.weight = 0

    def __len__(self) -> int:
        return len(self._entries)
