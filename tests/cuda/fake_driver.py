"""A driver without a GPU: streams run at once, launches are noted.

Device memory lies at addresses that the host does not have, as on a machine with a GPU whose memory
is its own: what is not copied through the driver cannot be read by accident. Its contents are kept
elsewhere (`shown`), and are no numbers at first.

Only what the runtime calls is here, with the driver's own names and ways to answer. There are two
devices of different capability, and the driver is strict: streams, events, modules, functions,
graphs and memory belong to the context they were made in, and a call fails unless that context is
the calling thread's current one. What the real driver allows between devices is allowed: to wait
for another device's event, and to copy between contexts that are named. Calls that failed are kept
in `refused`, since a finalizer's error goes nowhere.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.codegen.cuda.source import TileMap
from ridgeline.runtime.cuda.module import DeviceFunction

OUT_OF_MEMORY, INVALID_VALUE, INVALID_CONTEXT, NO_BINARY, INVALID_HANDLE = 2, 1, 201, 209, 400
ILLEGAL_ADDRESS, NOT_CAPTURED = 700, 900
MEANT = (OUT_OF_MEMORY, ILLEGAL_ADDRESS, NOT_CAPTURED)  # statuses that tests provoke
_NAMES = {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY", 1: "CUDA_ERROR_INVALID_VALUE",
          201: "CUDA_ERROR_INVALID_CONTEXT", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
          400: "CUDA_ERROR_INVALID_HANDLE", 700: "CUDA_ERROR_ILLEGAL_ADDRESS",
          900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}  # fmt: skip


class Status(int):
    """A status with the driver's name for it."""

    @property
    def name(self) -> str:
        return _NAMES[int(self)]


class Refused(Exception):
    """A call that the driver does not take."""

    def __init__(self, status: int) -> None:
        self.status = Status(status)


@dataclass(eq=False)
class Gpu:
    """A device: what it says of itself, and its memory."""

    number: int
    major: int
    multiprocessors: int
    memory: int
    used: int = 0
    peak: int = 0
    readers: set[int] = field(default_factory=set)  # other devices that may read its memory

    def attribute(self, name: str) -> int:
        known = {
            "COMPUTE_CAPABILITY_MAJOR": self.major,
            "MULTIPROCESSOR_COUNT": self.multiprocessors,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448 if self.major == 9 else 166_912,
            "L2_CACHE_SIZE": 1 << 20,
        }
        return known.get(name, 0)


@dataclass(eq=False)
class Context:
    """The context of a device; everything below but pinned memory belongs to one."""

    gpu: Gpu


@dataclass(eq=False)
class Handle:
    """A stream, an event, a module, a graph."""

    context: Context
    kind: str
    number: int
    nodes: list[Any] = field(default_factory=list)  # of a graph; of a stream while it is captured
    captured: bool = False

    def __int__(self) -> int:
        return self.number


@dataclass(frozen=True, eq=False)
class Block:
    """A piece of a device's memory, or of pinned memory; `shown` is where its contents are."""

    address: int
    size: int
    gpu: Gpu | None
    contents: Any
    shown: int


@dataclass(eq=False)
class Function:
    """A kernel: how many words a launch gives it, and what it does with them."""

    context: Context
    name: str
    read: Callable[[int], tuple[int, ...]]  # the words behind the pointer that a launch passes
    run: Callable[[tuple[int, ...]], None]
    module: Handle | None = None


def words(count: int) -> Callable[[int], tuple[int, ...]]:
    """How a launch with so many parameters of one word each is read."""

    def read(pointers: int) -> tuple[int, ...]:
        found = (ctypes.c_void_p * count).from_address(pointers)
        return tuple(ctypes.c_uint64.from_address(p).value for p in found)

    return read


def encode(of: TileMap, address: int, into: int) -> None:
    """What stands for the driver's encoding of a map: the address, if it would take the rest."""
    itemsize = np.dtype(getattr(dtypes, of.dtype).numpy).itemsize
    strides = [step * itemsize for step in of.strides]
    assert into % 64 == 0 and (address + of.offset * itemsize) % 16 == 0
    assert all(0 < step < 1 << 40 and step % 16 == 0 for step in strides)
    assert all(1 <= side <= 256 for side in of.box) and of.box[0] * itemsize <= 128
    assert len(of.sizes) == len(of.box) == len(of.strides) + 1 <= 5
    ctypes.c_uint64.from_address(into).value = address


