"""Memory by device: where values are put, and how they get from one device to another.

Every kind of device has a *space*. A piece of its memory looks the same everywhere: a
size, the device, and `array`, which shows the values as NumPy has them (a copy where the memory is
not the host's, after the work that writes it). Where it lies is no word that spaces share: the
host's memory has an `address`, a GPU's a `device_address`, and code for one cannot take the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ridgeline.devices import CPU, device, part_of
from ridgeline.dtypes import DType, uint8
from ridgeline.errors import DeviceError
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.scalars import Array


class Memory(Protocol):
    """A piece of some device's memory; letting go of it gives it back."""

    @property
    def nbytes(self) -> int: ...

    @property
    def device(self) -> str: ...

    @property
    def borrowed(self) -> bool: ...

    def array(self, dtype: DType, shape: Sequence[int]) -> Array: ...


class Space(Protocol):
    """The memory of one device."""

    def allocate(self, nbytes: int) -> Any:
        """Memory with undefined contents."""

    def take_in(self, array: Array) -> Any:
        """Memory with a copy of an array."""

    def copy(self, memory: Any) -> Any:
        """Memory with a copy of what lies here or on another device."""


class HostSpace:
    """The host's memory."""

    def __init__(self, number: int = 0) -> None:
        """There is one."""

    def allocate(self, nbytes: int) -> HostBuffer:
        """Memory with undefined contents."""
        return HostBuffer.allocate(nbytes)

    def take_in(self, array: Array) -> HostBuffer:
        """Memory with a copy of an array; compiled code may overread it."""
        buffer = HostBuffer.allocate(array.nbytes)
        if array.nbytes:
            memory = np.asarray(buffer)[: array.nbytes].view(array.dtype)
            memory.reshape(array.shape)[...] = array
        return buffer

    def copy(self, memory: Any) -> HostBuffer:
        """Memory with a copy of what lies here or on another device."""
        return self.take_in(memory.array(uint8, (memory.nbytes,)))


@lru_cache(maxsize=64)
def space(name: str) -> Space:
    """The space of a device; an error that says why where this machine has no such device."""
    made: Space = part_of(device(name), "space")
    return made


def on(memory: Any, name: str) -> Any:
    """Memory on a device: the memory itself, or a copy."""
    return memory if memory.device == name else space(name).copy(memory)


def misplaced(memory: Memory, name: str) -> DeviceError:
    """What is raised where a program of a device would be given memory that it cannot reach."""
    return DeviceError(
        f"a program of {name} was given memory of {memory.device}",
        note="nothing was run; this is a fault of Ridgeline, since a value that is read on another "
        "device is copied there first",
        help="please report the program that did it",
    )


def require(name: str) -> device:
    """The device under a name, if this machine has it."""
    place = device(name)
    if place.type != "cpu":
        space(place)
    return place


def check_device(name: Any) -> device:
    """The device under a name; an error where this machine does not have it."""
    return CPU if name is None or name == CPU else require(name)
