"""What a communicator does: the collectives of a group of ranks, over arrays of host memory.

Every call can be started, which gives a `Work`, and waited for later; until then neither what
was given nor `out` may be touched. All ranks of a group start the same calls in the same order.
The order in which values are joined is fixed by the group, so that a run can be repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ridgeline.communicators.agreements import Agreement
from ridgeline.communicators.calls import Call, check, even_counts
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.errors import BadTypeError
from ridgeline.graph.origins import user_line


class Work(ABC):
    """A call under way."""

    @abstractmethod
    def done(self) -> bool:
        """True when `wait` would not have to wait."""

    @abstractmethod
    def wait(self) -> np.ndarray:
        """What this rank gets, once it is there; where `out` was given, that."""

    def over_at(self) -> float | None:
        """When it was over, by `time.perf_counter()`; None where nobody noted."""
        return None

    def expected(self) -> None:  # noqa: B027  (few have to know)
        """Somebody waits for it who cannot call `wait`."""


class Finished(Work):
    """A call that is over."""

    def __init__(self, result: np.ndarray) -> None:
        self._result = result

    def done(self) -> bool:
        """Always."""
        return True

    def wait(self) -> np.ndarray:
        """What the rank got."""
        return self._result


class Communicator(ABC):
    """A group of ranks, as one of them sees it.

    `axis` names the group in messages and counters. `key` is the same text on all ranks of the
    world for groups that were made by the same calls: programs that ranks share name groups by it.
    """

    kind: str

    def __init__(
        self, rank: int, size: int, axis: str, key: str, counters: TrafficCounters
    ) -> None:
        self.rank, self.size, self.axis, self.key = rank, size, axis, key
        self.counters = counters
        self._splits = 0

    def start(
        self, call: Call, array: np.ndarray, out: np.ndarray | None = None, line: str | None = None
    ) -> Work:
        """Start a call; `line` is the user's, for messages."""
        self.check_and_count(call)
        return self._start(call, array, out, user_line() if line is None else line)

    def check_and_count(self, call: Call) -> None:
        """Refuse what the group cannot do, and count the rest."""
        check(call, self.rank, self.size)
        self.counters.count(self.axis, call.kind, call.nbytes)

    @abstractmethod
    def _start(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        """Start a call that was checked and counted."""

    def start_posted(
        self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str, agreement: Agreement
    ) -> Work:
        """Start a call of a program's run, all of whose calls may be compared at once."""
        return self.start(call, array, out, line)

    def serve(self, mailbox: Any) -> bool:
        """Empty a rank's mailbox from now on; False where somebody else has to."""
        return False

    def rings(self, bell: Callable[[], None]) -> bool:
        """Call something whenever calls are over; False where one has to look."""
        return False

    def split(self, color: int, key: int = 0, axis: str = "") -> Communicator:
        """The group of the ranks that give the same colour, in the order of their keys."""
        self._splits += 1
        name = axis or f"{self.axis}.{self._splits}"
        return self._split(color, key, name, f"{self.key}/{self._splits}:{name}")

    @abstractmethod
    def _split(self, color: int, key: int, axis: str, name: str) -> Communicator:
        """The same, with the names of the new group."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End the work of all ranks of the world with a message."""

    # what can be called at once, and waited for

    def all_reduce(
        self, array: np.ndarray, reduction: str = "sum", out: np.ndarray | None = None
    ) -> np.ndarray:
        """The values of all ranks, joined."""
        array = _array(array)
        call = Call("all_reduce", array.shape, array.dtype.name, reduction)
        return self.start(call, array, out).wait()

    def all_gather(
        self, array: np.ndarray, counts: Sequence[int] = (), out: np.ndarray | None = None
    ) -> np.ndarray:
        """The rows of all ranks, one rank after the other; `counts` where they are not as many."""
        array = _array(array)
        lengths = tuple(counts) or (array.shape[0] if array.ndim else 0,) * self.size
        call = Call("all_gather", array.shape, array.dtype.name, counts=lengths)
        return self.start(call, array, out).wait()

    def reduce_scatter(
        self,
        array: np.ndarray,
        reduction: str = "sum",
        counts: Sequence[int] = (),
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """This rank's rows of the joined values; the first ranks have one more if need be."""
        array = _array(array)
        lengths = tuple(counts) or even_counts(array.shape[0] if array.ndim else 0, self.size)
        call = Call("reduce_scatter", array.shape, array.dtype.name, reduction, lengths)
        return self.start(call, array, out).wait()

    def all_to_all(
        self,
        array: np.ndarray,
        counts: Sequence[int] = (),
        receives: Sequence[int] = (),
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Some rows to each rank, and from each; `counts` to each, `receives` from each."""
        array = _array(array)
        lengths = tuple(counts) or even_counts(array.shape[0] if array.ndim else 0, self.size)
        known = tuple(receives) or (lengths[self.rank],) * self.size
        call = Call("all_to_all", array.shape, array.dtype.name, counts=lengths, receives=known)
        return self.start(call, array, out).wait()

    def broadcast(
        self, array: np.ndarray, root: int = 0, out: np.ndarray | None = None
    ) -> np.ndarray:
        """The values of one rank; the others give an array of the same shape."""
        array = _array(array)
        return self.start(
            Call("broadcast", array.shape, array.dtype.name, root=root), array, out
        ).wait()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.start(Call("barrier"), np.empty(0, np.uint8)).wait()

    def send(self, array: np.ndarray, to: int, tag: int = 0) -> Work:
        """Start to give an array to a rank, which calls `recv`."""
        array = _array(array)
        return self.start(Call("send", array.shape, array.dtype.name, root=to, tag=tag), array)

    def recv(self, out: np.ndarray, source: int, tag: int = 0) -> Work:
        """Start to take an array from a rank, which calls `send`, into `out`."""
        out = _array(out)
        call = Call("recv", out.shape, out.dtype.name, root=source, tag=tag)
        return self.start(call, out, out)

    def __repr__(self) -> str:
        return f"<{self.kind} communicator: rank {self.rank} of {self.size} along {self.axis}>"


def _array(value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise BadTypeError(f"a communicator takes arrays, not {type(value).__name__}")
    return value
