"""Pinned memory: pages of the host that stay where they are, so that devices reach them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cuda.driver import call
from ridgeline.runtime.cuda.stream import Event, Stream
from ridgeline.runtime.memory import SLACK, Pool

if TYPE_CHECKING:
    from ridgeline.runtime.cuda.device import Device

_LARGEST = 256 << 20  # pinned memory kept for reuse


class Staging:
    """The pinned memory through which copies of one device pass."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.pool = Pool(self._map, self._unmap, limit=_LARGEST)
        # what copies still read: blocks to be given back, or buffers of somebody else's
        self._travelling: deque[tuple[Event, tuple[int, int] | HostBuffer]] = deque()
        self._events: list[Event] = []  # to be recorded again

    def take(self, nbytes: int) -> tuple[int, int]:
        """A block, after taking back those whose copies are done."""
        while self._travelling:
            try:
                oldest = self._travelling.popleft()
            except IndexError:  # another thread took it
                break
            event, read = oldest
            if not event.query():
                self._travelling.appendleft(oldest)
                break
            self._events.append(event)
            if isinstance(read, tuple):
                self.pool.give_back(*read)
        return self.pool.take(nbytes)

    def hold_until_read(self, stream: Stream, read: tuple[int, int] | HostBuffer) -> None:
        """Take a block back, or let a buffer go, when the stream has done what it has now."""
        try:
            event = self._events.pop()
        except IndexError:
            event = Event()
        event.record(stream)
        self._travelling.append((event, read))

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


class PinnedBuffer(HostBuffer):
    """Pinned memory as the host's: what goes to a GPU is read where it lies."""

    __slots__ = ()
    pinned = True

    @classmethod
    def on(cls, device: Device, nbytes: int) -> PinnedBuffer:
        """Memory with undefined contents, which vector code may read past its end."""
        buffer = cls.__new__(cls)
        block = staging(device).take(nbytes + SLACK)
        buffer.__del__ = partial(staging(device).pool.returned, block)
        buffer.address, buffer.nbytes = block[0], nbytes
        buffer._owner = buffer._root = None
        buffer.borrowed = False
        return buffer


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
