"""A driver without a GPU: device memory is host memory, streams run at once, launches are noted.

Only what the runtime calls is here, with the driver's own names and ways to answer.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any


class Status(int):
    """A status with the driver's name for it."""

    @property
    def name(self) -> str:
        return {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY"}.get(int(self), "CUDA_ERROR")


class FakeDriver:
    """What `cuda.bindings.driver` offers, as far as it is used."""

    def __init__(self, memory: int = 1 << 30) -> None:
        self.memory, self.used = memory, 0
        self.blocks: dict[int, Any] = {}
        self.launches: list[tuple[Any, tuple[int, ...]]] = []  # kernel, the words it was given
        self.calls: dict[str, int] = {}
        self.capturing: dict[int, list[Any]] = {}
        self.waits: list[tuple[int, int]] = []  # stream, event
        self._handles = iter(range(1000, 10**9))
        self.arguments = 0  # how many words each launch reads
        names = SimpleNamespace
        self.CUmemPool_attribute = names(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
        self.CUfunction_attribute = names(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
        self.CUstreamCaptureMode = names(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
        self.CUdevice_attribute = _Attributes()
        self.cuuint64_t = int
        self.CUDA_KERNEL_NODE_PARAMS = SimpleNamespace

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        found = getattr(type(self), "_" + name, None)

        def run(*arguments: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            answer = found(self, *arguments) if found is not None else ()
            if isinstance(answer, Status):
                return (answer,) if answer == 0 else (answer, None)
            return (Status(0), *answer) if isinstance(answer, tuple) else (Status(0), answer)

        return run

    # devices
    def _cuDeviceGetCount(self) -> Any:
        return 2

    def _cuDeviceGet(self, number: int) -> Any:
        return number

    def _cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return f"context {device}"

    def _cuDeviceGetAttribute(self, attribute: str, device: int) -> Any:
        values = {"COMPUTE_CAPABILITY_MAJOR": 9, "MULTIPROCESSOR_COUNT": 132}
        return values.get(attribute, 0)

    def _cuDeviceGetName(self, size: int, device: int) -> Any:
        return b"Fake" + b"\0" * 10 + b" "

    def _cuDeviceTotalMem(self, device: int) -> Any:
        return self.memory

    def _cuDriverGetVersion(self) -> Any:
        return 13000

    def _cuMemGetInfo(self) -> Any:
        return self.memory - self.used, self.memory

    # memory
    def _cuDeviceGetDefaultMemPool(self, device: int) -> Any:
        return "pool"

    def _cuMemAllocAsync(self, size: int, stream: Any) -> Any:
        if self.used + size > self.memory:
            return Status(2)
        return self._allocate(size)

    def _cuMemHostAlloc(self, size: int, flags: int) -> Any:
        return self._allocate(size)

    def _allocate(self, size: int) -> int:
        block = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        self.blocks[address] = (block, size)
        self.used += size
        return address

    def _cuMemFreeAsync(self, address: int, stream: Any) -> Any:
        self.used -= self.blocks.pop(address)[1]
        return ()

    def _copy(self, target: int, source: int, size: int, stream: Any) -> Any:
        ctypes.memmove(target, source, size)
        return ()

    _cuMemcpyHtoDAsync = _cuMemcpyDtoHAsync = _cuMemcpyAsync = _copy

    # streams and events
    def _cuStreamCreateWithPriority(self, flags: int, priority: int) -> Any:
        return next(self._handles)

    def _cuEventCreate(self, flags: int) -> Any:
        return next(self._handles)

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        self.waits.append((stream, event))
        return ()

    def _cuEventElapsedTime(self, begin: int, end: int) -> Any:
        return 1.0

    # modules, launches, graphs
    def _cuModuleLoadData(self, image: bytes) -> Any:
        return image

    def _cuModuleGetFunction(self, module: bytes, name: bytes) -> Any:
        return name.decode()

    def _words(self, pointers: int) -> tuple[int, ...]:
        found = (ctypes.c_void_p * self.arguments).from_address(pointers)
        return tuple(ctypes.c_uint64.from_address(p).value for p in found)

    def _cuLaunchKernel(self, kernel: Any, *rest: Any) -> Any:
        stream, pointers = rest[7], rest[8]
        noted = (kernel, self._words(pointers))
        if stream in self.capturing:
            self.capturing[stream].append(noted)
        else:
            self.launches.append(noted)
        return ()

    def _cuStreamBeginCapture(self, stream: int, mode: int) -> Any:
        self.capturing[stream] = []
        return ()

    def _cuStreamGetCaptureInfo(self, stream: int) -> Any:
        node = len(self.capturing[stream]) - 1
        return 1, 7, "graph", [node], [None], 1

    def _cuStreamEndCapture(self, stream: int) -> Any:
        return self.capturing.pop(stream)

    def _cuGraphInstantiate(self, graph: list[Any], flags: int) -> Any:
        return list(graph)

    def _cuGraphLaunch(self, executable: list[Any], stream: int) -> Any:
        self.launches.extend(executable)
        return ()

    def _cuGraphExecKernelNodeSetParams(self, executable: Any, node: int, params: Any) -> Any:
        executable[node] = (params.func, self._words(params.kernelParams))
        return ()


class _Attributes:
    def __getattr__(self, name: str) -> str:
        return name.removeprefix("CU_DEVICE_ATTRIBUTE_")
