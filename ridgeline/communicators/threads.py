"""Simulated ranks: threads of one process that meet in memory.

The rank that comes last to a collective computes what all get, in the order of the ranks, so that
results do not depend on who comes when. A message is copied when it is sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from ridgeline.communicators.calls import MESSAGES, Call, CommunicationError
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.communicators.interface import Communicator, Finished, Work
from ridgeline.communicators.reducing import results
from ridgeline.communicators.simulated_world import SimulatedWorld


class _Meeting:
    """One collective of a group: what the ranks that are here have given."""

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}
        self.lines: dict[int, str] = {}
        self.arrays: dict[int, np.ndarray] = {}
        self.results: Sequence[np.ndarray] = ()
        self.done = False
        self.over_at: float | None = None


class _Mail:
    """Messages of one rank to another under one tag: the n-th goes to the n-th `recv` started."""

    def __init__(self) -> None:
        self.sent = self.asked = 0
        self.here: dict[int, tuple[Call, np.ndarray, str]] = {}  # by their numbers


class _Group:
    """What the ranks of one group share."""

    def __init__(self, world: SimulatedWorld, members: Sequence[int]) -> None:
        self.world = world
        self.members = tuple(members)  # their ranks in the world
        self.meetings: dict[int, _Meeting] = defaultdict(_Meeting)
        self.messages: dict[tuple[int, int, int], _Mail] = defaultdict(_Mail)
        self.parts: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)  # of split
        self.groups: dict[tuple[str, int], _Group] = {}


class _Expected(Work):
    """A call that the machine code of a rank may wait for."""

    def __init__(self, group: ThreadsCommunicator, call: Call, line: str) -> None:
        self._group, self._call = group, call
        self._what = f"{call} along {group.axis}{_at(line)}"
        self._end: Callable[[], None] | None = None  # of the waiting

    @abstractmethod
    def _is_there(self) -> bool:
        """True when nobody has to come any more."""

    @abstractmethod
    def _missing(self) -> list[int]:
        """The ranks of the group that have yet to come."""

    def done(self) -> bool:
        """True when all have come, or never will."""
        return self._is_there() or self._group.has_failed

    def expected(self) -> None:
        """The rank's program waits from now on."""
        self._end = self._group.expect(self._is_there, self._missing, self._what)

    def _wait(self) -> None:
        self._group.wait(self._is_there, self._missing, self._what)
        if self._end is not None:
            self._end()


class _Met(_Expected):
    """A collective that this rank has come to."""

    def __init__(
        self, group: ThreadsCommunicator, meeting: _Meeting, out: np.ndarray | None
    ) -> None:
        super().__init__(group, meeting.calls[group.rank], meeting.lines[group.rank])
        self._meeting, self._out = meeting, out

    def _is_there(self) -> bool:
        return self._meeting.done

    def _missing(self) -> list[int]:
        return [rank for rank in range(self._group.size) if rank not in self._meeting.calls]

    def over_at(self) -> float | None:
        """When the last rank came."""
        return self._meeting.over_at

    def wait(self) -> np.ndarray:
        """This rank's copy of what it gets."""
        self._wait()
        result = self._meeting.results[self._group.rank]
        if self._out is None:
            self._out = result.copy()
        else:
            np.copyto(self._out, result, casting="no")
        return self._out


class _Arriving(_Expected):
    """A message that this rank waits for."""

    def __init__(self, group: ThreadsCommunicator, call: Call, out: np.ndarray, line: str) -> None:
        super().__init__(group, call, line)
        self._out = out
        self._mail, self._taken = group.mail(call), False
        self._number = self._mail.asked
        self._mail.asked += 1

    def _is_there(self) -> bool:
        return self._taken or self._number in self._mail.here

    def _missing(self) -> list[int]:
        return [self._call.root]

    def wait(self) -> np.ndarray:
        """The message, in the array that it was to go to."""
        if self._taken:
            return self._out
        self._wait()
        sent, array, line = self._mail.here.pop(self._number)
        self._taken = True
        if (sent.shape, sent.dtype) != (self._call.shape, self._call.dtype):
            self._group.fail(f"{self._what} was sent {sent} by rank {self._call.root}{_at(line)}")
        np.copyto(self._out, array, casting="no")
        return self._out


