"""Which event encloses which on a thread, and which is innermost at a moment."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ridgeline.profile.trace.model import Floats, Ints


class Threaded(Protocol):
    """A table of events on threads, sorted by start, longest first."""

    @property
    def start(self) -> Floats: ...
    @property
    def end(self) -> Floats: ...
    @property
    def thread(self) -> Ints: ...


class Nesting:
    """Parents of the events of a table, and lookups of the innermost event at a time."""

    def __init__(self, table: Threaded) -> None:
        self._end = table.end
        self.parent: Ints = np.full(len(table.start), -1, dtype=np.int64)
        self._rows: dict[int, Ints] = {}
        self._starts: dict[int, Floats] = {}
        for thread in np.unique(table.thread):
            rows = np.flatnonzero(table.thread == thread)
            self._rows[int(thread)] = rows
            self._starts[int(thread)] = table.start[rows]
            self._link(rows, table)

    def _link(self, rows: Ints, table: Threaded) -> None:
        """One sweep with a stack: an event's parent is the last one still open."""
        stack: list[tuple[float, int]] = []
        starts, ends = table.start[rows].tolist(), table.end[rows].tolist()
        for row, start, end in zip(rows.tolist(), starts, ends):
            while stack and stack[-1][0] <= start:
                stack.pop()
            if stack:
                self.parent[row] = stack[-1][1]
            stack.append((end, row))

    def innermost(self, thread: int, time: float) -> int:
        """The innermost event of the thread that covers the time, or -1."""
        starts = self._starts.get(thread)
        if starts is None:
            return -1
        position = int(np.searchsorted(starts, time, side="right")) - 1
        row = int(self._rows[thread][position]) if position >= 0 else -1
        while row >= 0 and self._end[row] < time:
            row = int(self.parent[row])
        return row

    def chain(self, row: int) -> list[int]:
        """The event and all that enclose it, innermost first."""
        found = []
        while row >= 0:
            found.append(row)
            row = int(self.parent[row])
        return found
