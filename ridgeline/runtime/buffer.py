"""Buffers and memory spaces: host memory, and the interface to memory of other devices.

A `HostBuffer` is an address and a size; dropping it returns the block to a pool. Fresh pages cost
five to thirty times what reused ones do, so blocks are kept by size class, and large ones are 2
MiB-aligned and ask for huge pages. `HostBuffer.borrow` wraps a NumPy array instead.

Every kind of device has a *space*. A piece of its memory looks the same everywhere: a
size, the device, and `array`, which shows the values as NumPy has them (a copy where the memory is
not the host's, after the work that writes it). Where it lies is no word that spaces share: the
host's memory has an `address`, a GPU's a `device_address`, and code for one cannot take the other.

`Moving` is memory that a running program is overwriting: whoever asks for it waits for the new
value.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ridgeline.devices import CPU, device, part_of
from ridgeline.dtypes import DType, uint8
from ridgeline.errors import DeviceError
from ridgeline.runtime.memory import Pool
from ridgeline.scalars import Array

pool = Pool()
_new = object.__new__


class HostBuffer:
    """A piece of host memory, returned to the pool when it is dropped.

    Its finalizer is C code in a slot: one in Python would swallow an interrupt that comes while it
    runs. A buffer without one owns no memory.
    """

    __slots__ = ("__del__", "__weakref__", "_owner", "_root", "address", "borrowed", "nbytes")
    device = "cpu"
    pinned = False
    stream = None  # of a GPU, in whose order memory there is used

    __del__: Callable[[], object]
    address: int
    nbytes: int
    borrowed: bool  # the memory belongs to somebody else: an array, or another buffer
    _owner: np.ndarray[Any, Any] | HostBuffer | None
    _root: HostBuffer | None  # the buffer that the memory was taken for, where that is another one

    @classmethod
    def allocate(cls, nbytes: int, exact: bool = False) -> HostBuffer:
        """Uninitialised memory, 64-byte aligned, readable 64 bytes past its end.

        `exact`: in no larger block than it needs.
        """
        buffer = cls.__new__(cls)
        block = pool.take(nbytes, exact)
        buffer.__del__ = partial(pool.returned, block)
        buffer.address = block[0]
        buffer.nbytes = nbytes
        buffer._owner = buffer._root = None
        buffer.borrowed = False
        return buffer

    @classmethod
    def borrow(cls, array: np.ndarray[Any, Any]) -> HostBuffer:
        """The memory of a C-contiguous array, not copied; the array lives as long as this."""
        if not array.flags.c_contiguous:
            raise ValueError("only a C-contiguous array can be borrowed; copy it first")
        buffer = cls.__new__(cls)
        buffer.address = array.__array_interface__["data"][0]
        buffer.nbytes = array.nbytes
        buffer._owner, buffer._root = array, None
        buffer.borrowed = True
        return buffer

    def again(self) -> HostBuffer:
        """Another object over the same memory, for a time in which its contents may differ."""
        buffer = self._namesake()
        buffer._owner, buffer.borrowed = self, True
        return buffer

    def _namesake(self) -> HostBuffer:
        """Another object over the same memory, which stays alive as long as either does."""
        buffer: HostBuffer = _new(HostBuffer)
        buffer.address, buffer.nbytes = self.address, self.nbytes
        buffer._root = self if self._root is None else self._root
        return buffer

    def part(self, offset: int, nbytes: int) -> HostBuffer:
        """Some bytes of this memory, which keep all of it alive."""
        buffer = self.again()
        buffer.address, buffer.nbytes = self.address + offset, nbytes
        return buffer

    def renewed(self) -> HostBuffer:
        """As `again`, but the new object owns the memory from now on and this one borrows it."""
        buffer = self._namesake()
        buffer._owner, buffer.borrowed = self._owner, self.borrowed
        self._owner, self.borrowed = _ANOTHER, True
        return buffer

    @property
    def device_reads(self) -> bool:
        """True if a GPU can read the memory directly."""
        return self.pinned or (self._root is not None and self._root.pinned)

    @property
    def writeable(self) -> bool:
        """False only for a borrowed array that is read-only."""
        owner = self._owner
        if isinstance(owner, HostBuffer):
            return owner.writeable
        return owner is None or bool(owner.flags.writeable)

    def array(self, dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """A NumPy view from the start of this memory; the view keeps the buffer alive."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self.nbytes:
            raise ValueError(f"{shape} of {dtype.name} needs {nbytes} bytes, not {self.nbytes}")
        array = array_at(self.address, dtype, shape, self)
        if self._owner is not None and not self.writeable:
            array.flags.writeable = False
        return array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory as bytes; NumPy keeps `self` as the base of what it builds from this."""
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.nbytes,),
            "data": (self.address, not self.writeable),
        }

    def __repr__(self) -> str:
        kind = "borrowed " if self.borrowed else ""
        return f"Buffer({kind}{self.nbytes} bytes at {self.address:#x})"


def array_at(
    address: int, dtype: DType, shape: Sequence[int], keeps: object = None
) -> np.ndarray[Any, Any]:
    """The values that lie at an address, as a view that keeps something alive."""
    memory = _bytes_type(math.prod(shape) * dtype.itemsize).from_address(address)
    memory.buffer = keeps
    return np.ndarray(shape, dtype.numpy, memory)


_ANOTHER = HostBuffer.allocate(0)  # stands for the owner of memory that lives by its root


@lru_cache(maxsize=1024)
def _bytes_type(nbytes: int) -> Any:
    """So many bytes at an address, as an object with an attribute `buffer` to keep them alive.

    NumPy takes it four times faster than `__array_interface__`.
    """
    members = {"_type_": ctypes.c_char, "_length_": nbytes, "__slots__": ("buffer",)}
    return type("Bytes", (ctypes.Array,), members)


class Memory(Protocol):
    """A piece of some device's memory, freed when it is dropped."""

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
        """Uninitialised memory."""

    def take_in(self, array: Array) -> Any:
        """Memory with a copy of an array."""

    def copy(self, memory: Any) -> Any:
        """A copy of memory of this or another device."""


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
        read_into = getattr(memory, "read_into", None)
        if read_into is None:
            return self.take_in(memory.array(uint8, (memory.nbytes,)))
        buffer = HostBuffer.allocate(memory.nbytes)
        read_into(np.asarray(buffer))
        return buffer