_ALIGNED = 256
_MEMORY = 1 << 52  # where the first device's memory begins: no address of a process is that high


class FakeDriver:
    """What `cuda.bindings.driver` offers, as far as it is used."""

    def __init__(self, memory: int = 1 << 30) -> None:
        self.gpus = [Gpu(0, 9, 132, memory), Gpu(1, 8, 60, memory)]
        self.contexts = [Context(gpu) for gpu in self.gpus]
        self.refused: list[str] = []
        self.failing: dict[str, list[int]] = {}  # statuses of the next calls, where a test says so
        self.modules: set[Handle] = set()  # that are loaded
        self.pending: set[Handle] = set()  # modules with launches since the device was last at rest
        self.launches: list[tuple[str, tuple[int, ...]]] = []  # kernel, the words it was given
        self.launched_on: list[int] = []  # the device of each
        self.calls: dict[str, int] = {}
        self.waits: list[tuple[Handle, Handle]] = []  # stream, event
        self.find_function: Callable[[Context, bytes, str], Function] | None = None
        self._blocks: dict[int, Block] = {}  # by address
        self._free = {gpu.number: _MEMORY * (gpu.number + 1) for gpu in self.gpus}
        self._stacks = threading.local()
        self._numbers = iter(range(1000, 10**9))
        names = SimpleNamespace
        self.CUmemPool_attribute = names(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
        self.CUfunction_attribute = names(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
        self.CUstreamCaptureMode = names(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
        self.CUmemLocationType = names(CU_MEM_LOCATION_TYPE_DEVICE=1)
        self.CUmemAccess_flags = names(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
        self.CUmemAccessDesc = lambda: names(location=names(type=0, id=0), flags=0)
        self.CUdevice_attribute = _Attributes()
        self.cuuint64_t = int
        self.CUstream = lambda address: Handle(self.contexts[0], "stream", address)
        self.CUDA_KERNEL_NODE_PARAMS = SimpleNamespace

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        found = getattr(type(self), "_" + name)

        def run(*arguments: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            try:
                if self.failing.get(name):
                    raise Refused(self.failing[name].pop(0))
                answer = found(self, *arguments)
            except Refused as error:
                if error.status not in MEANT:
                    self.refused.append(f"{name}: {error.status.name}")
                returns = found.__annotations__["return"]  # as many values as on success
                return (error.status,) if returns == "None" else (error.status, None)
            if answer is None:
                return (Status(0),)
            return (Status(0), *answer) if isinstance(answer, tuple) else (Status(0), answer)

        return run

    # what tests ask
    @property
    def used(self) -> int:
        """Bytes of device memory in use."""
        return sum(gpu.used for gpu in self.gpus)

    def function(self, name: str, arguments: int, device: int = 0) -> DeviceFunction:
        """A kernel that does nothing with so many arguments."""
        made = Function(self.contexts[device], name, words(arguments), lambda given: None)
        return DeviceFunction(made, None)

    def device_of(self, address: int) -> int | None:
        """The device in whose memory an address lies; None for the host's."""
        gpu = self._block(address).gpu
        return None if gpu is None else gpu.number

    def shown(self, address: int) -> int:
        """Where this process finds the contents of an address of the driver's."""
        block = self._block(address)
        return block.shown + address - block.address

    # the rules
    @property
    def _stack(self) -> list[Context]:
        found: list[Context] = self._stacks.__dict__.setdefault("stack", [])
        return found

    def _context(self, *owned: Handle | Function) -> Context:
        """The current context, to which everything given belongs."""
        if not self._stack:
            raise Refused(INVALID_CONTEXT)
        here = self._stack[-1]
        if any(one.context is not here for one in owned):
            raise Refused(INVALID_HANDLE)
        return here

    def _block(self, address: int) -> Block:
        """The block in which an address lies."""
        starts = sorted(self._blocks)
        place = bisect_right(starts, address) - 1
        found = self._blocks[starts[place]] if place >= 0 else None
        if found is None or address >= found.address + found.size:
            raise Refused(INVALID_VALUE)
        return found

    def check(self, address: int, size: int, gpu: Gpu | None) -> None:
        """Refuse memory that is not a device's, or (for none) not pinned."""
        block = self._block(address)
        if block.gpu is not gpu or block.address + block.size - address < size:
            raise Refused(INVALID_VALUE)

    # devices and contexts
    def _cuDeviceGetCount(self) -> Any:
        return len(self.gpus)

    def _cuDeviceGet(self, number: int) -> Any:
        return number

    def _cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return self.contexts[device]

    def _cuCtxSetCurrent(self, context: Context) -> None:
        self._stack[-1:] = [context]

    def _cuCtxPushCurrent(self, context: Context) -> None:
        self._stack.append(context)

    def _cuCtxPopCurrent(self) -> Any:
        return self._stack.pop()

    def _cuCtxSynchronize(self) -> None:
        here = self._context()
        self.pending = {module for module in self.pending if module.context is not here}

    def _cuDeviceGetAttribute(self, attribute: str, device: int) -> Any:
        return self.gpus[device].attribute(attribute)

    def _cuDeviceGetName(self, size: int, device: int) -> Any:
        return b"Fake" + b"\0" * 10 + b" "

    def _cuDeviceTotalMem(self, device: int) -> Any:
        return self.gpus[device].memory

    def _cuDriverGetVersion(self) -> Any:
        return 13000

    def _cuMemGetInfo(self) -> Any:
        gpu = self._context().gpu
        return gpu.memory - gpu.used, gpu.memory

    def _cuDeviceCanAccessPeer(self, device: int, peer: int) -> Any:
        return int(device != peer)

    # memory
    def _cuDeviceGetDefaultMemPool(self, device: int) -> Any:
        return self.gpus[device]

    def _cuMemPoolSetAttribute(self, pool: Gpu, attribute: int, value: int) -> None:
        assert isinstance(pool, Gpu)

    def _cuMemPoolTrimTo(self, pool: Gpu, size: int) -> None:
        assert isinstance(pool, Gpu)

    def _cuMemPoolSetAccess(self, pool: Gpu, accesses: list[Any], count: int) -> None:
        pool.readers |= {access.location.id for access in accesses[:count]}

    def _cuMemAllocAsync(self, size: int, stream: Handle) -> Any:
        gpu = self._context(stream).gpu
        if gpu.used + size > gpu.memory:
            raise Refused(OUT_OF_MEMORY)
        gpu.used += size
        gpu.peak = max(gpu.peak, gpu.used)
        return self._allocate(size, gpu)

    def _cuMemFreeAsync(self, address: int, stream: Handle) -> None:
        gpu = self._context(stream).gpu
        self.check(address, 1, gpu)
        gpu.used -= self._blocks.pop(address).size

    def _cuMemHostAlloc(self, size: int, flags: int) -> Any:
        self._context()
        return self._allocate(size, None)

    def _cuMemFreeHost(self, address: int) -> None:
        self._context()
        self.check(address, 1, None)
        del self._blocks[address]

    def _allocate(self, size: int, gpu: Gpu | None) -> int:
        contents = (ctypes.c_char * (size + _ALIGNED)).from_buffer(
            bytearray(b"\xff") * (size + _ALIGNED)  # not a number in any floating type
        )
        address = shown = -(-ctypes.addressof(contents) // _ALIGNED) * _ALIGNED
        if gpu is not None:
            address = self._free[gpu.number]
            self._free[gpu.number] += -(-(size + 1) // _ALIGNED) * _ALIGNED
        self._blocks[address] = Block(address, size, gpu, contents, shown)
        return address

    # copies
    def _cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: Handle) -> None:
        self.check(target, size, self._context(stream).gpu)
        self.check(source, size, None)
        ctypes.memmove(self.shown(target), source, size)

    def _cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: Handle) -> None:
        self.check(source, size, self._context(stream).gpu)
        ctypes.memmove(target, self.shown(source), size)  # to any memory of the host

    def _cuMemcpyAsync(self, target: int, source: int, size: int, stream: Handle) -> None:
        self.check(source, size, self._context(stream).gpu)
        self.check(target, size, self._context(stream).gpu)
        copy = Function(stream.context, "copy", lambda pointers: (), self._copy)
        if stream.captured:
            stream.nodes.append((copy, (target, source, size)))
        else:
            self._copy((target, source, size))

    def _copy(self, given: tuple[int, ...]) -> None:
        target, source, size = given
        ctypes.memmove(self.shown(target), self.shown(source), size)

    def _cuMemcpyPeerAsync(
        self, target: int, here: Context, source: int, there: Context, size: int, stream: Handle
    ) -> None:
        self._context(stream)
        self.check(target, size, here.gpu)
        self.check(source, size, there.gpu)
        ctypes.memmove(self.shown(target), self.shown(source), size)

    # streams and events
    def _made(self, kind: str) -> Handle:
        return Handle(self._context(), kind, next(self._numbers))

    def _cuStreamCreateWithPriority(self, flags: int, priority: int) -> Any:
        return self._made("stream")

    def _cuStreamSynchronize(self, stream: Handle) -> None:
        self._context(stream)

    def _cuStreamDestroy(self, stream: Handle) -> None:
        self._context(stream)

    def _cuEventCreate(self, flags: int) -> Any:
        return self._made("event")

    def _cuEventRecord(self, event: Handle, stream: Handle) -> None:
        self._context(event, stream)

    def _cuEventQuery(self, event: Handle) -> None:
        self._context(event)

    _cuStreamQuery = _cuEventSynchronize = _cuEventDestroy = _cuEventQuery

    def _cuStreamWaitEvent(self, stream: Handle, event: Handle, flags: int) -> None:
        self._context(stream)
        self.waits.append((stream, event))

    def _cuEventElapsedTime(self, begin: Handle, end: Handle) -> Any:
        self._context(begin, end)
        return 1.0

    # modules, launches, graphs
    def _cuModuleLoadData(self, image: bytes) -> Any:
        made = self._made("module")
        made.nodes.append(image)
        self.modules.add(made)
        return made

    def _cuModuleUnload(self, module: Handle) -> None:
        self._context(module)
        if module not in self.modules or module in self.pending:
            raise Refused(INVALID_HANDLE)
        self.modules.remove(module)

    def _cuModuleGetFunction(self, module: Handle, name: bytes) -> Any:
        assert self.find_function is not None, "this test loads no code"
        found = self.find_function(self._context(module), module.nodes[0], name.decode())
        found.module = module
        return found

    def _cuFuncSetAttribute(self, function: Function, attribute: int, value: int) -> None:
        self._context(function)

    def _cuLaunchKernel(self, kernel: Function, *rest: Any) -> None:
        stream, pointers = rest[7], rest[8]
        self._context(kernel, stream)
        launch = (kernel, kernel.read(pointers))
        if stream.captured:
            stream.nodes.append(launch)
        else:
            self._run(*launch)

    def _run(self, kernel: Function, given: tuple[int, ...]) -> None:
        if kernel.name == "copy":
            kernel.run(given)
            return
        for address in given:
            if self._block(address).gpu is not None:  # kernels may use pinned memory
                self.check(address, 1, kernel.context.gpu)
        if kernel.module is not None:
            if kernel.module not in self.modules:
                raise Refused(INVALID_HANDLE)
            self.pending.add(kernel.module)
        self.launches.append((kernel.name, given))
        self.launched_on.append(kernel.context.gpu.number)
        kernel.run(given)

    def _cuStreamBeginCapture(self, stream: Handle, mode: int) -> None:
        self._context(stream)
        stream.captured = True

    def _cuStreamGetCaptureInfo(self, stream: Handle) -> Any:
        self._context(stream)
        return 1, 7, "graph", [len(stream.nodes) - 1], [None], 1

    def _cuStreamEndCapture(self, stream: Handle) -> Any:
        self._context(stream)
        stream.captured = False
        graph = self._made("graph")
        graph.nodes, stream.nodes = stream.nodes, []
        return graph

    def _cuGraphInstantiate(self, graph: Handle, flags: int) -> Any:
        self._context(graph)
        made = self._made("executable")
        made.nodes = list(graph.nodes)
        return made

    def _cuGraphLaunch(self, executable: Handle, stream: Handle) -> None:
        self._context(executable, stream)
        for launch in executable.nodes:
            self._run(*launch)

    def _cuGraphExecKernelNodeSetParams(self, executable: Handle, node: int, params: Any) -> None:
        self._context(executable, params.func)
        executable.nodes[node] = (params.func, params.func.read(params.kernelParams))

    def _cuGraphDestroy(self, graph: Handle) -> None:
        self._context(graph)

    _cuGraphExecDestroy = _cuGraphDestroy


class _Attributes:
    def __getattr__(self, name: str) -> str:
        return name.removeprefix("CU_DEVICE_ATTRIBUTE_")
