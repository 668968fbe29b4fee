"""`run`: a function on simulated ranks, which are threads of this process.

Modes are kept for each thread, so gradient mode, eager mode, current device and recorded work
belong to a rank by themselves; its random stream starts where that of the caller stands. Compiled
code is shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ridgeline import devices
from ridgeline.communicators.calls import CommunicationError
from ridgeline.communicators.current import Rank, acting_as
from ridgeline.communicators.simulated_world import SimulatedWorld
from ridgeline.communicators.threads import simulated_ranks
from ridgeline.errors import BadTypeError, BadValueError
from ridgeline.functions.random import Generator, chosen_generator, of_thread
from ridgeline.record import recorder
from ridgeline.record.modes import RankState, modes
from ridgeline.record.turns import Turn, strays

T = TypeVar("T")
_LAST_WORDS = 5.0  # seconds that ranks have to end once one has failed


class _Simulated(threading.Thread):
    """One rank: what it gives, or what ended it."""

    def __init__(self, world: SimulatedWorld, rank: Rank, work: Callable[[], Any]) -> None:
        super().__init__(name=f"rank {rank.world.rank}", daemon=True)
        self._world, self._rank, self._work = world, rank, work
        self._device, self._random = devices.current.index, chosen_generator().get_state()
        self._gradients, self._eager = modes.gradients, modes.eager
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Work as this rank."""
        number = self._rank.world.rank
        try:
            self._begin()
            with acting_as(self._rank):
                self.result = self._work()
                recorder.flush()
                recorder.flush_mesh()  # what is left is computed while the others are here
        except BaseException as error:
            self.error = error
            if not isinstance(error, CommunicationError):
                self._world.fail(f"rank {number} failed: {type(error).__name__}: {error}")
            self._world.end(number, f"failed with {type(error).__name__}")
        else:
            self._world.end(number, "has returned")
        if self._rank.mailbox is not None:
            self._rank.mailbox.close()

    def _begin(self) -> None:
        """Modes and random stream are the caller's, to begin with."""
        of_thread.generator = Generator()
        of_thread.generator.set_state(self._random)
        devices.current.index = self._device
        modes.gradients, modes.eager = self._gradients, self._eager
        modes.rank, strays.turn = RankState(), Turn()


def run(function: Callable[..., T], *args: Any, ranks: int, **named: Any) -> list[T]:
    """Call a function on simulated ranks of this process; what it gives on each.

    What one rank raises ends all and is raised here.
    """
    if not callable(function):
        raise BadTypeError(f"run needs a function, not {type(function).__name__}")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise BadValueError(f"run needs at least one rank, not {ranks!r}")
    world = SimulatedWorld(ranks)
    threads = [
        _Simulated(world, Rank(each), lambda: function(*args, **named))
        for each in simulated_ranks(world)
    ]
    recorder.flush()  # what ranks share is computed once, here
    for thread in threads:
        thread.start()
    try:
        _join(threads, world)
    except BaseException as error:
        world.fail(f"the simulation was ended by {type(error).__name__}")
        raise
    _raise_first(threads)
    return [thread.result for thread in threads]


def _join(threads: list[_Simulated], world: SimulatedWorld) -> None:
    """Wait for all ranks; once one has failed, not for long."""
    failed_at = 0.0
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)
            if world.failure and not failed_at:
                failed_at = time.monotonic()
            if failed_at and time.monotonic() - failed_at > _LAST_WORDS:
                return


def _raise_first(threads: list[_Simulated]) -> None:
    """Raise what ended the simulation: an error of a rank before those that it brought about."""
    failed = [(rank, thread.error) for rank, thread in enumerate(threads) if thread.error]
    for rank, error in sorted(failed, key=lambda each: isinstance(each[1], CommunicationError)):
        assert error is not None
        error.add_note(f"on simulated rank {rank} of {len(threads)}")
        raise error
