"""Copies between the host and a device, through pinned memory so that they run asynchronously.

What goes to the device is first copied into pinned memory, so the caller's array is free again at
once and the copy takes its place in the stream. What comes back waits for the stream.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.runtime.cuda.driver import call
from ridgeline.runtime.cuda.stream import Event, Stream
from ridgeline.runtime.memory import Pool
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.memory import DeviceBuffer

CHUNK = 32 << 20  # of pinned memory that one copy uses at a time
_PORTABLE = 1
_LARGEST = 256 << 20  # pinned memory kept for reuse


def _map(size: int) -> int:
    return int(call("cuMemHostAlloc", size, _PORTABLE))


def _unmap(address: int, size: int) -> None:
    call("cuMemFreeHost", address)


pinned = Pool(_map, _unmap, limit=_LARGEST)
_travelling: deque[tuple[Event, int, int]] = deque()  # blocks that a copy still reads


def staging(nbytes: int) -> tuple[int, int]:
    """A pinned block, after taking back those whose copies are done."""
    while _travelling and _travelling[0][0].query():
        _, address, size = _travelling.popleft()
        pinned.give_back(address, size)
    return pinned.take(nbytes)


def upload(array: Array, memory: DeviceBuffer, stream: Stream) -> None:
    """Copy a contiguous array to the device, in the stream's order."""
    stream.device.activate()
    start = array.__array_interface__["data"][0]
    for offset in range(0, array.nbytes, CHUNK):
        size = min(CHUNK, array.nbytes - offset)
        address, block = staging(size)
        ctypes.memmove(address, start + offset, size)
        call("cuMemcpyHtoDAsync", memory.address + offset, address, size, stream.handle)
        _travelling.append((stream.record_event(), address, block))


def upload_small(data: bytes, address: int, stream: Stream) -> None:
    """Copy a few bytes to the device, in the stream's order."""
    staged, block = staging(len(data))
    ctypes.memmove(staged, data, len(data))
    call("cuMemcpyHtoDAsync", address, staged, len(data), stream.handle)
    _travelling.append((stream.record_event(), staged, block))


def download(memory: DeviceBuffer, array: Array) -> None:
    """Copy from the device into a contiguous array; waits, and raises what failed until now."""
    from ridgeline.runtime.cuda.flags import raise_pending

    stream = memory.stream.device.stream
    stream.device.activate()
    memory.used_on(stream)
    start = array.__array_interface__["data"][0]
    if array.nbytes <= CHUNK:
        address, block = staging(array.nbytes)
        if array.nbytes:
            call("cuMemcpyDtoHAsync", address, memory.address, array.nbytes, stream.handle)
        stream.synchronize()
        ctypes.memmove(start, address, array.nbytes)
        pinned.give_back(address, block)
    else:
        call("cuMemcpyDtoHAsync", start, memory.address, array.nbytes, stream.handle)
        stream.synchronize()
    raise_pending(stream)


def copy_within(source: DeviceBuffer, target: DeviceBuffer, stream: Stream) -> None:
    """Copy device memory, also between devices, in the stream's order."""
    stream.device.activate()
    source.used_on(stream)
    if source.nbytes:
        call("cuMemcpyAsync", target.address, source.address, source.nbytes, stream.handle)


def pinned_array(nbytes: int) -> Any:
    """Pinned host memory as bytes, given back when the array is let go."""
    return np.asarray(_Pinned(nbytes))


class _Pinned:
    """A pinned block behind a NumPy array."""

    def __init__(self, nbytes: int) -> None:
        self._address, self._block = staging(nbytes)
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (nbytes,),
            "data": (self._address, False),
        }

    def __del__(self) -> None:
        pinned.give_back(self._address, self._block)
