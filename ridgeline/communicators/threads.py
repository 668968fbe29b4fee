"""Simulated ranks: threads of one process that meet in memory.

The rank that comes last to a collective computes what all get, in the order of the ranks, so that
results do not depend on who comes when. A message is copied when it is sent.
"""

from __future__ import annotations

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


class _Met(Work):
    """A collective that this rank has come to."""

    def __init__(
        self, group: ThreadsCommunicator, meeting: _Meeting, out: np.ndarray | None
    ) -> None:
        self._group, self._meeting, self._out = group, meeting, out

    def done(self) -> bool:
        """True when all ranks have come."""
        return self._meeting.done

    def over_at(self) -> float | None:
        """When the last rank came."""
        return self._meeting.over_at

    def wait(self) -> np.ndarray:
        """This rank's copy of what it gets."""
        group, meeting = self._group, self._meeting
        call, line = meeting.calls[group.rank], meeting.lines[group.rank]
        group.wait(
            lambda: meeting.done,
            lambda: [rank for rank in range(group.size) if rank not in meeting.calls],
            f"{call} along {group.axis}{_at(line)}",
        )
        result = meeting.results[group.rank]
        if self._out is None:
            self._out = result.copy()
        else:
            np.copyto(self._out, result, casting="no")
        return self._out


class _Arriving(Work):
    """A message that this rank waits for."""

    def __init__(self, group: ThreadsCommunicator, call: Call, out: np.ndarray, line: str) -> None:
        self._group, self._call, self._out, self._line = group, call, out, line
        self._mail, self._taken = group.mail(call), False
        self._number = self._mail.asked
        self._mail.asked += 1

    def done(self) -> bool:
        """True when it was sent."""
        return self._taken or self._number in self._mail.here

    def wait(self) -> np.ndarray:
        """The message, in the array that it was to go to."""
        if self._taken:
            return self._out
        mail, number = self._mail, self._number
        what = f"{self._call} along {self._group.axis}{_at(self._line)}"
        self._group.wait(lambda: number in mail.here, lambda: [self._call.root], what)
        sent, array, line = mail.here.pop(number)
        self._taken = True
        if (sent.shape, sent.dtype) != (self._call.shape, self._call.dtype):
            self._group.fail(f"{what} was sent {sent} by rank {self._call.root}{_at(line)}")
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
            self._group.world.changed.notify_all()
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
            self._group.world.changed.notify_all()

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

    def fail(self, reason: str) -> None:
        """End all ranks, this one here."""
        self._group.world.fail(reason)
        raise CommunicationError(reason)

    def _split(self, color: int, key: int, axis: str, name: str) -> ThreadsCommunicator:
        group = self._group
        with group.world.changed:
            parts = group.parts[name]
            parts[self.rank] = (color, key)
            group.world.changed.notify_all()
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