@lru_cache(maxsize=64)
def space(name: str) -> Space:
    """The space of a device; an error that says why where this machine has no such device."""
    made: Space = part_of(device(name), "space")
    return made


def on(memory: Any, name: str) -> Any:
    """Memory on a device: the memory itself, or a copy."""
    return memory if memory.device == name else space(name).copy(memory)


def misplaced(memory: Memory, name: str) -> DeviceError:
    """The error if a program would be given memory that its device cannot reach."""
    return DeviceError(
        f"a program of {name} was given memory of {memory.device}",
        note="nothing was run; this is a fault of Ridgeline, since a value that is read on another "
        "device is copied there first",
        help="please report the program that did it",
    )


def require(name: str) -> device:
    """The device of a name, if this machine has it."""
    found = device(name)
    if found.type != "cpu":
        space(found)
    return found


def check_device(name: Any) -> device:
    """The device of a name; an error if this machine does not have it."""
    return CPU if name is None or name == CPU else require(name)


class Moving(tuple[Any, Lock]):
    """Replaces a node's buffer while a run overwrites its memory; readers wait for the run.

    The lock is held by whoever runs the program, from before this is seen until after it is gone.
    Attributes of this object wait for it, and are then answered by the buffer with the new value
    (or the old one, if the program failed). No later run overwrites that buffer: this holds the
    node, so the node is not alone. A tuple is made by C code alone, and a step makes one for every
    state.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def settled(self) -> Any:
        """The buffer, once the program has run."""
        node, running = self
        while True:
            with running:  # a signal's handler may end the wait
                pass
            found = node.buffer
            if found is not self:
                return found.settled() if type(found) is Moving else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settled(), name)
