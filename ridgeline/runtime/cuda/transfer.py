"""Copies between the host and a device, through pinned memory so that they run asynchronously.

What goes to the device is first copied into pinned memory, so the caller's array is free again at
once and the copy takes its place in the stream. What comes back waits for the stream.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.runtime.cuda.driver import bindings, call, function
from ridgeline.runtime.cuda.stream import Event, Stream, call_on
from ridgeline.runtime.memory import Pool
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device
    from ridgeline.runtime.cuda.memory import DeviceBuffer

CHUNK = 32 << 20  # of pinned memory that one copy uses at a time
_LARGEST = 256 << 20  # pinned memory kept for reuse


class Staging:
    """The pinned memory through which copies of one device pass."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.pool = Pool(self._map, self._unmap, limit=_LARGEST)
        self._travelling: deque[tuple[Event, int, int]] = deque()  # blocks that a copy still reads
        self._events: list[Event] = []  # to be recorded again

    def take(self, nbytes: int) -> tuple[int, int]:
        """A block, after taking back those whose copies are done."""
        while self._travelling:
            try:
                oldest = self._travelling.popleft()
            except IndexError:  # another thread took it
                break
            event, address, block = oldest
            if not event.query():
                self._travelling.appendleft(oldest)
                break
            self._events.append(event)
            self.pool.give_back(address, block)
        return self.pool.take(nbytes)

    def give_back_after(self, stream: Stream, address: int, block: int) -> None:
        """Take a block back when the stream has done what it has now."""
        try:
            event = self._events.pop()
        except IndexError:
            event = Event()
        event.record(stream)
        self._travelling.append((event, address, block))

    def _map(self, size: int) -> int:
        self._device.activate()
        return int(call("cuMemHostAlloc", size, 0))

    def _unmap(self, address: int, size: int) -> None:
        with self._device.visit():
            call("cuMemFreeHost", address)


@lru_cache(maxsize=64)
def staging(device: Device) -> Staging:
    """The pinned memory of a device."""
    return Staging(device)


def upload(array: Array, memory: DeviceBuffer, stream: Stream) -> None:
    """Copy a contiguous array to the device, in the stream's order."""
    start = array.__array_interface__["data"][0]
    for offset in range(0, array.nbytes, CHUNK):
        size = min(CHUNK, array.nbytes - offset)
        _upload(start + offset, memory.device_address + offset, size, stream)


def upload_small(data: bytes, address: int, stream: Stream) -> None:
    """Copy a few bytes to the device, in the stream's order."""
    _upload(data, address, len(data), stream)


def _upload(source: int | bytes, target: int, size: int, stream: Stream) -> None:
    pinned = staging(stream.device)
    address, block = pinned.take(size)
    ctypes.memmove(address, source, size)
    call_on(stream.device, "cuMemcpyHtoDAsync", target, address, size, stream.handle)
    pinned.give_back_after(stream, address, block)


def download(memory: DeviceBuffer, array: Array) -> None:
    """Copy from the device into a contiguous array; waits, and raises what failed until now."""
    from ridgeline.runtime.cuda.flags import wait

    stream = memory.stream.device.stream
    memory.used_on(stream)
    device, size, source = stream.device, array.nbytes, memory.device_address
    start = array.__array_interface__["data"][0]
    if size <= CHUNK:
        pinned = staging(device)
        address, block = pinned.take(size)
        if size:
            call_on(device, "cuMemcpyDtoHAsync", address, source, size, stream.handle)
        try:
            wait(stream)
            ctypes.memmove(start, address, size)
        finally:
            pinned.pool.give_back(address, block)
    else:
        call_on(device, "cuMemcpyDtoHAsync", start, source, size, stream.handle)
        wait(stream)


def copy_within(source: DeviceBuffer, target: DeviceBuffer, stream: Stream) -> None:
    """Copy device memory, also from another device, in the order of a stream of the target's."""
    source.used_on(stream)
    here, there = stream.device, source.stream.device
    to, begin, size = target.device_address, source.device_address, source.nbytes
    if not size:
        return
    if here is there:
        call_on(here, "cuMemcpyAsync", to, begin, size, stream.handle)
        return
    reach(here, there)
    call_on(here, "cuMemcpyPeerAsync", to, here.context, begin, there.context, size, stream.handle)


def copying(source: DeviceBuffer, target: DeviceBuffer, stream: Stream) -> Callable[[], Any]:
    """The call of the driver that copies memory of a stream's device, in its order."""
    source.used_on(stream)
    places = target.device_address, source.device_address
    return partial(function("cuMemcpyAsync"), *places, source.nbytes, stream.handle)


@lru_cache(maxsize=4096)
def reach(here: Device, there: Device) -> bool:
    """Let copies of one device read another's memory where the two are connected.

    Where they are not, the driver copies through the host.
    """
    connected = bool(call("cuDeviceCanAccessPeer", here.handle, there.handle))
    if connected:
        let_read(here, there)
    return connected


def let_read(here: Device, there: Device) -> None:
    """Map the memory of one device for another's copies."""
    names = bindings()
    access = names.CUmemAccessDesc()
    access.location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = int(here.handle)
    access.flags = names.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    call("cuMemPoolSetAccess", call("cuDeviceGetDefaultMemPool", there.handle), [access], 1)


def pinned_array(nbytes: int, device: Device) -> Any:
    """Pinned host memory as bytes, given back when the array is let go."""
    return np.asarray(_Pinned(nbytes, staging(device)))


class _Pinned:
    """A pinned block behind a NumPy array."""

    __slots__ = ("__array_interface__", "__del__")
    __del__: Callable[[], object]

    def __init__(self, nbytes: int, pinned: Staging) -> None:
        block = pinned.take(nbytes)
        self.__del__ = partial(pinned.pool.returned, block)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (nbytes,),
            "data": (block[0], False),
        }
