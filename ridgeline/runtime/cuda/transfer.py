"""Copies between the host and a device, through pinned memory so that they run asynchronously.

What goes to the device is first copied into pinned memory, so the caller's array is free again at
once and the copy takes its place in the stream. What comes back waits for the stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ridgeline.runtime.cuda.driver import bindings, call, function
from ridgeline.runtime.cuda.flags import wait
from ridgeline.runtime.cuda.pinned import staging
from ridgeline.runtime.cuda.stream import Stream, call_on
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device
    from ridgeline.runtime.cuda.memory import DeviceBuffer

CHUNK = 32 << 20  # of pinned memory that one copy uses at a time


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
    addresses = target.device_address, source.device_address
    return partial(function("cuMemcpyAsync"), *addresses, source.nbytes, stream.handle)


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
