"""Ranks that are processes under MPI: mpi4py over arrays of host memory.

All calls of MPI are made by one thread of the process, those of a group in program order
(`mpi_engine.py`). Before a collective the ranks of its group compare what they are about to call,
or all that a program does, so that ranks which disagree end with a message and neither hang nor
read each other's bytes as something else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ridgeline.communicators.agreements import Agreement, differ, one_call, words_of
from ridgeline.communicators.calls import (
    MESSAGES,
    REDUCTIONS,
    Call,
    CommunicationError,
    even_counts,
)
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.communicators.interface import Communicator, Work
from ridgeline.communicators.mpi_engine import Engine, MpiJob
from ridgeline.communicators.reducing import starts

T = TypeVar("T")
_IN_TWO = 64 << 10  # bytes from which on an array is reduced in two calls


class _InTurn(MpiJob):
    """A call that all ranks of a group make in the same order.

    MPI matches them by their order, so one is started when the one before was, and what a run of a
    program calls is not parted: the ranks have agreed on all of it.
    """

    def __init__(self, what: str, group: MpiCommunicator, agreement: Agreement | None) -> None:
        super().__init__(what)
        self._group, self._agreement = group, agreement

    def in_turn(self, start: Generator[Any, None, T]) -> Generator[Any, None, T]:
        """Requests that are over, and what they come to, before a later call is started."""
        group = self._group
        group.waiting.append(self)
        try:
            while not self._has_turn():
                yield None
        finally:
            group.waiting.remove(self)
        group.starting = self
        try:
            return (yield from start)
        finally:
            group.starting = None

    def _has_turn(self) -> bool:
        group, last = self._group, self._group.last
        if last is None or last.is_through:
            last = None
        elif last is not self._agreement and last.run.is_left:
            raise CommunicationError(
                f"{self.what} cannot be made: a program ended early on this rank in the middle of "
                f"its collectives along {group.axis}, with which other ranks go on",
                help="let the error that ended it end the rank, and with it the job",
            )
        found = (job for job in group.waiting if last is None or job._agreement is last)
        return group.starting is None and next(found, None) is self


class _Split(_InTurn):
    """Groups that are made of a group."""

    def __init__(self, group: MpiCommunicator, color: int, key: int) -> None:
        super().__init__(f"split along {group.axis}", group, None)
        self._named = color, key
        self.made: Any = None

    def steps(self) -> Iterator[Any]:
        """Split, which waits for all ranks: nothing that they wait for is left behind."""
        return self.in_turn(self._made())

    def _made(self) -> Generator[Any, None, None]:
        while self._group.engine.parted:
            yield None
        self.made = self._group.raw.Split(*self._named)

    def end(self) -> np.ndarray:
        """Nothing: the group is kept."""
        return np.empty(0)


class _Collective(_InTurn):
    """A call of one group: first a comparison, where there is something to compare."""

    def __init__(
        self,
        group: MpiCommunicator,
        call: Call,
        array: np.ndarray,
        out: np.ndarray | None,
        line: str,
        agreement: Agreement | None = None,
    ) -> None:
        super().__init__(words_of(call, group.axis, line), group, agreement)
        self._call, self._array, self._out, self._line = call, array, out, line
        self.is_message = call.kind == "recv"
        self._fresh = np.empty(0, array.dtype)
        self._counts: Sequence[int] = ()  # of elements, where parts that are joined are gathered

    def steps(self) -> Iterator[Any]:
        """Agree with the other ranks, make the call, and gather the parts of a large sum."""
        if self._call.kind in MESSAGES:
            yield self._begin()
            return
        yield (yield from self.in_turn(self._started()))
        if not self._counts:
            return
        group = self._group
        while group.gathering[0] is not self:
            yield None
        group.gathering.popleft()
        group.engine.parted -= 1
        yield self._gather()

    def _started(self) -> Generator[Any, None, Any]:
        yield from self._agree()
        group = self._group
        if self._goes_in_two and group.beside is None:
            group.beside, request = group.raw.Idup()
            yield request
        return self._begin()

    def _agree(self) -> Iterator[Any]:
        """Raise on all ranks of the group where they do not call the same."""
        group, agreement = self._group, self._agreement
        calls = one_call(self._call, group.axis, self._line)
        if agreement is not None:
            group.last, calls = agreement, agreement.calls
            agreement.begun += 1
            if agreement.is_refused:
                raise CommunicationError(f"{self.what}: the ranks run different programs")
        if agreement is None or agreement.begun == 1:
            seen = np.array([calls.digest, -calls.digest], np.int64)
            most = np.empty_like(seen)
            yield group.raw.Iallreduce(seen, most, group.mpi.MAX)
            if most[0] != -most[1]:
                if agreement is not None:
                    agreement.is_refused = True
                raise differ(group.axis, group.raw.allgather((group.world_rank, calls)))
        if self._call.kind == "all_to_all":
            yield from self._check_rows()

    def _check_rows(self) -> Iterator[Any]:
        given, size = np.array(self._call.counts, np.int64), self._group.size
        told = np.empty(size, np.int64)
        yield self._group.raw.Ialltoall(given, told)
        wrong = [
            (source, int(told[source]), self._call.receives[source])
            for source in range(size)
            if told[source] != self._call.receives[source]
        ]
        flag, flags = np.array([bool(wrong)], np.int64), np.empty(1, np.int64)
        yield self._group.raw.Iallreduce(flag, flags, self._group.mpi.MAX)
        everywhere = self._group.raw.allgather(wrong) if flags[0] else ()
        for target, found in enumerate(everywhere):
            for source, rows, expected in found:
                raise CommunicationError(
                    f"all_to_all along {self._group.axis}: rank {source} gives rank {target} "
                    f"{rows} rows, which expects {expected}: {self.what}"
                )

    def _begin(self) -> Any:
        """Start the call: MPI's request."""
        call, raw, mpi = self._call, self._group.raw, self._group.mpi
        given = np.ascontiguousarray(self._array)
        self._fresh = fresh = self._result_memory(given)
        match call.kind:
            case "all_reduce" if self._goes_in_two:
                return self._reduced_in_two(given)
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

    def _result_memory(self, given: np.ndarray) -> np.ndarray:
        """Where MPI puts what this rank gets: where it is wanted, if that is one piece."""
        shape, out = self._call.result_of(self._group.rank), self._out
        if out is None or (out.shape, out.dtype) != (shape, given.dtype):
            return np.empty(shape, given.dtype)
        is_read = self._call.kind != "recv" and np.may_share_memory(out, given)
        return out if out.flags.c_contiguous and not is_read else np.empty(shape, given.dtype)

    def _reduced_in_two(self, given: np.ndarray) -> Any:
        """Each rank joins its part, and gathers those of the others.

        MPI's all-reduce sends everything to several ranks; of large arrays it takes three times as
        long as these two calls.
        """
        group, call, mpi = self._group, self._call, self._group.mpi
        self._counts = even_counts(given.size, group.size)
        op = _reduction(mpi, call.reduction, call.dtype)
        parts = _buffer(mpi, given.reshape(-1)), _buffer(mpi, self._own_part())
        request = group.raw.Ireduce_scatter(*parts, self._counts, op)
        group.gathering.append(self)
        group.engine.parted += 1
        return request

    @property
    def _goes_in_two(self) -> bool:
        return self._call.kind == "all_reduce" and self._call.nbytes >= _IN_TWO

    def _own_part(self) -> np.ndarray:
        rank = self._group.rank
        begin = starts(self._counts)[rank]
        return self._fresh.reshape(-1)[begin : begin + self._counts[rank]]

    def _gather(self) -> Any:
        group, mpi = self._group, self._group.mpi
        self._divide(self._own_part())
        parts = _parts(mpi, self._fresh.reshape(-1), self._counts)
        return group.beside.Iallgatherv(mpi.IN_PLACE, parts)

    def has_come(self) -> bool:
        """True where a message is here; it has to have the length that was asked for."""
        if not self.is_message:
            return False
        mpi = self._group.mpi
        status = mpi.Status()
        if not self.request.Test(status):
            return False
        nbytes = status.Get_count(mpi.BYTE)
        if nbytes != self._fresh.nbytes:
            raise CommunicationError(f"{self.what} was sent {nbytes} bytes")
        return True

    def _divide(self, total: np.ndarray) -> None:
        """Make a sum a mean, in its place."""
        if self._call.reduction == "mean":
            size = self._group.size
            (np.floor_divide if total.dtype.kind in "iu" else np.divide)(
                total, total.dtype.type(size), out=total, casting="unsafe"
            )

    def _lengths(self, counts: Sequence[int]) -> list[int]:
        row = int(np.prod(self._array.shape[1:], dtype=np.int64))
        return [count * row for count in counts]

    def end(self) -> np.ndarray:
        """What the rank gets."""
        call, fresh = self._call, self._fresh
        if call.kind == "send":
            return self._array
        if not self._goes_in_two:
            self._divide(fresh)
        if self._out is None or self._out is fresh:
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
        self.waiting: list[_InTurn] = []
        self.starting: _InTurn | None = None
        self.last: Agreement | None = None  # of the program that called last
        # second halves of calls, which have an order of their own, and a copy of `raw` for them
        self.gathering: deque[_Collective] = deque()
        self.beside: Any = None

    def _start(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        return self.engine.submit(_Collective(self, call, array, out, line))

    def start_posted(
        self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str, agreement: Agreement
    ) -> Work:
        """Start a call that was compared with the others of its run."""
        self.check_and_count(call)
        return self.engine.submit(_Collective(self, call, array, out, line, agreement))

    def _split(self, color: int, key: int, axis: str, name: str) -> MpiCommunicator:
        split = _Split(self, color, key)
        self.engine.submit(split).wait()
        return MpiCommunicator(self.engine, split.made, axis, name, self.counters)

    def serve(self, mailbox: Any) -> bool:
        """The thread that calls MPI empties it."""
        self.engine.empty(mailbox)
        return True

    def abort(self, reason: str) -> None:
        """End all processes with a message."""
        self.engine.abort(reason)


def mpi_world() -> MpiCommunicator:
    """The world of this process; MPI starts when it is asked for."""
    engine = Engine()
    return MpiCommunicator(engine, engine.mpi.COMM_WORLD, "world", "world", TrafficCounters())
