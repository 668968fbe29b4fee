"""Columns that grow while a file is read: plain C arrays, a few dozen bytes an event."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item", bound=Hashable)


class Interner(Generic[Item]):
    """Gives equal items the same small number."""

    def __init__(self) -> None:
        self._numbers: dict[Item, int] = {}

    def __call__(self, item: Item) -> int:
        return self._numbers.setdefault(item, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def items(self) -> tuple[Item, ...]:
        """All items, in order of their numbers."""
        return tuple(self._numbers)


class Columns:
    """Rows of numbers stored by column: start, duration, then integers by their width."""

    def __init__(self, integers: str, floats: int = 2) -> None:
        """`integers` has one letter a column: `i` for 32 bits, `q` for 64."""
        self.floats = tuple(array("d") for _ in range(floats))
        self.integers = tuple(array(width) for width in integers)

    def add(self, start: float, duration: float, *integers: int) -> None:
        """Append one row."""
        self.floats[0].append(start)
        self.floats[1].append(duration)
        for column, value in zip(self.integers, integers):
            column.append(value)

    def __len__(self) -> int:
        return len(self.floats[0])

    def starts(self) -> NDArray[np.float64]:
        """A copy of the starts, so that the columns can still grow."""
        return np.array(self.floats[0], dtype=np.float64)

    def sorted(
        self, low: float, high: float
    ) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
        """Start and end relative to `low`, then the other columns; by start, longest first.

        Rows that start outside [low, high] are dropped. Takes the columns: a large trace is never
        held twice.
        """
        start = np.frombuffer(self.floats[0], dtype=np.float64) - low
        duration = np.frombuffer(self.floats[1], dtype=np.float64)
        order = np.lexsort((-duration, start))
        order = order[(start[order] >= 0) & (start[order] <= high - low)]
        start, duration = start[order], duration[order]
        more = [np.frombuffer(column, dtype=np.float64)[order] for column in self.floats[2:]]
        whole = [np.frombuffer(column, dtype=column.typecode)[order] for column in self.integers]
        self.floats, self.integers = (), ()
        return [start, start + duration, *more], whole
