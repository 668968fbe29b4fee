"""Ranks that are processes under MPI: mpi4py over arrays of host memory.

All calls of MPI are made by one thread of the process, in program order (`mpi_engine.py`). Before a
collective the ranks of its group compare what they are about to call, so that ranks which
disagree end with a message and neither hang nor read each other's bytes as something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ridgeline.communicators.calls import REDUCTIONS, Call, CommunicationError
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.communicators.interface import Communicator, Work
from ridgeline.communicators.mpi_engine import Engine, MpiJob
from ridgeline.communicators.reducing import starts


class _Collective(MpiJob):
    """A call of one group: first a comparison, then the call itself."""

    def __init__(
        self,
        group: MpiCommunicator,
        call: Call,
        array: np.ndarray,
        out: np.ndarray | None,
        line: str,
    ) -> None:
        super().__init__(f"{call} along {group.axis}" + (f" at {line}" if line else ""))
        self._group, self._call, self._array, self._out = group, call, array, out
        self._fresh = np.empty(0, array.dtype)

    def prepare(self, engine: Engine) -> None:
        """Raise on all ranks of the group where they do not call the same."""
        group, call = self._group, self._call
        if call.kind in ("send", "recv"):
            return
        digest = hashlib.blake2b(repr(call.agreed).encode(), digest_size=7).digest()
        number = int.from_bytes(digest, "little")
        seen = np.array([number, -number], np.int64)
        most = np.empty_like(seen)
        mpi = group.mpi
        engine.complete(group.raw.Iallreduce(seen, most, mpi.MAX), self)
        if most[0] != -most[1]:
            self._differ(engine)
        if call.kind == "all_to_all":
            self._check_rows(engine)

    def _differ(self, engine: Engine) -> None:
        group = self._group
        told = group.raw.allgather((group.world_rank, self.what))
        calls = "; ".join(f"rank {rank} {what}" for rank, what in told)
        raise CommunicationError(f"ranks along {group.axis} call different collectives: {calls}")

    def _check_rows(self, engine: Engine) -> None:
        given, size = np.array(self._call.counts, np.int64), self._group.size
        told = np.empty(size, np.int64)
        engine.complete(self._group.raw.Ialltoall(given, told), self)
        wrong = [
            (source, int(told[source]), self._call.receives[source])
            for source in range(size)
            if told[source] != self._call.receives[source]
        ]
        flag, flags = np.array([bool(wrong)], np.int64), np.empty(1, np.int64)
        engine.complete(self._group.raw.Iallreduce(flag, flags, self._group.mpi.MAX), self)
        everywhere = self._group.raw.allgather(wrong) if flags[0] else ()
        for target, found in enumerate(everywhere):
            for source, rows, expected in found:
                raise CommunicationError(
                    f"all_to_all along {self._group.axis}: rank {source} gives rank {target} "
                    f"{rows} rows, which expects {expected}: {self.what}"
                )

    def begin(self) -> Any:
        """Start the call."""
        call, raw, mpi = self._call, self._group.raw, self._group.mpi
        given = np.ascontiguousarray(self._array)
        self._fresh = fresh = np.empty(call.result_of(self._group.rank), given.dtype)
        match call.kind:
            case "all_reduce":
                op = _reduction(mpi, call.reduction, call.dtype)
                return raw.Iallreduce(_buffer(mpi, given), _buffer(mpi, fresh), op)
            case "reduce_scatter":
                lengths = self._lengths(call.counts)
                op = _reduction(mpi, call.reduction, call.dtype)
                return raw.Ireduce_scatter(_buffer(mpi, given), _buffer(mpi, fresh), lengths, op)
            case "all_gather":
                return raw.Iallgatherv(
                    _buffer(mpi, given), _parts(mpi, fresh, self._lengths(call.counts))
                )
            case "all_to_all":
                return raw.Ialltoallv(
                    _parts(mpi, given, self._lengths(call.counts)),
                    _parts(mpi, fresh, self._lengths(call.receives)),
                )
            case "broadcast":
                np.copyto(fresh, given)
                return raw.Ibcast(_buffer(mpi, fresh), call.root)
            case "send":
                self._fresh = given  # kept until it is sent
                return raw.Isend(_buffer(mpi, given), call.root, call.tag)
            case "recv":
                return raw.Irecv(_buffer(mpi, fresh), call.root, call.tag)
        return raw.Ibarrier()

    def _lengths(self, counts: Sequence[int]) -> list[int]:
        row = int(np.prod(self._array.shape[1:], dtype=np.int64))
        return [count * row for count in counts]

    def check_received(self, nbytes: int) -> None:
        """Raise where a message has another length than the one that was asked for."""
        if self._call.kind == "recv" and nbytes != self._fresh.nbytes:
            raise CommunicationError(f"{self.what} was sent {nbytes} bytes")

    def end(self) -> np.ndarray:
        """What the rank gets."""
        call, fresh = self._call, self._fresh
        if call.kind == "send":
            return self._array
        if call.reduction == "mean":
            size = self._group.size
            whole = fresh.dtype.kind in "iu"
            fresh = (fresh // size if whole else fresh / size).astype(fresh.dtype)
        if self._out is None:
            return fresh
        np.copyto(self._out, fresh, casting="no")
        return self._out


def _buffer(mpi: Any, array: np.ndarray) -> Any:
    """An array as MPI takes it; what MPI has no type for goes as bits."""
    if array.dtype.kind in "fiucb" and array.dtype.itemsize > 2 - (array.dtype.kind in "iub"):
        return array
    bits = np.uint8 if array.dtype.itemsize == 1 else np.uint16
    return [array.view(bits), mpi.UINT8_T if bits is np.uint8 else mpi.UINT16_T]


def _parts(mpi: Any, array: np.ndarray, lengths: Sequence[int]) -> Any:
    buffer = _buffer(mpi, array)
    data, kind = (buffer, None) if isinstance(buffer, np.ndarray) else buffer
    spec = [data, (list(lengths), starts(lengths)[:-1])]
    return spec if kind is None else [*spec, kind]


@lru_cache(maxsize=64)
def _reduction(mpi: Any, reduction: str, dtype: str) -> Any:
    """MPI's own op, or one for floats that MPI does not know: each sum is rounded."""
    kind = np.dtype(dtype)
    if kind.kind in "iucb" or (kind.kind == "f" and kind.itemsize > 2):
        names = {"sum": "SUM", "mean": "SUM", "product": "PROD", "min": "MIN", "max": "MAX"}
        return getattr(mpi, "LOR" if kind.kind == "b" else names[reduction])
    step = REDUCTIONS[reduction]

    def join(given: Any, total: Any, _: Any) -> None:
        left, right = np.frombuffer(given, kind), np.frombuffer(total, kind)
        right[...] = step(left.astype(np.float32), right.astype(np.float32)).astype(kind)

    return mpi.Op.Create(join, commute=True)


class MpiCommunicator(Communicator):
    """A group of processes."""

    kind = "mpi"

    def __init__(
        self, engine: Engine, raw: Any, axis: str, key: str, counters: TrafficCounters
    ) -> None:
        super().__init__(raw.Get_rank(), raw.Get_size(), axis, key, counters)
        self.engine, self.raw, self.mpi = engine, raw, engine.mpi
        self.world_rank = engine.rank

    def _start(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        return self.engine.submit(_Collective(self, call, array, out, line))

    def _split(self, color: int, key: int, axis: str, name: str) -> MpiCommunicator:
        raw = self.engine.call(lambda: self.raw.Split(color, key), f"split along {self.axis}")
        return MpiCommunicator(self.engine, raw, axis, name, self.counters)

    def abort(self, reason: str) -> None:
        """End all processes with a message."""
        self.engine.abort(reason)


def mpi_world() -> MpiCommunicator:
    """The world of this process; MPI starts when it is asked for."""
    engine = Engine()
    return MpiCommunicator(engine, engine.mpi.COMM_WORLD, "world", "world", TrafficCounters())
