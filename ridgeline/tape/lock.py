"""What deferred calls of a thread, and others that look at their results, wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

T = TypeVar("T")


class Lock:
    """Held by whoever defers calls of a thread, or gives cells of its runs their nodes.

    One run may take over another, so that all runs of a thread share one. Calls that are matched
    by machine code do not hold it, as nothing comes between their parts, but look whether somebody
    is `leaving`.
    """

    __slots__ = ("held", "leaving")
    held: AbstractContextManager[Any]
    leaving: list[None]  # by each that gives cells their nodes

    def __init__(self) -> None:
        self.held, self.leaving = threading.RLock(), []

    def alone(self, work: Callable[[], T]) -> T:
        """Do something while no calls are deferred, in either form."""
        with self.held:
            others = len(self.leaving)
            try:
                self.leaving.append(None)
                return work()
            finally:
                del self.leaving[others:]
