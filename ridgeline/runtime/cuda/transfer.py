"""Copies between the host and a device, through pinned memory so that they run asynchronously.

What goes to the device is first copied into pinned memory, so the caller's array is free again at
once and the copy takes its place in the stream; what lies in pinned memory goes from there, and is
held until it is read. What comes back waits for the stream. Large arrays go in pieces, which
several threads copy on the host while the device copies others.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from os import cpu_count
from typing import TYPE_CHECKING, Any, NamedTuple

from ridgeline.atomic import at_fork
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cuda.driver import bindings, call, function
from ridgeline.runtime.cuda.flags import wait
from ridgeline.runtime.cuda.pinned import staging
from ridgeline.runtime.cuda.stream import Event, Stream, call_on
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device
    from ridgeline.runtime.cuda.memory import DeviceBuffer

CHUNK = 8 << 20  # of pinned memory that one copy uses at a time
_AHEAD = 3  # pieces that the device copies while the host copies another
_SHARE = 1 << 20  # bytes from which on a thread gets a share of a piece
_MOST_THREADS = 8


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
    block = pinned.take(size)
    _move(block[0], source, size)
    call_on(stream.device, "cuMemcpyHtoDAsync", target, block[0], size, stream.handle)
    pinned.hold_until_read(stream, block)


def upload_pinned(source: HostBuffer, memory: DeviceBuffer, stream: Stream) -> None:
    """Copy pinned memory to the device, in the stream's order.

    Nobody writes to it meanwhile: a buffer that somebody holds is overwritten by no program.
    """
    if source.nbytes:
        address, target, size = source.address, memory.device_address, source.nbytes
        call_on(stream.device, "cuMemcpyHtoDAsync", target, address, size, stream.handle)
        staging(stream.device).hold_until_read(stream, source)


def download(memory: DeviceBuffer, array: Array) -> None:
    """Copy from the device into a contiguous array; waits, and raises what failed until now."""
    stream = memory.stream.device.stream
    memory.used_on(stream)
    start, size = array.__array_interface__["data"][0], array.nbytes
    if size > CHUNK:
        wait(stream)  # what failed is said before anything is copied
        _download(memory.device_address, start, size, stream)
        return
    pinned = staging(stream.device)
    address, block = pinned.take(size)
    if size:
        source = memory.device_address
        call_on(stream.device, "cuMemcpyDtoHAsync", address, source, size, stream.handle)
    try:
        wait(stream)
        ctypes.memmove(start, address, size)
    finally:
        pinned.pool.give_back(address, block)


class _Piece(NamedTuple):
    """A part of an array on its way to the host."""

    target: int
    size: int
    block: tuple[int, int]
    there: Event


def _download(source: int, target: int, size: int, stream: Stream) -> None:
    """Copy from the device in pieces, of which some are on their way while one is copied on."""
    pinned = staging(stream.device)
    coming: deque[_Piece] = deque()
    try:
        for offset in range(0, size, CHUNK):
            if len(coming) == _AHEAD:
                _arrive(coming.popleft(), stream)
            count = min(CHUNK, size - offset)
            block = pinned.take(count)
            begin = source + offset
            call_on(stream.device, "cuMemcpyDtoHAsync", block[0], begin, count, stream.handle)
            coming.append(_Piece(target + offset, count, block, stream.record_event()))
        while coming:
            _arrive(coming.popleft(), stream)
    finally:
        for piece in coming:  # an error left them: the device may still write there
            pinned.hold_until_read(stream, piece.block)


def _arrive(piece: _Piece, stream: Stream) -> None:
    """Copy a piece on, once it is there."""
    try:
        piece.there.synchronize()
        _move(piece.target, piece.block[0], piece.size)
    finally:
        staging(stream.device).hold_until_read(stream, piece.block)


def _move(target: int, source: int | bytes, size: int) -> None:
    """Copy memory of the host, by several threads where it is much."""
    share = -(-size // max(1, min(_threads_for_copies(), size // _SHARE)))
    if isinstance(source, bytes) or share >= size:
        ctypes.memmove(target, source, size)
        return
    begins = range(0, size, share)
    parts = [(target + at, source + at, min(share, size - at)) for at in begins]
    others = [_copiers().submit(ctypes.memmove, *part) for part in parts[1:]]
    try:
        ctypes.memmove(*parts[0])
    finally:
        for one in others:
            one.result()


def _threads_for_copies() -> int:
    """One core is left to whatever else runs."""
    return min(_MOST_THREADS, max(1, (cpu_count() or 1) // 2))


@cache
def _copiers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads_for_copies(), "copies")


at_fork(after_in_child=_copiers.cache_clear)  # a child has none of these threads


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
