"""Errors that kernels find: flags copied to the host behind the work, seen on the next wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ridgeline.runtime.cuda.driver import call
from ridgeline.runtime.cuda.memory import DeviceBuffer
from ridgeline.runtime.cuda.stream import Event, Stream
from ridgeline.runtime.cuda.transfer import pinned_array
from ridgeline.scalars import Array

Report = Callable[[], None]

_MOST = 64
_pending: dict[int, deque[tuple[Event, Array, Report]]] = {}


def watch(flag: DeviceBuffer, stream: Stream, report: Report) -> None:
    """Run `report`, which raises, if the flag is found set when the stream gets there."""
    stream.device.activate()
    seen = pinned_array(max(flag.nbytes, 1), stream.device)
    call("cuMemcpyDtoHAsync", seen.__array_interface__["data"][0], flag.address, 1, stream.handle)
    waiting = _pending.setdefault(id(stream), deque())
    waiting.append((stream.record_event(), seen, report))
    if len(waiting) > _MOST:
        _look(waiting, wait=len(waiting) > 4 * _MOST)


def raise_pending(stream: Stream) -> None:
    """Raise the first error among those that the stream has reached."""
    waiting = _pending.get(id(stream))
    if waiting:
        _look(waiting, wait=False)


def _look(waiting: deque[tuple[Event, Array, Report]], wait: bool) -> None:
    while waiting:
        try:
            event, seen, report = waiting.popleft()
        except IndexError:  # another thread took it
            return
        if not wait and not event.query():
            waiting.appendleft((event, seen, report))
            return
        event.synchronize()
        wait = False
        if seen[0]:
            if waiting:
                waiting[-1][0].synchronize()  # copies into memory that is let go now
            waiting.clear()
            report()
