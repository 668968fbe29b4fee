"""NCCL without GPUs: ranks are threads, memory is the fake driver's, and calls meet in order.

It refuses what NCCL refuses: a handle that is not a group's, a type that it does not have, memory
of another device.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import c_void_p
from typing import Any

import numpy as np

from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.simulated_world import SimulatedWorld
from ridgeline.communicators.threads import simulated_ranks
from ridgeline.dtypes import bfloat16

from .fake_driver import FakeDriver

_TYPES = [
    np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
    np.float64, bfloat16.numpy,
]  # fmt: skip
_REDUCTIONS = ["sum", "product", "max", "min"]


class FakeNccl:
    """The functions of libnccl that are used."""

    def __init__(self, driver: FakeDriver, version: int = 22809) -> None:
        self._driver, self._version = driver, version
        self._worlds: dict[bytes, list[Any]] = {}
        self._groups: dict[int, Communicator] = {}
        self._lock, self._here = threading.Lock(), threading.local()
        self.calls: list[str] = []
        self.ncclGetErrorString = _Text()

    def ncclGetUniqueId(self, made: Any) -> int:
        made._obj.internal[:8] = list(np.random.default_rng().bytes(8))
        return 0

    def ncclGetVersion(self, made: Any) -> int:
        made._obj.value = self._version
        return 0

    def ncclCommInitRank(self, made: Any, size: Any, name: Any, rank: Any) -> int:
        with self._lock:
            key = bytes(name.internal)
            if key not in self._worlds:
                self._worlds[key] = simulated_ranks(SimulatedWorld(size.value))
            made._obj.value = self._kept(self._worlds[key][rank.value])
        return 0

    def _kept(self, group: Communicator) -> int:
        self._groups[number := len(self._groups) + 1] = group
        return number

    def ncclCommSplit(self, group: c_void_p, color: Any, key: Any, made: Any, _: Any) -> int:
        part = self._groups[group.value or 0].split(color.value, key.value)
        with self._lock:
            made._obj.value = self._kept(part)
        return 0

    def ncclCommAbort(self, group: c_void_p) -> int:
        return 0

    def ncclGroupStart(self) -> int:
        self._here.waiting = []
        return 0

    def ncclGroupEnd(self) -> int:
        waiting, self._here.waiting = self._here.waiting, None
        # messages of a group go together: what is sent is on its way before anything is awaited
        for call in sorted(waiting, key=lambda each: each[0] == "ncclRecv"):
            self._run(*call)
        return 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nccl"):
            raise AttributeError(name)

        def call(*words: Any) -> int:
            waiting = getattr(self._here, "waiting", None)
            if waiting is not None:
                waiting.append((name, *words))
            else:
                self._run(name, *words)
            return 0

        return call

    def _array(self, address: Any, count: int, kind: int) -> np.ndarray:
        dtype = np.dtype(_TYPES[kind])
        memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(
            self._driver.shown(address.value)
        )
        return np.frombuffer(memory, dtype)

    def _run(self, name: str, *words: Any) -> None:
        *given, handle, _ = words
        group, self.calls = self._groups[handle.value], [*self.calls, name]
        if name in ("ncclSend", "ncclRecv"):
            start, count, kind, peer = given
            if not count.value:
                return
            array = self._array(start, count.value, kind.value)
            (group.send if name == "ncclSend" else group.recv)(array, peer.value).wait()
            return
        source, target, count, kind, *rest = given
        if not count.value:
            return
        array = self._array(source, count.value, kind.value)
        if name == "ncclAllReduce":
            found = group.all_reduce(array, _REDUCTIONS[rest[0].value])
        elif name == "ncclReduce":
            found = group.all_reduce(array, _REDUCTIONS[rest[0].value])
            if rest[1].value != group.rank:
                return
        elif name == "ncclAllGather":
            found = group.all_gather(array)
        else:
            assert name == "ncclBroadcast", name
            found = group.broadcast(array, rest[0].value)
        self._array(target, found.size, kind.value)[:] = found


class _Text:
    restype: Any = None

    def __call__(self, status: Any) -> bytes:
        return b"unhandled"
