"""Ranks that have a GPU each and no MPI: NCCL carries what they say to each other.

Calls take arrays of the host, as those of every communicator do: they are copied to the device, on
a stream of the group's own, and the result back when it is waited for. Before a collective the
ranks compare what they are about to call. NCCL's messages have no tags and may need their receiver
to begin: they go with the next one that is received, and a tag that is not the one expected is an
error.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from ctypes import c_int, c_void_p
from typing import Any

import numpy as np

from ridgeline.communicators.calls import Call, CommunicationError
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.communicators.interface import Communicator, Finished, Work
from ridgeline.communicators.mpi_engine import TIMEOUT
from ridgeline.communicators.reducing import starts
from ridgeline.dtypes import uint8
from ridgeline.runtime.cuda import nccl
from ridgeline.runtime.cuda.device import Device, count as gpus, device
from ridgeline.runtime.cuda.memory import DeviceBuffer, allocate
from ridgeline.runtime.cuda.stream import Event, Stream
from ridgeline.runtime.cuda.transfer import upload

_TAG = 8  # bytes of a message's tag
_TOLD = 512  # bytes of what a rank says it calls
_LONGEST_PAUSE = 1e-3


class _Enqueued(Work):
    """A call on the group's stream."""

    def __init__(
        self, group: NcclCommunicator, call: Call, held: Sequence[DeviceBuffer],
        out: np.ndarray | None, what: str,
    ) -> None:  # fmt: skip
        self._group, self._call, self._held, self._what = group, call, held, what
        self._out, self._result = out, None  # type: np.ndarray | None, np.ndarray | None
        self._event = group.stream.record_event()

    def done(self) -> bool:
        """True when the device is through with it."""
        return self._result is not None or self._event.query()

    def wait(self) -> np.ndarray:
        """What the rank gets, on the host."""
        if self._result is None:
            self._group.until(self._event.query, self._what)
            self._result = self._taken()
        return self._result

    def _taken(self) -> np.ndarray:
        call, group = self._call, self._group
        kind = np.dtype(call.dtype)
        wide = np.dtype(_carried(kind, call.reduction))
        found = np.empty(call.result_of(group.rank), wide)
        group.fetch(self._held[-1], found)
        if call.reduction == "mean":
            found = found // group.size if kind.kind in "iu" else found / group.size
        found = found.astype(kind, copy=False)
        if self._out is None:
            return found
        np.copyto(self._out, found, casting="no")
        return self._out


class _Sent(Work):
    """A message on its way."""

    def __init__(
        self, group: NcclCommunicator, held: DeviceBuffer, peer: int, array: np.ndarray, what: str
    ) -> None:
        self._group, self._array, self._what = group, array, what
        self.held, self.peer = held, peer
        self.event: Event | None = None  # once it is under way

    def done(self) -> bool:
        """True when the device is through with it."""
        return self.event is not None and self.event.query()

    def wait(self) -> np.ndarray:
        """What was sent, once it has left."""
        self._group.send_waiting()
        self._group.until(self.done, self._what)
        return self._array


class _Received(Work):
    """A message that this rank waits for."""

    def __init__(
        self, group: NcclCommunicator, call: Call, memory: DeviceBuffer, out: np.ndarray, what: str
    ) -> None:
        self._group, self._call, self._what = group, call, what
        self._memory: DeviceBuffer | None = memory
        self._out, self._event = out, group.stream.record_event()

    def done(self) -> bool:
        """True when it is there."""
        return self._event.query()

    def wait(self) -> np.ndarray:
        """The message, in the array that it was to go to."""
        if self._memory is None:
            return self._out
        self._group.until(self._event.query, self._what)
        raw = np.empty(self._memory.nbytes, np.uint8)
        self._group.fetch(self._memory, raw)
        tag = int(raw[:_TAG].view(np.int64)[0])
        if tag != self._call.tag:
            raise CommunicationError(
                f"{self._what} comes with tag {tag}: NCCL delivers messages in the order in which "
                f"they were sent, and tag {self._call.tag} was expected"
            )
        self._memory = None
        np.copyto(self._out, raw[_TAG:].view(self._out.dtype).reshape(self._out.shape))
        return self._out


def _carried(kind: np.dtype, reduction: str) -> str:
    """The type in which numbers travel: what NCCL has no sums of is widened."""
    if not reduction or kind.name in nccl.TYPES or kind.kind == "c":
        return kind.name
    return "uint8" if kind.kind == "b" else "int32" if kind.kind in "iu" else "float32"


