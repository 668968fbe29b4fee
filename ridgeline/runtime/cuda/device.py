"""The GPUs of this machine: properties, contexts, streams, memory.

Streams, memory, events, modules and graphs belong to the context of one device, and the driver
takes them only while that context is the calling thread's current one. So whatever is done on a
device begins with `activate`.

What is let go is not destroyed there and then: finalizers run anywhere, and CPython swallows an
interrupt that comes while one runs in Python. They only append to a deque, which is C code, and
`destroy_discarded` goes through it when the next such thing is made or memory is taken. Modules
have to wait until nothing runs that they hold (`unload_discarded`). What is still there when a
device is given up goes with its context.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import Any

from ridgeline.atomic import Block, Switch
from ridgeline.errors import DeviceError
from ridgeline.runtime.cuda.driver import MOST_PROGRAMS, Results, bindings, call, function, missing
from ridgeline.runtime.cuda.stream import Stream, call_on


class _Here(threading.local):
    """Thread-local state: the device whose context is current, and the chosen stream of each."""

    device: Device | None = None
    streams: Mapping[int, Stream] = MappingProxyType({})


_here = _Here()


@dataclass(frozen=True, slots=True)
class Properties:
    """What a GPU is, as the driver says."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    l2_cache_size: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    regs_per_multiprocessor: int
    max_threads_per_multi_processor: int
    warp_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    driver_version: int


_ATTRIBUTES = {
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "multi_processor_count": "MULTIPROCESSOR_COUNT",
    "l2_cache_size": "L2_CACHE_SIZE",
    "shared_memory_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "regs_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "max_threads_per_multi_processor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "warp_size": "WARP_SIZE",
    "clock_rate": "CLOCK_RATE",
    "memory_clock_rate": "MEMORY_CLOCK_RATE",
    "memory_bus_width": "GLOBAL_MEMORY_BUS_WIDTH",
}


def count() -> int:
    """How many GPUs can be used."""
    return 0 if missing() else int(call("cuDeviceGetCount"))


def opened(number: int) -> tuple[Any, Any]:
    """The driver's handle of a GPU, and its primary context, which other libraries use too."""
    handle = call("cuDeviceGet", number)
    return handle, call("cuDevicePrimaryCtxRetain", handle)


class Device:
    """One GPU; use `device(number)`, which gives each its one object."""

    def __init__(self, number: int) -> None:
        bindings()
        if number >= count():
            raise DeviceError(
                f"there is no device cuda:{number}: this machine has {count()}",
                help="ridgeline.cuda.device_count() says how many there are",
            )
        self.number = number
        self.name = f"cuda:{number}"
        self.handle, self.context = opened(number)
        # the only context there is stays current; among several, another library may change it
        self._only = count() == 1
        # a plan is enqueued whole before the next: they use the same scratch memory in turn
        self.enqueuing = threading.RLock()
        self.recent: deque[Results] = deque(maxlen=MOST_PROGRAMS)
        # handles that nobody holds any more, with the functions of the driver that destroy them
        self.discarded: deque[tuple[str, Any]] = deque()
        self.discarded_modules: deque[Any] = deque()
        self.main_stream = Stream(self)
        self.side_streams: dict[int, deque[Any]] = {}  # that programs asked for, by priority

    def activate(self) -> None:
        """Make the calls of this thread go to this device."""
        if not self._is_current():
            call("cuCtxSetCurrent", self.context)
            _here.device = self

    def visit(self) -> AbstractContextManager[Any]:
        """Make the calls of a block go to this device, and later ones where they went before."""
        return _STAYING if self._is_current() else _visiting(self)

    def destroy_discarded(self) -> None:
        """Destroy the streams, events and graphs that were let go."""
        if not self.discarded:
            return
        with self.visit():
            while self.discarded:
                try:
                    name, handle = self.discarded.popleft()
                except IndexError:  # another thread took it
                    return
                function(name)(handle)

    def unload_discarded(self, least: int = 1) -> None:
        """Unload the modules that were let go, if they are so many, when the device is at rest.

        A launch outlives its plan: it may wait in a stream when the last holder of its module goes.
        """
        if len(self.discarded_modules) < least or not self.enqueuing.acquire(blocking=False):
            return  # where a plan is enqueued or captured, the next one to load code does it
        try:
            unused = [self.discarded_modules.popleft() for _ in range(len(self.discarded_modules))]
            self.destroy_discarded()  # graphs of these functions
            with self.visit():
                self.synchronize()
                for module in unused:
                    function("cuModuleUnload")(module)
        finally:
            self.enqueuing.release()

    def _is_current(self) -> bool:
        return self._only and _here.device is self

    def entered(self) -> Stream:
        """The stream of this thread's work, whose calls go to this device from now on."""
        if not (self._only and _here.device is self):
            self.activate()
        return _here.streams.get(self.number, self.main_stream)

    @property
    def stream(self) -> Stream:
        """The stream on which this thread's work for the device goes."""
        return _here.streams.get(self.number, self.main_stream)

    @cached_property
    def properties(self) -> Properties:
        """What the driver says of the device."""
        names = bindings().CUdevice_attribute
        found: dict[str, Any] = {
            field: int(
                call(
                    "cuDeviceGetAttribute",
                    getattr(names, f"CU_DEVICE_ATTRIBUTE_{title}"),
                    self.handle,
                )
            )
            for field, title in _ATTRIBUTES.items()
        }
        title = call("cuDeviceGetName", 256, self.handle)
        text = title.decode() if isinstance(title, bytes) else str(title)
        return Properties(
            name=text.partition("\0")[0].strip(),
            total_memory=int(call("cuDeviceTotalMem", self.handle)),
            driver_version=int(call("cuDriverGetVersion")),
            **found,
        )

    @property
    def architecture(self) -> str:
        """What kernels are compiled for: `sm_90a` on Hopper, whose own instructions need the a."""
        facts = self.properties
        return f"sm_{facts.major}{facts.minor}{'a' if facts.major == 9 else ''}"

    def synchronize(self) -> None:
        """Wait until all work on the device is done."""
        call_on(self, "cuCtxSynchronize")

    def free_memory(self) -> tuple[int, int]:
        """Bytes that the driver has left, and all bytes of the device."""
        self.activate()
        free, total = call("cuMemGetInfo")
        return int(free), int(total)


_STAYING = nullcontext()


def _visiting(device: Device) -> Block:
    """A block whose calls go to a device; a context that the driver refuses fails in the first."""
    here = Switch(_here, device=device)
    push = map(function("cuCtxPushCurrent"), repeat(device.context))
    pop = map(operator.call, repeat(function("cuCtxPopCurrent")))
    return Block(zip(push, here.entering), zip(pop, here.leaving))


_devices: dict[int, Device] = {}
_opening = threading.Lock()


def device(number: int) -> Device:
    """The GPU with a number."""
    found = _devices.get(number)
    if found is None:
        with _opening:  # two threads must not get two
            found = _devices.get(number)
            if found is None:
                found = _devices[number] = Device(number)
    return found


def choosing(stream: Stream) -> Block:
    """A block in which this thread's work for a device goes to a stream."""
    return Switch(_here, streams={**_here.streams, stream.device.number: stream})
