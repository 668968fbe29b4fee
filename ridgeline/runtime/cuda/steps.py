"""The steps of a plan: kernel launches with their arguments packed once, ready to be enqueued.

All launches of a plan share one array of addresses, one word for each slot; a kernel's arguments
are pointers into it. Before a run the array is filled, and nothing else has to be packed.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ridgeline.codegen.cuda.source import TileMap
from ridgeline.runtime.cuda.driver import bindings, failure, function
from ridgeline.runtime.cuda.module import DeviceFunction
from ridgeline.runtime.cuda.tensor_maps import TensorMaps


class LaunchStep(Protocol):
    """Work that goes onto a stream; `slots` are those it touches.

    One that `waits` for the device, or runs on the host, is no part of a graph.
    """

    slots: frozenset[int]
    waits: bool

    def enqueue(self, stream: Any) -> None: ...


class ArgumentWords:
    """One 64-bit word per slot, where kernels' arguments are read from."""

    def __init__(self, count: int) -> None:
        self._words = array("Q", bytes(8 * max(count, 1)))
        self.start: int = self._words.buffer_info()[0]

    def __getitem__(self, slot: int) -> int:
        return self._words[slot]

    def __setitem__(self, slot: int, address: int) -> None:
        self._words[slot] = address

    def all(self) -> tuple[int, ...]:
        """The addresses of all slots."""
        return tuple(self._words)

    def fill(self, addresses: Sequence[int]) -> None:
        """The addresses of all slots from the first on."""
        self._words[: len(addresses)] = array("Q", addresses)


class KernelStep:
    """One launch of a kernel, whose module stays loaded as long as there is this step."""

    waits = False

    def __init__(
        self,
        kernel: DeviceFunction,
        blocks: int,
        threads: int,
        shared: int,
        cluster: int,
        slots: Sequence[int],
        words: ArgumentWords,
    ) -> None:
        self.slots = frozenset(slots)
        pointers = [words.start + 8 * slot for slot in slots]
        self._words = words  # the arguments point into them
        self._pointers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        self.arguments = ctypes.addressof(self._pointers)
        self._function, self.kernel = kernel, kernel.handle
        self.shared = shared
        self._launch: Callable[..., Any] = function("cuLaunchKernel")
        self._grid, self._block = (blocks, 1, 1), (threads, 1, 1)
        self._tail: tuple[int, ...] = (0,)
        self._extended = _extended(blocks, threads, shared, cluster) if cluster > 1 else None

    def enqueue(self, stream: Any) -> None:
        """Put the launch onto a stream, with the addresses as they are now."""
        if self._extended is not None:
            self._extended.hStream = stream
            (status,) = function("cuLaunchKernelEx")(self._extended, self.kernel, self.arguments, 0)
        else:
            (status,) = self._launch(
                self.kernel, *self._grid, *self._block, self.shared, stream, self.arguments,
                *self._tail,
            )  # fmt: skip
        if status:
            raise failure("a kernel launch", status)

    def node_parameters(self) -> Any:
        """What a graph needs to know to launch this with the addresses as they are now."""
        made = bindings().CUDA_KERNEL_NODE_PARAMS()
        made.func = self.kernel
        made.gridDimX, made.gridDimY, made.gridDimZ = self._grid
        made.blockDimX, made.blockDimY, made.blockDimZ = self._block
        made.sharedMemBytes = self.shared
        made.kernelParams = self.arguments
        return made


class JoinedStep(KernelStep):
    """One launch that takes the addresses of many slots as one parameter."""

    def __init__(
        self,
        kernel: DeviceFunction,
        blocks: int,
        threads: int,
        shared: int,
        slots: Sequence[int],
        words: ArgumentWords,
    ) -> None:
        super().__init__(kernel, blocks, threads, shared, 1, slots, words)
        self._order = tuple(slots)
        self._addresses = array("Q", bytes(8 * len(self._order)))
        self._pointers = (ctypes.c_void_p * 1)(self._addresses.buffer_info()[0])
        self.arguments = ctypes.addressof(self._pointers)

    def enqueue(self, stream: Any) -> None:
        """Put the launch onto a stream, with the addresses as they are now."""
        self._gather()
        super().enqueue(stream)

    def node_parameters(self) -> Any:
        """What a graph needs to know to launch this with the addresses as they are now."""
        self._gather()
        return super().node_parameters()

    def _gather(self) -> None:
        words = self._words
        self._addresses[:] = array("Q", [words[slot] for slot in self._order])


class TiledStep(KernelStep):
    """One launch whose kernel has tiles fetched by the copy engine: behind the addresses come maps.

    The parameters are still one address each, and a pointer to each map.
    """

    def __init__(
        self,
        kernel: DeviceFunction,
        shape: tuple[int, int],
        shared: int,
        cluster: int,
        maps: tuple[TileMap, ...],
        slots: Sequence[int],
        words: ArgumentWords,
    ) -> None:
        super().__init__(kernel, *shape, shared, cluster, slots, words)
        self._tensors = TensorMaps(maps)
        self._tiled = tuple(slots[one.parameter] for one in maps)
        pointers = [*self._pointers[: len(slots)], *self._tensors.addresses]
        self._pointers = (ctypes.c_void_p * len(pointers))(*pointers)
        self.arguments = ctypes.addressof(self._pointers)

    def enqueue(self, stream: Any) -> None:
        """Put the launch onto a stream, with the addresses as they are now."""
        self._encode()
        super().enqueue(stream)

    def node_parameters(self) -> Any:
        """What a graph needs to know to launch this with the addresses as they are now."""
        self._encode()
        return super().node_parameters()

    def _encode(self) -> None:
        for number, slot in enumerate(self._tiled):
            self._tensors.lie_at(number, self._words[slot])


def _extended(blocks: int, threads: int, shared: int, cluster: int) -> Any:
    """The configuration of a launch whose blocks come in clusters."""
    names = bindings()
    attribute = names.CUlaunchAttribute()
    attribute.id = names.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = cluster
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    made = names.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = blocks, 1, 1
    made.blockDimX, made.blockDimY, made.blockDimZ = threads, 1, 1
    made.sharedMemBytes = shared
    made.attrs, made.numAttrs = [attribute], 1
    return made