class NcclCommunicator(Communicator):
    """A group of processes with a GPU each."""

    kind = "nccl"

    def __init__(
        self, device: Device, handle: c_void_p, place: tuple[int, int], axis: str, key: str,
        counters: TrafficCounters,
    ) -> None:  # fmt: skip
        super().__init__(*place, axis, key, counters)
        self.device, self._handle = device, handle
        self.stream = Stream(device)
        self._timeout = float(os.environ.get(TIMEOUT, "300"))
        self._waiting: list[_Sent] = []  # messages that go with the next call

    def _start(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        what = f"{call} along {self.axis}" + (f" at {line}" if line else "")
        self.device.activate()
        if call.kind in ("send", "recv"):
            return self._start_message(call, array, out, what)
        self.send_waiting()
        self._compare(call, what)
        if call.kind == "barrier":
            return Finished(array)  # all were there to compare
        wide = np.ascontiguousarray(array).astype(_carried(array.dtype, call.reduction), copy=False)
        given = allocate(self.stream, max(wide.nbytes, 1))
        upload(wide, given, self.stream)
        nbytes = int(np.prod(call.result_of(self.rank), dtype=np.int64)) * wide.itemsize
        taken = allocate(self.stream, max(nbytes, 1))
        self._enqueue(call, wide, given.device_address, taken.device_address)
        return _Enqueued(self, call, (given, taken), out, what)

    def _start_message(
        self, call: Call, array: np.ndarray, out: np.ndarray | None, what: str
    ) -> Work:
        """A message with its tag before it; one that is sent waits for company."""
        memory = allocate(self.stream, _TAG + array.nbytes)
        if call.kind == "send":
            tag = np.array([call.tag], np.int64).tobytes()
            upload(np.frombuffer(tag + array.tobytes(), np.uint8), memory, self.stream)
            self._waiting.append(_Sent(self, memory, call.root, array, what))
            return self._waiting[-1]
        with nccl.together():
            self._send_all()
            self._message("ncclRecv", memory.device_address, memory.nbytes, call.root)
        self._are_sent()
        return _Received(self, call, memory, array if out is None else out, what)

    def send_waiting(self) -> None:
        """Send what waits for company, alone."""
        if self._waiting:
            self.device.activate()
            with nccl.together():
                self._send_all()
            self._are_sent()

    def _send_all(self) -> None:
        for each in self._waiting:
            self._message("ncclSend", each.held.device_address, each.held.nbytes, each.peer)

    def _are_sent(self) -> None:
        event = self.stream.record_event()
        for each in self._waiting:
            each.event = event
        self._waiting.clear()

    def _compare(self, call: Call, what: str) -> None:
        """Raise on all ranks where they do not call the same."""
        digest = hashlib.blake2b(repr(call.agreed).encode(), digest_size=7).digest()
        number = int.from_bytes(digest, "little")
        most = self._at_once("ncclAllReduce", np.array([number, -number], np.int64), 1, what)
        if most[0] == -most[1]:
            return
        told = np.zeros(_TOLD, np.uint8)
        said = what.encode()[:_TOLD]
        told[: len(said)] = np.frombuffer(said, np.uint8)
        everyone = self._at_once("ncclAllGather", told, self.size, what).reshape(self.size, _TOLD)
        calls = "; ".join(
            f"rank {rank} {bytes(row).rstrip(bytes(1)).decode(errors='replace')}"
            for rank, row in enumerate(everyone)
        )
        raise CommunicationError(f"ranks along {self.axis} call different collectives: {calls}")

    def _at_once(self, name: str, array: np.ndarray, times: int, what: str) -> np.ndarray:
        """A small call whose result is waited for."""
        given = allocate(self.stream, array.nbytes)
        taken = allocate(self.stream, array.nbytes * times)
        upload(array, given, self.stream)
        words: list[Any] = [nccl.address(given.device_address), nccl.address(taken.device_address)]
        words += [nccl.count(array.size), c_int(nccl.TYPES[array.dtype.name])]
        words += [c_int(nccl.REDUCTIONS["max"])] if name == "ncclAllReduce" else []
        nccl.enqueue(name, self.stream.address, self._handle, *words)
        self.until(self.stream.query, what)
        found = np.empty(array.size * times, array.dtype)
        self.fetch(taken, found)
        return found

    def _enqueue(self, call: Call, array: np.ndarray, given: int, taken: int) -> None:
        """Put one call onto the stream; what reduces nothing goes as bytes."""
        row = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize
        counts = [count * row for count in call.counts]
        match call.kind:
            case "all_reduce":
                self._reduce("ncclAllReduce", call, array, given, taken, array.size)
            case "reduce_scatter":
                with nccl.together():
                    for root, begin in enumerate(starts(counts)[:-1]):
                        part = counts[root] // array.itemsize
                        self._reduce("ncclReduce", call, array, given + begin, taken, part, root)
            case "all_gather":
                with nccl.together():
                    for root, begin in enumerate(starts(counts)[:-1]):
                        self._move("ncclBroadcast", given, taken + begin, counts[root], root)
            case "all_to_all":
                self._exchange(counts, [count * row for count in call.receives], given, taken)
            case "broadcast":
                self._move("ncclBroadcast", given, taken, array.nbytes, call.root)

    def _reduce(
        self, name: str, call: Call, array: np.ndarray, given: int, taken: int, elements: int,
        root: int | None = None,
    ) -> None:  # fmt: skip
        kind, parts = array.dtype.name, 1
        if array.dtype.kind == "c":  # sums of real and of imaginary parts
            kind, parts = ("float32" if array.itemsize == 8 else "float64"), 2
        words = [nccl.address(given), nccl.address(taken), nccl.count(elements * parts)]
        words += [c_int(nccl.TYPES[kind]), c_int(nccl.REDUCTIONS[call.reduction])]
        words += [] if root is None else [c_int(root)]
        nccl.enqueue(name, self.stream.address, self._handle, *words)

    def _move(self, name: str, given: int, taken: int, nbytes: int, root: int) -> None:
        words = nccl.address(given), nccl.address(taken), nccl.count(nbytes)
        kind = c_int(nccl.TYPES["uint8"])
        nccl.enqueue(name, self.stream.address, self._handle, *words, kind, c_int(root))

    def _message(self, name: str, start: int, nbytes: int, peer: int) -> None:
        words = nccl.address(start), nccl.count(nbytes), c_int(nccl.TYPES["uint8"]), c_int(peer)
        nccl.enqueue(name, self.stream.address, self._handle, *words)

    def _exchange(self, sends: list[int], takes: list[int], given: int, taken: int) -> None:
        with nccl.together():
            for peer, (begin, end) in enumerate(zip(starts(sends), starts(takes))):
                if peer < self.size:
                    self._message("ncclSend", given + begin, sends[peer], peer)
                    self._message("ncclRecv", taken + end, takes[peer], peer)

    def fetch(self, memory: DeviceBuffer, into: np.ndarray) -> None:
        """Copy a result to the host."""
        raw = memory.array(uint8, (into.nbytes,))
        into.reshape(-1).view(np.uint8)[:] = raw

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for the device; a peer that never comes ends this rank."""
        began, pause = time.monotonic(), 1e-5
        while not ready():
            if time.monotonic() - began > self._timeout:
                nccl.abort(self._handle)
                raise CommunicationError(
                    f"rank {self.rank} waited {self._timeout:g} s in {what}",
                    help=f"{TIMEOUT} sets how long; a rank that is stuck or has ended never comes",
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _split(self, color: int, key: int, axis: str, name: str) -> NcclCommunicator:
        self.device.activate()
        mine = np.array([color, key, self.rank], np.int64)
        rows = self._at_once("ncclAllGather", mine, self.size, f"split along {self.axis}")
        alike = [(int(k), int(r)) for c, k, r in rows.reshape(-1, 3) if c == color]
        place = sorted(alike).index((key, self.rank)), len(alike)
        handle = nccl.split(self._handle, color, key)
        return NcclCommunicator(self.device, handle, place, axis, name, self.counters)

    def abort(self, reason: str) -> None:
        """End the work of this rank; its launcher ends the others."""
        nccl.abort(self._handle)
        raise CommunicationError(f"rank {self.rank} ended the job: {reason}")


def nccl_world(
    rank: int, size: int, local_rank: int, share: Callable[[bytes], bytes]
) -> NcclCommunicator:
    """The world of this process; `share` gives every rank the bytes that the first one has."""
    here = device(local_rank % gpus())
    here.activate()
    name = share(nccl.unique_id() if rank == 0 else b"")
    handle = nccl.join(size, name, rank)
    return NcclCommunicator(here, handle, (rank, size), "world", "world", TrafficCounters())
