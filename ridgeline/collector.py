"""Python's cyclic garbage collector, paused while a graph is captured and compiled.

These stages make many objects that are kept and hardly any cycles: every look at all of them costs
time and finds nothing.
"""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType


class _Paused:
    """`with paused:` no automatic collection in any thread; the last one to leave turns it on."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def _forked(self) -> None:
        """The threads that would have turned collection on again are not in the child."""
        if self._inside and self._was_on:
            gc.enable()
        self._begin()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside = max(self._inside - 1, 0)  # 0 where this thread forked inside
            if self._inside == 0 and self._was_on:
                gc.enable()


paused = _Paused()
