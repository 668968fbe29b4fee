"""Tensors on a GPU: torch's memory, allocator and streams as those of the runtime.

Programs are enqueued on the stream that is torch's current one, over addresses of torch's tensors,
and take what they make and their scratch from torch's allocator. So its rules hold for them: a
block that is let go is reused in the order of its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from ridgeline.atomic import Block
from ridgeline.runtime.cuda import device as devices, flags, memory
from ridgeline.runtime.cuda.driver import missing
from ridgeline.runtime.cuda.memory import DeviceBuffer
from ridgeline.runtime.cuda.stream import Stream

ALIGNED = 256  # what kernels and libraries count on; torch's allocator gives more

_streams: dict[tuple[int, int], Stream] = {}


class TorchMemory(DeviceBuffer):
    """Memory of a GPU that is a tensor's, which is held (`tensor`) or held by somebody else."""

    __slots__ = ("tensor",)
    tensor: torch.Tensor | None

    def __init__(self, address: int, nbytes: int, stream: Stream) -> None:
        self.device_address, self.nbytes = address, nbytes
        self.stream, self.device = stream, stream.device.name
        self.tensor, self._owner, self._users = None, None, None
        self.borrowed = True  # it is torch's

    def used_on(self, stream: Stream) -> None:
        """Work on another stream of ours waits for torch's."""
        if stream is not self.stream:
            stream.wait_stream(self.stream)


def why_not() -> str:
    """Why programs of ours cannot run on torch's GPUs; empty if they can."""
    return missing()


def torch_stream(number: int) -> Stream:
    """Torch's current stream of a GPU in this thread, which lends the memory of its allocator."""
    address = raw_stream(number)
    found = _streams.get((number, address))
    if found is None:
        found = Stream.adopted(devices.device(number), address)
        memory.borrow_from(found, _Lender(number, found))
        found = _streams.setdefault((number, address), found)
    return found


class _Lender:
    """Takes memory from torch's allocator, for work on the stream that is current there."""

    def __init__(self, number: int, stream: Stream) -> None:
        self._number, self._stream = number, stream

    def __call__(self, nbytes: int) -> DeviceBuffer:
        tensor = new_bytes(nbytes, self._number)
        made = TorchMemory(address_of(tensor), nbytes, self._stream)
        made.tensor = tensor
        return made


def on_torch_stream(number: int) -> Block:
    """A block whose programs run on torch's current stream.

    What kernels of earlier programs are known to have found wrong is raised here.
    """
    stream = torch_stream(number)
    flags.watch(stream).look()
    return devices.choosing(stream)


def memory_on(number: int, address: int, nbytes: int) -> TorchMemory:
    """The memory of a tensor that its owner keeps alive while this is used."""
    return TorchMemory(address, nbytes, torch_stream(number))


def as_tensor(made: TorchMemory, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """What a program has made, as a tensor that holds its memory."""
    assert made.tensor is not None, "results are memory that torch's allocator lent"
    needed = prod(shape) * dtype.itemsize
    elements = made.tensor if made.nbytes == needed else made.tensor[:needed]
    return elements.view(dtype).view(shape)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that begins where kernels may read it; a copy of one that is in others' midst."""
    return tensor.clone() if address_of(tensor) % ALIGNED else tensor


# ---- what is asked of torch ----------------------------------------------------------------------


def raw_stream(number: int) -> int:
    """The driver's handle of torch's current stream."""
    return int(torch._C._cuda_getCurrentRawStream(number))


def new_bytes(nbytes: int, number: int) -> torch.Tensor:
    """Memory of torch's allocator."""
    return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{number}")


def device_of(tensor: torch.Tensor) -> Any:
    """Where torch says that a tensor lies."""
    return tensor.device


def address_of(tensor: torch.Tensor) -> int:
    """Where a tensor's elements begin in its device's memory."""
    return int(tensor.data_ptr())
