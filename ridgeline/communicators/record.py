"""A rank without peers that counts what it would send: only shapes go in and out.

What collectives give are arrays of zeros that take no memory, so a program of one rank of many can
be followed on one machine, and its counters read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ridgeline.communicators.calls import Call, CommunicationError
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.communicators.interface import Communicator, Finished, Work


class RecordCommunicator(Communicator):
    """A group of which one rank is there; `axes` are the sizes of groups that it is split into."""

    kind = "record"

    def __init__(
        self,
        rank: int,
        size: int,
        axes: Mapping[str, int],
        axis: str = "world",
        key: str = "world",
        counters: TrafficCounters | None = None,
    ) -> None:
        super().__init__(rank, size, axis, key, counters or TrafficCounters())
        self._axes = dict(axes)
        self.calls: list[tuple[str, Call, str]] = []  # axis, call and line, in program order

    def _start(self, call: Call, array: np.ndarray, out: np.ndarray | None, line: str) -> Work:
        self.calls.append((self.axis, call, line))
        if out is not None:
            return Finished(out)
        zeros = np.zeros((), array.dtype)
        return Finished(np.broadcast_to(zeros, call.result_of(self.rank)))

    def _split(self, color: int, key: int, axis: str, name: str) -> RecordCommunicator:
        size = self._axes.get(axis)
        if size is None:
            raise CommunicationError(
                f"how many ranks a group along {axis!r} has is not known without the others",
                help="give it among the axes of the recorded world",
            )
        made = RecordCommunicator(key % size, size, self._axes, axis, name, self.counters)
        made.calls = self.calls
        return made

    def abort(self, reason: str) -> None:
        """End the work of the one rank."""
        raise CommunicationError(f"rank {self.rank} ended the job: {reason}")
