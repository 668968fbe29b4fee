"""Errors that kernels find: a byte of the host for each stream, which they set and a wait looks at.

A run that finds nothing wrong touches the byte no more than the host does: there is no copy and no
event for it, only a note of how to tell the line. Every so many runs an event says how far the
stream has come, so that what the notes keep alive is let go.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ridgeline.errors import IndexRangeError
from ridgeline.runtime.cuda.stream import Event, Stream
from ridgeline.runtime.cuda.transfer import pinned_array

Report = Callable[[], None]

_RUNS = 64  # that one event stands for
_MOST_EVENTS = 4


class Watch:
    """The byte of one stream, and its runs that may yet turn out to be wrong."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._byte = pinned_array(1, stream.device)
        self._byte[0] = 0
        # kernels know pinned memory by the host's address
        self.address: int = self._byte.__array_interface__["data"][0]
        self._lock = threading.RLock()  # a report waits for the stream too
        self._older: deque[tuple[Event, list[Report]]] = deque()
        self._latest: list[Report] = []

    def add(self, report: Report) -> None:
        """Note a run; `report` raises if it is the one that was wrong."""
        with self._lock:
            self._latest.append(report)
            if len(self._latest) == _RUNS:
                self._older.append((self._stream.record_event(), self._latest))
                self._latest = []
                self._let_go()

    def wait(self) -> None:
        """Wait for the stream; raise the first error of the runs noted until now."""
        with self._lock:
            reports = [report for _, some in self._older for report in some] + self._latest
            self._older.clear()
            self._latest = []
            self._stream.synchronize()
            self._look(reports)

    def _let_go(self) -> None:
        """Forget the runs that are done, after waiting for the oldest of too many."""
        while self._older:
            event, _ = self._older[0]
            if len(self._older) > _MOST_EVENTS:
                event.synchronize()
            elif not event.query():
                return
            if self._byte[0]:
                self.wait()  # so that no run that is under way sets the byte again
            self._older.popleft()

    def _look(self, reports: list[Report]) -> None:
        if self._byte[0]:
            self._byte[0] = 0
            for report in reports:
                report()
            raise IndexRangeError("an index is out of range")


_watches: dict[int, Watch] = {}


def watch(stream: Stream) -> Watch:
    """What a stream's kernels set, and where its runs are noted."""
    found = _watches.get(id(stream))
    return _watches.setdefault(id(stream), Watch(stream)) if found is None else found


def wait(stream: Stream) -> None:
    """Wait until everything enqueued so far is done; raise the first error that kernels found."""
    found = _watches.get(id(stream))
    if found is None:
        stream.synchronize()
    else:
        found.wait()
