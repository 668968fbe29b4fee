"""What the ranks of a group compare before they call, so that those which differ get a message.

A call by itself is compared by itself. A compiled program knows all that it will call along a
group: the ranks compare a hash of that, which is computed once, before the first call of a run, and
the others go on without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from ridgeline.communicators.calls import Call, CommunicationError


@dataclass(frozen=True)
class GroupCalls:
    """All that a program calls along a group: in words, and the part that ranks have alike."""

    words: tuple[str, ...]
    agreed: tuple[str, ...]

    @cached_property
    def digest(self) -> int:
        """A number that is the same for ranks that may go on together."""
        text = "\n".join(self.agreed)
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")


class ProgramRun:
    """What ranks have to know of one run of a program."""

    is_left = False  # it ended early: what it has not called yet, it never will


@dataclass(eq=False)
class Agreement:
    """How far one run of a program has come along a group."""

    calls: GroupCalls
    run: ProgramRun
    begun: int = 0
    is_refused: bool = False  # the ranks differ, and all of them know

    @property
    def is_through(self) -> bool:
        """True where nothing comes any more for which ranks have to stay in step."""
        return self.is_refused or self.begun == len(self.calls.words)


def words_of(call: Call, axis: str, line: str) -> str:
    """A call for people: what, along which axis, and at which line."""
    return f"{call} along {axis}" + (f" at {line}" if line else "")


def one_call(call: Call, axis: str, line: str) -> GroupCalls:
    """A call by itself."""
    return GroupCalls((words_of(call, axis, line),), (repr(call.agreed),))


def differ(axis: str, said: Sequence[tuple[int, GroupCalls]]) -> CommunicationError:
    """The error of ranks that want different calls, by their numbers in the world."""
    if all(len(each.words) == 1 for _, each in said):
        words = "; ".join(f"rank {rank} {each.words[0]}" for rank, each in said)
        return CommunicationError(f"ranks along {axis} call different collectives: {words}")
    first = said[0]
    other = next(each for each in said if each[1].digest != first[1].digest)
    pairs = zip_longest(first[1].agreed, other[1].agreed)
    place = next(number for number, (ours, theirs) in enumerate(pairs) if ours != theirs)
    words = "; ".join(
        f"rank {rank} {each.words[place] if place < len(each.words) else 'nothing more'}"
        for rank, each in (first, other)
    )
    longest = max(len(each.words) for each in (first[1], other[1]))
    return CommunicationError(
        f"ranks along {axis} run programs with different collectives: {words} "
        f"(number {place + 1} of {longest})",
        help="a rank that takes another way through the program calls something else; what depends "
        "on the rank must not hold collectives",
    )
