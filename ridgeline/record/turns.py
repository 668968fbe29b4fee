"""Turns: locks on mutable state, so that threads which write the same state take turns.

State that one trace or one optimizer writes has one lock, a `Turn`, which others that write to some
of it take too; what they write besides has a turn of its own. Turns are numbered and taken in the
order of their numbers, so that no two calls wait for each other. What writes to nothing takes none.

State that nobody has claimed, such as a tensor that a jitted function is given and writes to,
shares one turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count, repeat
from operator import call
from typing import Any, TypeVar

from ridgeline.atomic import Block, at_fork
from ridgeline.weak import WeakMap, WeakSet

T = TypeVar("T")
AGAIN: Any = object()  # stands for the result of a call that has to be dispatched anew


class Tried(Block):
    """A lock that is taken if it is free; acquired and released by C code, see `atomic.py`."""

    __slots__ = ("_taken",)

    def __init__(self, lock: threading.RLock) -> None:
        self._taken: list[bool] = []
        ends = (int, lock.release)
        super().__init__(
            map(self._taken.append, map(lock.acquire, repeat(False))),
            map(call, map(ends.__getitem__, map(list.pop, repeat(self._taken)))),
        )

    @property
    def is_mine(self) -> bool:
        """True if the lock was free."""
        return self._taken[-1]


class Turn:
    """A lock for one call at a time, reentrant within a thread."""

    __slots__ = ("__weakref__", "_last", "lock", "number")
    _numbers = count()

    def __init__(self) -> None:
        self.number = next(Turn._numbers)
        self.lock = threading.RLock()
        self._last = 0  # the thread whose call came last
        _all.add(self)

    def tried(self) -> Tried:
        """A block that has the turn if it is free: `is_mine` says so inside."""
        return Tried(self.lock)

    def passed_to_me(self) -> bool:
        """True if the previous call was another thread's; the lock is held."""
        here = threading.get_ident()
        before, self._last = self._last, here
        return before != here and before != 0


_all: WeakSet[Turn] = WeakSet()
_turns: WeakMap[Any, Turn] = WeakMap()  # by cell or generator


class _Strays(threading.local):
    """The turn of state that nobody has claimed; simulated ranks, which wait for one another while
    they hold it, have one each.
    """

    turn = Turn()


strays = _Strays()


def turn_of(thing: Any) -> Turn:
    """The turn of a piece of state."""
    return _turns.get(thing) or strays.turn


def in_turn_of(thing: Any, step: Callable[[], T]) -> T:
    """Run a step that writes one piece of state, holding its turn."""
    while True:
        turn = turn_of(thing)
        with turn.lock:
            if turn_of(thing) is turn:  # else somebody claimed it in the meantime
                return step()


def claimed(state: Sequence[Any]) -> tuple[Turn, ...]:
    """The turns of some state, in order; state without one gets a new one."""
    found = [_turns.get(thing) for thing in state]
    if None in found:
        with strays.turn.lock:  # no call is under way that takes some of it for a stray
            found = [_turns.get(thing) for thing in state]
            own = Turn() if None in found else None
            for index, thing in enumerate(state):
                if found[index] is None and own is not None:
                    found[index] = _turns[thing] = own
    return in_order(turn for turn in found if turn is not None)


def in_order(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Turns in the order in which they are taken."""
    return tuple(sorted(set(turns), key=lambda turn: turn.number))


def _unchanged() -> None:
    return None


def in_turn(
    turns: Sequence[Turn],
    step: Callable[[], Any],
    changed: Callable[[], str | None] = _unchanged,
) -> Any:
    """Run a step while holding all of its turns; `AGAIN` if it must not run now."""
    if not turns:
        return step()
    with turns[0].lock:
        if turns[0].passed_to_me() and changed() is not None:
            return AGAIN
        return in_turn(turns[1:], step, changed)


def _before_fork() -> None:
    """A child gets the state that complete steps left."""
    for turn in in_order(_all):
        turn.lock.acquire()


def _after_fork() -> None:
    for turn in _all:
        turn.lock.release()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
