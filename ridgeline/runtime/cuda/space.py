"""The memory space of a GPU: allocation in stream order, and copies into it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.devices import CPU
from ridgeline.dtypes import uint8
from ridgeline.runtime.cuda import transfer
from ridgeline.runtime.cuda.device import Device, device
from ridgeline.runtime.cuda.memory import DeviceBuffer, allocate
from ridgeline.runtime.cuda.pinned import PinnedBuffer
from ridgeline.scalars import Array


class DeviceSpace:
    """The memory of one GPU, used in the order of the current stream."""

    def __init__(self, number: int) -> None:
        self.device: Device = device(number)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Memory with undefined contents."""
        return allocate(self.device.stream, nbytes)

    def take_in(self, array: Array) -> DeviceBuffer:
        """Memory with a copy of an array."""
        stream = self.device.stream
        made = allocate(stream, array.nbytes)
        transfer.upload(np.ascontiguousarray(array), made, stream)
        return made

    def fill(self, memory: DeviceBuffer, array: Array) -> None:
        """Write an array's values into memory, in the stream's order."""
        transfer.upload(np.ascontiguousarray(array), memory, self.device.stream)

    def copy(self, memory: Any, made: DeviceBuffer | None = None) -> DeviceBuffer:
        """Memory (`made`, if given) with a copy of what lies here, on another GPU or the host."""
        stream = self.device.stream
        if made is None:
            made = allocate(stream, memory.nbytes)
        if memory.device == CPU:
            if getattr(memory, "device_reads", False):
                transfer.upload_pinned(memory, made, stream)
            else:
                self.fill(made, memory.array(uint8, (memory.nbytes,)))
            return made
        transfer.copy_within(memory, made, stream)
        return made

    def pin(self, array: Array) -> PinnedBuffer:
        """Memory of the host with a copy of an array, which this device reads where it lies."""
        made = PinnedBuffer.on(self.device, array.nbytes)
        made.array(uint8, (array.nbytes,))[...] = np.ascontiguousarray(array).reshape(-1).view("u1")
        return made
