"""Device memory: blocks of the driver's stream-ordered pool, kept for reuse by size class.

A block belongs to the stream it was taken on and is reused in that stream's order, so a buffer may
be let go while kernels that read it still wait in the queue. A buffer that another stream used
too makes its own stream wait for that one first.

The `arena` is the scratch memory of a stream: one block that its programs use in turn, as large as
any needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.runtime.cuda.driver import DriverOutOfMemory, bindings, call
from ridgeline.runtime.cuda.shortage import shortage
from ridgeline.runtime.cuda.stream import Stream, call_on
from ridgeline.runtime.cuda.transfer import copy_within, download
from ridgeline.runtime.memory import Pool
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device

T = TypeVar("T")
_EVERYTHING = (1 << 64) - 1
_ALIGNED = 256  # of memory that the driver gives; kernels and libraries count on it
_arenas: dict[int, DeviceBuffer] = {}
_lenders: dict[int, Callable[[int], DeviceBuffer]] = {}  # by stream


class DevicePool:
    """The memory of one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.name = stream, stream.device.name
        self.blocks = Pool(self._map, self._unmap, limit=_EVERYTHING)
        self.returned = self.blocks.returned  # what a finalizer calls
        # blocks that came back, with the other streams that used them
        self.shared: deque[tuple[tuple[int, int], set[Stream]]] = deque()
        self.returned_shared = self.shared.append  # what a finalizer calls
        self.discarded = stream.device.discarded  # what is destroyed when memory is taken
        _keep_all(stream)

    def collect(self) -> None:
        """Take in what came back; this stream waits for the others that used it."""
        self.stream.device.destroy_discarded()
        while self.shared:
            block, users = self.shared.popleft()
            for other in users:
                self.stream.wait_stream(other)
            self.blocks.returned(block)

    def _map(self, size: int) -> int:
        try:
            return int(call_on(self.stream.device, "cuMemAllocAsync", size, self.stream.handle))
        except DriverOutOfMemory:
            # what the driver took while it tried is of no use
            call("cuMemPoolTrimTo", _driver_pool(self.stream), 0)
            raise

    def _unmap(self, address: int, size: int) -> None:
        call_on(self.stream.device, "cuMemFreeAsync", address, self.stream.handle)

    def trim(self) -> None:
        """Give what is kept for reuse back to the device."""
        self.collect()
        self.blocks.trim()
        self.stream.synchronize()
        call("cuMemPoolTrimTo", _driver_pool(self.stream), 0)

    def take_from_others(self, nbytes: int, exact: bool) -> tuple[int, int]:
        """A block where there is none left, without what the pools of other streams keep.

        An error that says who holds what if that is not enough.
        """
        try:
            return with_room(self.stream.device, lambda: self.blocks.take(nbytes, exact))
        except MemoryError:
            raise shortage(self.stream.device, nbytes, self.blocks) from None


def _keep_all(stream: Stream) -> None:
    """Let the driver keep freed memory: giving it back costs a wait."""
    names = bindings()
    attribute = names.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    value = names.cuuint64_t(_EVERYTHING)
    call("cuMemPoolSetAttribute", _driver_pool(stream), attribute, value)


def _driver_pool(stream: Stream) -> Any:
    return call("cuDeviceGetDefaultMemPool", stream.device.handle)


_pools: dict[int, DevicePool] = {}


def pool_of(stream: Stream) -> DevicePool:
    """The memory that work on a stream takes from."""
    found = _pools.get(id(stream))
    return _pools.setdefault(id(stream), DevicePool(stream)) if found is None else found


def pools(number: int) -> list[DevicePool]:
    """The pools of all streams of a device."""
    return [p for p in list(_pools.values()) if p.stream.device.number == number]


def with_room(device: Device, take: Callable[[], T]) -> T:
    """What a call gives that needs memory; if there is none, without what all pools keep."""
    try:
        return take()
    except MemoryError:
        for pool in pools(device.number):
            pool.trim()
        device.activate()
        return take()


