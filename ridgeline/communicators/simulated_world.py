"""The ranks that are threads of one process: who waits for whom, and how all end together.

A rank waits with a condition and a way to say whom it still needs. So what would hang elsewhere is
known at once here: a rank that needs one which has ended, and ranks that all wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ridgeline.communicators.calls import CommunicationError


@dataclass(frozen=True)
class _Waiting:
    """What a rank waits for."""

    ready: Callable[[], bool]
    needs: Callable[[], Sequence[int]]  # the ranks that have yet to come
    what: str


class SimulatedWorld:
    """What the ranks of one simulation share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.failure: str = ""
        self._ended: dict[int, str] = {}
        self._waiting: dict[int, _Waiting] = {}
        self.bells: list[Callable[[], None]] = []  # rung whenever something has changed

    def notify(self) -> None:
        """Wake all who wait; `changed` is held."""
        self.changed.notify_all()
        for bell in self.bells:
            bell()

    def expect(
        self, rank: int, ready: Callable[[], bool], needs: Callable[[], Sequence[int]], what: str
    ) -> Callable[[], None]:
        """A rank waits whose thread is in machine code, until what is given back is called."""
        expected = _Waiting(ready, needs, what)

        def end() -> None:
            with self.changed:
                if self._waiting.get(rank) is expected:
                    del self._waiting[rank]

        with self.changed:
            if not ready() and not self.failure:
                self._waiting[rank] = expected
                self._look_for_stuck_ranks()
        return end

    def check(self) -> None:
        """Raise what has ended the simulation."""
        if self.failure:
            raise CommunicationError(self.failure)

    def fail(self, reason: str) -> None:
        """End all ranks with a message; the first one counts."""
        with self.changed:
            self.failure = self.failure or reason
            self.notify()

    def end(self, rank: int, how: str) -> None:
        """A rank has ended; those that need it cannot go on."""
        with self.changed:
            self._ended[rank] = how
            self._look_for_stuck_ranks()
            self.notify()

    def wait(
        self, rank: int, ready: Callable[[], bool], needs: Callable[[], Sequence[int]], what: str
    ) -> None:
        """Wait until something holds, which the ranks that it needs bring about."""
        with self.changed:
            if ready():
                return
            self.check()
            self._waiting[rank] = _Waiting(ready, needs, what)
            try:
                self._look_for_stuck_ranks()
                self.changed.wait_for(lambda: ready() or self.failure)
            finally:
                del self._waiting[rank]
            if not ready():
                self.check()

    def _look_for_stuck_ranks(self) -> None:
        waiting = {rank: wait for rank, wait in self._waiting.items() if not wait.ready()}
        for rank, wait in sorted(waiting.items()):
            for needed in wait.needs():
                if needed in self._ended:
                    self.fail(
                        f"rank {rank} waits in {wait.what}, which rank {needed} never calls: "
                        f"it {self._ended[needed]}"
                    )
        if waiting and len(waiting) + len(self._ended) == self.size:
            waits = "; ".join(
                f"rank {rank} waits in {wait.what} for rank {', '.join(map(str, wait.needs()))}"
                for rank, wait in sorted(waiting.items())
            )
            self.fail(f"no rank can go on: {waits}")
