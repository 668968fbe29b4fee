"""Errors that kernels find: each stream has a byte of host memory, which they set.

A run that finds nothing wrong touches the byte no more than the host does: there is no copy and no
event for it, only a note of how to tell the line. Every so many runs, or so many bytes that their
notes keep alive, an event says how far the stream has come, so that what is done is let go.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ridgeline.errors import IndexRangeError
from ridgeline.runtime.cuda.pinned import pinned_array
from ridgeline.runtime.cuda.stream import Event, Stream

Report = Callable[[], None]

_RUNS = 64  # that one event stands for
_BYTES = 64 << 20  # that their notes keep alive, unless one run's do
_MOST_EVENTS = 4


class ErrorFlag:
    """The byte of one stream, and its runs that may yet turn out to be wrong."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._byte = pinned_array(1, stream.device)
        self._byte[0] = 0
        # kernels know pinned memory by the host's address
        self.device_address: int = self._byte.__array_interface__["data"][0]
        self._lock = threading.Lock()  # no report runs under it: reports wait for other streams
        self._older: deque[tuple[Event, list[Report]]] = deque()
        self._latest: list[Report] = []
        self._bytes = 0  # that the latest keep alive

    def make_room(self) -> None:
        """Let go of runs that are done, or raise what was wrong, before the next run writes."""
        with self._lock:
            if len(self._latest) < _RUNS and self._bytes < _BYTES:
                return
            self._older.append((self._stream.record_event(), self._latest))
            self._latest, self._bytes = [], 0
            wrong = self._let_go()
        if wrong:
            self.wait()  # so that no run that is under way sets the byte again

    def look(self) -> None:
        """Raise what is known to be wrong by now; nothing is waited for where nothing is."""
        if self._byte[0]:
            self.wait()

    def add(self, report: Report, nbytes: int = 0) -> None:
        """Note a run; `report`, which keeps so much alive, raises if it is the one to blame."""
        with self._lock:
            self._latest.append(report)
            self._bytes += nbytes

    def wait(self) -> None:
        """Wait for the stream; raise the first error of the runs noted until now."""
        with self._lock:
            reports = [report for _, some in self._older for report in some] + self._latest
            self._older.clear()
            self._latest, self._bytes = [], 0
            self._stream.synchronize()
            wrong = bool(self._byte[0])
            self._byte[0] = 0
        if wrong:
            for report in reports:
                report()
            raise IndexRangeError("an index is out of range")

    def _let_go(self) -> bool:
        """Forget the runs that are done, waiting for the oldest of too many; True if wrong."""
        while self._older:
            event, _ = self._older[0]
            if len(self._older) > _MOST_EVENTS:
                event.synchronize()
            elif not event.query():
                break
            if self._byte[0]:
                return True
            self._older.popleft()
        return False


_watches: dict[int, ErrorFlag] = {}


def watch(stream: Stream) -> ErrorFlag:
    """What a stream's kernels set, and where its runs are noted."""
    found = _watches.get(id(stream))
    return _watches.setdefault(id(stream), ErrorFlag(stream)) if found is None else found


def wait(stream: Stream) -> None:
    """Wait until everything enqueued so far is done; raise the first error that kernels found."""
    found = _watches.get(id(stream))
    if found is None:
        stream.synchronize()
    else:
        found.wait()
