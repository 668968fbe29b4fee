"""Streams and events: work in order on each stream, order between streams by events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ridgeline.errors import DeviceError
from ridgeline.runtime.cuda.driver import (
    DeviceFailure,
    bindings,
    blamed,
    call,
    failure,
    function,
)

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device

_NON_BLOCKING = 1
_NO_TIMING = 2
_NOT_READY = 600


class Stream:
    """A queue of work on one device."""

    __slots__ = ("__del__", "__weakref__", "device", "handle")
    __del__: Callable[[], object]

    def __init__(self, device: Device, priority: int = 0) -> None:
        device.activate()
        device.destroy_discarded()
        self.device = device
        self.handle: Any = call("cuStreamCreateWithPriority", _NON_BLOCKING, priority)
        self.__del__ = partial(device.discarded.append, ("cuStreamDestroy", self.handle))

    @classmethod
    def adopted(cls, device: Device, address: int) -> Stream:
        """The stream of another library by the driver's handle; it stays that library's."""
        made = cls.__new__(cls)
        made.device = device
        made.handle = bindings().CUstream(address)
        return made

    @property
    def address(self) -> int:
        """The driver's handle as a number, for libraries."""
        return int(self.handle)

    def synchronize(self) -> None:
        """Wait until everything enqueued so far is done."""
        call_on(self.device, "cuStreamSynchronize", self.handle)

    def query(self) -> bool:
        """True if everything enqueued so far is done."""
        return _is_done(self.device, "cuStreamQuery", self.handle)

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when everything enqueued so far is done."""
        made = event or Event()
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """Let later work of this stream wait for an event, also one of another device."""
        if event.device is not None:
            call_on(self.device, "cuStreamWaitEvent", self.handle, event.handle, 0)

    def wait_stream(self, other: Stream) -> None:
        """Let later work of this stream wait for what another has now."""
        self.wait_event(other.record_event())

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name} at {self.address:#x}>"


class Event:
    """A point in a stream; it belongs to the device of the stream that it was recorded on."""

    __slots__ = ("__del__", "__weakref__", "_flags", "device", "handle")
    __del__: Callable[[], object]

    def __init__(self, enable_timing: bool = False) -> None:
        self._flags = 0 if enable_timing else _NO_TIMING
        self.handle: Any = None
        self.device: Device | None = None  # none before it is recorded

    def record(self, stream: Stream) -> None:
        """Put the event behind what the stream has now."""
        if self.device is not stream.device:
            if self.device is not None:
                self.__del__()
            self._make(stream.device)
        call_on(stream.device, "cuEventRecord", self.handle, stream.handle)

    def _make(self, device: Device) -> None:
        device.destroy_discarded()
        self.handle = call_on(device, "cuEventCreate", self._flags)
        self.__del__ = partial(device.discarded.append, ("cuEventDestroy", self.handle))
        self.device = device

    def query(self) -> bool:
        """True if the event has happened, or was never recorded."""
        return self.device is None or _is_done(self.device, "cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait for the event, if it was recorded."""
        if self.device is not None:
            call_on(self.device, "cuEventSynchronize", self.handle)

    def wait(self, stream: Stream) -> None:
        """Let later work of a stream wait for the event."""
        stream.wait_event(self)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds to a later event; both must have been made to be timed."""
        if self.device is None or self.device is not end.device:
            raise DeviceError("time passes between two events recorded on one device")
        self.device.activate()
        return float(call("cuEventElapsedTime", self.handle, end.handle))


def call_on(device: Device, name: str, *arguments: Any) -> Any:
    """Call a function of the driver for a device; what failed meanwhile names the last lines."""
    device.activate()
    try:
        return call(name, *arguments)
    except DeviceFailure as error:
        raise blamed(error, device.recent) from None


def _is_done(device: Device, name: str, handle: Any) -> bool:
    """Whether what is asked about has happened; an error where it never will."""
    device.activate()
    (status,) = function(name)(handle)
    if status and int(status) != _NOT_READY:
        error = failure(name, status)
        raise blamed(error, device.recent) if isinstance(error, DeviceFailure) else error
    return not status
