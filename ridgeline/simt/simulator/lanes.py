"""A set of threads that execute an instruction together."""

from __future__ import annotations

from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[np.int64]]
AnyArray = np.ndarray[Any, Any]


class Lanes:
    """Threads by number, ascending; `select` picks their elements out of an array of all."""

    __slots__ = ("count", "ids", "select")

    def __init__(self, ids: IntArray, everyone: int) -> None:
        self.ids = ids
        self.count = len(ids)
        # all threads: a slice takes no copy
        self.select: Any = slice(None) if self.count == everyone else ids

    def where(self, mask: AnyArray, everyone: int) -> Lanes:
        """Those of the threads for which a mask holds."""
        return Lanes(self.ids[mask], everyone)


def spread(value: Any, count: int) -> AnyArray:
    """A value as an array with an element for each thread."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    return np.broadcast_to(value, (count,))