class DeviceBuffer:
    """A piece of a device's memory; give it back by letting go of it.

    It has no `address`, which is the host's word: code for the CPU cannot take one for the other.
    As with the host's memory, what gives it back is C code in a slot.
    """

    __slots__ = (
        "__del__", "__weakref__", "_block", "_owner", "_users", "borrowed", "device",
        "device_address", "nbytes", "stream",
    )  # fmt: skip
    __del__: Callable[[], object]
    borrowed: bool  # the memory is a part of another buffer's, or of another library

    def __init__(self, pool: DevicePool, nbytes: int, exact: bool = False) -> None:
        if pool.shared or pool.discarded:
            pool.collect()
        try:
            self._block = block = pool.blocks.take(nbytes, exact)
        except MemoryError:
            self._block = block = pool.take_from_others(nbytes, exact)
        self.__del__ = partial(pool.returned, block)
        self.device_address = block[0]
        self.nbytes = nbytes
        self.device = pool.name
        self.stream = pool.stream  # in whose order the memory is reused
        self._users: set[Stream] | None = None
        self._owner: DeviceBuffer | None = None
        self.borrowed = False

    def part(self, offset: int, nbytes: int) -> DeviceBuffer:
        """Some bytes of this memory; a copy where they begin at no address for wide accesses."""
        made = DeviceBuffer.__new__(DeviceBuffer)
        made.device_address, made.nbytes = self.device_address + offset, nbytes
        made.device = self.device
        made.stream, made._users = self.stream, None
        made._owner, made.borrowed = self, True
        if made.device_address % _ALIGNED == 0:
            return made
        stream = self.stream.device.stream
        copied = allocate(stream, nbytes)
        copy_within(made, copied, stream)
        return copied

    def writable_on(self, stream: Stream) -> bool:
        """True where work on a stream may overwrite it, if nobody else holds it."""
        return not self.borrowed and self._users is None and self.stream is stream

    def used_on(self, stream: Stream) -> None:
        """Work on a stream reads or writes the memory, after what its own stream has now."""
        if self._owner is not None:
            self._owner.used_on(stream)
        elif stream is not self.stream:
            if self._users is None:
                self._users = set()
                returned = pool_of(self.stream).returned_shared
                self.__del__ = partial(returned, (self._block, self._users))
            if stream not in self._users:
                self._users.add(stream)
                stream.wait_stream(self.stream)

    def array(self, dtype: DType, shape: Sequence[int]) -> Array:
        """The values as the host sees them, after the work that writes them: a copy."""
        found = np.empty(tuple(shape), dtype.numpy)
        if found.nbytes > self.nbytes:
            raise ValueError(f"{shape} of {dtype.name} needs more than {self.nbytes} bytes")
        download(self, found)
        return found

    def read_into(self, array: Array) -> None:
        """Copy the first bytes into a contiguous array, after the work that writes them."""
        download(self, array)

    def __repr__(self) -> str:
        where = f"{self.device} at {self.device_address:#x}"
        return f"DeviceBuffer({self.nbytes} bytes of {where})"


def allocate(stream: Stream, nbytes: int, exact: bool = False) -> DeviceBuffer:
    """Memory with undefined contents for work on a stream; `exact`: in no larger block."""
    pool = _pools.get(id(stream))
    if pool is None:
        lender = _lenders.get(id(stream))
        if lender is not None:
            return lender(nbytes)
        pool = pool_of(stream)
    return DeviceBuffer(pool, nbytes, exact)


def borrow_from(stream: Stream, lender: Callable[[int], DeviceBuffer]) -> None:
    """Let work on an adopted stream take the memory of the library whose stream it is."""
    _lenders[id(stream)] = lender


def statistics(number: int) -> dict[str, Any]:
    """Bytes of a device in use, at the peak, and kept for reuse."""
    for held in pools(number):
        held.collect()
    found = [p.blocks for p in pools(number)]
    return {
        "in_use": sum(p.in_use for p in found),
        "peak": sum(p.peak for p in found),
        "cached": sum(p.cached for p in found),
    }


def arena(stream: Stream, nbytes: int, exact: bool = False) -> DeviceBuffer:
    """At least so many bytes, whose contents last for one program's run; `exact`: no more.

    Programs run one after the other on a stream, so they can share; a larger block replaces a
    smaller one, which whoever still refers to it keeps alive.
    """
    found = _arenas.get(id(stream))
    if found is None or found.nbytes < nbytes or (exact and found.nbytes > nbytes):
        _arenas.pop(id(stream), None)
        found = None  # let go before the larger one is taken
        found = _arenas[id(stream)] = allocate(stream, nbytes, exact)
    return found


def drop(stream: Stream | None = None) -> None:
    """Let go of the scratch memory of a stream, or of all."""
    if stream is None:
        _arenas.clear()
    else:
        _arenas.pop(id(stream), None)