class ThreadsCommunicator(Communicator):
    """A group of simulated ranks."""

    kind = "threads"

    def __init__(
        self, group: _Group, rank: int, axis: str, key: str, counters: TrafficCounters
    ) -> None:
        super().__init__(rank, len(group.members), axis, key, counters)
        self._group = group
        self._meetings = 0  # how many collectives this rank has come to

    def _start(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        self._group.world.check()
        if call.kind == "send":
            return self._send(call, array, line)
        if call.kind in MESSAGES:
            return _Arriving(self, call, array, line)
        return self._meet(call, array, out, line)

    def _send(self, call: Call, array: np.ndarray, line: str) -> Work:
        with self._group.world.changed:
            mail = self._group.messages[self.rank, call.root, call.tag]
            mail.here[mail.sent] = call, array.copy(), line
            mail.sent += 1
            self._group.world.notify()
        return Finished(array)

    def mail(self, call: Call) -> _Mail:
        """The messages to this rank of which a call takes the next."""
        with self._group.world.changed:  # who comes first, sender or receiver, makes the one box
            return self._group.messages[call.root, self.rank, call.tag]

    def _meet(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        group, number = self._group, self._meetings
        self._meetings += 1
        with group.world.changed:
            meeting = group.meetings[number]
            for other, known in meeting.calls.items():
                if known.agreed != call.agreed:
                    self._differ(call, line, other, known, meeting.lines[other])
                break
            meeting.calls[self.rank], meeting.lines[self.rank] = call, line
            meeting.arrays[self.rank] = array
            is_last = len(meeting.calls) == self.size
        if is_last:
            self._finish(meeting)
            del group.meetings[number]
        return _Met(self, meeting, out)

    def _finish(self, meeting: _Meeting) -> None:
        calls = [meeting.calls[rank] for rank in range(self.size)]
        if calls[0].kind == "all_to_all":
            self._check_lengths(calls, meeting)
        meeting.results = results(calls, [meeting.arrays[rank] for rank in range(self.size)])
        meeting.arrays.clear()
        with self._group.world.changed:
            meeting.done, meeting.over_at = True, perf_counter()
            self._group.world.notify()

    def _check_lengths(self, calls: Sequence[Call], meeting: _Meeting) -> None:
        for source, given in enumerate(calls):
            for target, taken in enumerate(calls):
                if given.counts[target] != taken.receives[source]:
                    self.fail(
                        f"all_to_all along {self.axis}: rank {source} gives rank {target} "
                        f"{given.counts[target]} rows{_at(meeting.lines[source])}, which expects "
                        f"{taken.receives[source]}{_at(meeting.lines[target])}"
                    )

    def _differ(self, call: Call, line: str, other: int, known: Call, known_line: str) -> None:
        members = self._group.members
        self.fail(
            f"ranks along {self.axis} call different collectives: rank {members[self.rank]} {call}"
            f"{_at(line)}, rank {members[other]} {known}{_at(known_line)}"
        )

    def wait(
        self, ready: Callable[[], bool], needs: Callable[[], Sequence[int]], what: str
    ) -> None:
        """Wait for ranks of this group."""
        members = self._group.members
        self._group.world.wait(
            members[self.rank], ready, lambda: [members[rank] for rank in needs()], what
        )

    def expect(
        self, ready: Callable[[], bool], needs: Callable[[], Sequence[int]], what: str
    ) -> Callable[[], None]:
        """The rank's program waits in machine code, until what is given back is called."""
        members = self._group.members
        return self._group.world.expect(
            members[self.rank], ready, lambda: [members[rank] for rank in needs()], what
        )

    @property
    def has_failed(self) -> bool:
        """True where the simulation was ended."""
        return bool(self._group.world.failure)

    def rings(self, bell: Callable[[], None]) -> bool:
        """Ring whenever a rank has come somewhere."""
        self._group.world.bells.append(bell)
        return True

    def fail(self, reason: str) -> None:
        """End all ranks, this one here."""
        self._group.world.fail(reason)
        raise CommunicationError(reason)

    def _split(self, color: int, key: int, axis: str, name: str) -> ThreadsCommunicator:
        group = self._group
        with group.world.changed:
            parts = group.parts[name]
            parts[self.rank] = (color, key)
            group.world.notify()
        self.wait(
            lambda: len(parts) == self.size,
            lambda: [rank for rank in range(self.size) if rank not in parts],
            f"split along {self.axis}",
        )
        members = sorted(
            (rank for rank, (its, _) in parts.items() if its == color),
            key=lambda rank: (parts[rank][1], rank),
        )
        with group.world.changed:
            made = group.groups.setdefault(
                (name, color), _Group(group.world, [group.members[rank] for rank in members])
            )
        return ThreadsCommunicator(made, members.index(self.rank), axis, name, self.counters)

    def abort(self, reason: str) -> None:
        """End all ranks with a message."""
        self._group.world.fail(f"rank {self._group.members[self.rank]} ended the job: {reason}")


def _at(line: str) -> str:
    return f" at {line}" if line else ""


def simulated_ranks(world: SimulatedWorld) -> list[ThreadsCommunicator]:
    """The world communicators of all ranks of a simulation."""
    group = _Group(world, range(world.size))
    return [
        ThreadsCommunicator(group, rank, "world", "world", TrafficCounters())
        for rank in range(world.size)
    ]
