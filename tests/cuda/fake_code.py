"""Machine code of a GPU that is not there: an image is a text, and its kernels are interpreted.

The compiler works as for a real device, up to NVRTC. A kernel's loops, as scheduled for the device,
then run in the loop interpreter over the memory that a launch names, with its checks for bounds and
races; a launch that several kernels were joined into runs them all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ridgeline.codegen.cuda import KernelSource, generate
from ridgeline.codegen.cuda.horizontal_fusion import FusedCall, joined
from ridgeline.loops.build import map_buffers
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Buffer, Const, Kernel

from .fake_driver import NO_BINARY, Context, FakeDriver, Function, Refused, words


@dataclass
class FakeCode:
    """The texts that were generated, and what they compute."""

    driver: FakeDriver
    sources: dict[str, tuple[KernelSource, Sequence[FusedCall], bool]] = field(default_factory=dict)
    architectures: list[str] = field(default_factory=list)  # of the images, as they were made

    def generate(self, kernel: Kernel) -> KernelSource:
        """The compiler's own text of a kernel."""
        made = generate(kernel)
        everything = FusedCall(kernel, tuple(range(len(kernel.params))))
        self.sources[made.text] = made, [everything], False
        return made

    def joined(self, parts: Sequence[FusedCall]) -> KernelSource:
        """The compiler's own text of several kernels."""
        made = joined(parts)
        self.sources[made.text] = made, parts, True
        return made

    def begin(self, text: str, arch: str, options: Sequence[str] = ()) -> Future[bytes]:
        """What stands for NVRTC."""
        self.architectures.append(arch)
        made: Future[bytes] = Future()
        made.set_result(f"{arch}\n{text}".encode())
        return made

    def find(self, context: Context, image: bytes, symbol: str) -> Function:
        """A function of an image, if the image is for the context's device."""
        arch, _, text = image.decode().partition("\n")
        if arch != {9: "sm_90a", 8: "sm_80"}[context.gpu.major]:
            raise Refused(NO_BINARY)
        source, parts, together = self.sources[text]
        count = 1 + max(place for part in parts for place in part.arguments)
        read = _addresses(count) if together else words(count)
        first = symbol == source.launches[0].symbol  # all launches of a kernel are one here
        return Function(context, symbol, read, lambda given: self._run(parts, given, first))

    def _run(self, parts: Sequence[FusedCall], given: tuple[int, ...], first: bool) -> None:
        for part in parts if first else ():
            apart = _apart(part, given)
            interpret(apart.kernel, self._memory(apart, given), {})

    def _memory(self, part: FusedCall, given: tuple[int, ...]) -> dict[int, Any]:
        """The memory of a kernel's slots, as much of it as the kernel says it uses."""
        found: dict[int, Any] = {}
        for param, place in zip(part.kernel.params, part.arguments):
            shape = [int(size.value) for size in param.shape if isinstance(size, Const)]
            dtype = np.dtype(param.dtype.numpy)
            size = prod(shape) * dtype.itemsize
            address = given[place]
            owner = self.driver.device_of(address)
            self.driver.check(address, size, None if owner is None else self.driver.gpus[owner])
            if param.slot not in found or found[param.slot].nbytes < size:
                memory = (ctypes.c_char * size).from_address(self.driver.shown(address))
                found[param.slot] = np.frombuffer(memory, dtype)
        return found


def _apart(part: FusedCall, given: tuple[int, ...]) -> FusedCall:
    """A slot for each memory: a kernel that may work in place can be given two for one."""
    first: dict[int, int] = {}
    free = 1 + max((param.slot for param in part.kernel.params), default=0)
    moved = {
        param.name: free + place
        for param, place in zip(part.kernel.params, part.arguments)
        if first.setdefault(param.slot, given[place]) != given[place]
    }
    if not moved:
        return part

    def slotted(buffer: Buffer) -> Buffer:
        return replace(buffer, slot=moved.get(buffer.name, buffer.slot))

    kernel = part.kernel
    params = tuple(map(slotted, kernel.params))
    body = map_buffers(kernel.body, slotted)
    return replace(part, kernel=replace(kernel, params=params, body=body))


def _addresses(count: int) -> Callable[[int], tuple[int, ...]]:
    """How a launch is read whose one parameter holds so many addresses."""

    def read(pointers: int) -> tuple[int, ...]:
        start = ctypes.c_uint64.from_address(pointers).value
        return tuple((ctypes.c_uint64 * count).from_address(start))

    return read
