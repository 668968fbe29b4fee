"""Streams and events: work in order on each stream, order between streams by events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ridgeline.runtime.cuda.driver import call, function

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device

_NON_BLOCKING = 1
_NO_TIMING = 2
_NOT_READY = 600


class Stream:
    """A queue of work on one device."""

    def __init__(self, device: Device, priority: int = 0) -> None:
        device.activate()
        self.device = device
        self.handle: Any = call("cuStreamCreateWithPriority", _NON_BLOCKING, priority)

    @property
    def address(self) -> int:
        """The driver's handle as a number, for libraries."""
        return int(self.handle)

    def synchronize(self) -> None:
        """Wait until everything enqueued so far is done."""
        self.device.activate()
        call("cuStreamSynchronize", self.handle)

    def query(self) -> bool:
        """True if everything enqueued so far is done."""
        self.device.activate()
        return int(function("cuStreamQuery")(self.handle)[0]) != _NOT_READY

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when everything enqueued so far is done."""
        made = event or Event()
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """Let later work of this stream wait for an event."""
        self.device.activate()
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def wait_stream(self, other: Stream) -> None:
        """Let later work of this stream wait for what another has now."""
        self.wait_event(other.record_event())

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name} at {self.address:#x}>"


class Event:
    """A point in a stream."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._flags = 0 if enable_timing else _NO_TIMING
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """The driver's handle, made when the event is first recorded."""
        if self._handle is None:
            self._handle = call("cuEventCreate", self._flags)
        return self._handle

    def record(self, stream: Stream) -> None:
        """Put the event behind what the stream has now."""
        stream.device.activate()
        call("cuEventRecord", self.handle, stream.handle)

    def query(self) -> bool:
        """True if the event has happened."""
        return int(function("cuEventQuery")(self.handle)[0]) != _NOT_READY

    def synchronize(self) -> None:
        """Wait for the event."""
        call("cuEventSynchronize", self.handle)

    def wait(self, stream: Stream) -> None:
        """Let later work of a stream wait for the event."""
        stream.wait_event(self)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds to a later event; both must have been made to be timed."""
        return float(call("cuEventElapsedTime", self.handle, end.handle))

    def __del__(
        self,
        destroy: Callable[[str], Any] = function,
        ending: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        if self._handle is not None and not ending():
            destroy("cuEventDestroy")(self._handle)
