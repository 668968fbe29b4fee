"""A plan as native code reads it: an array of 64-bit words.

First a head (see `Head`), then the (slot, offset) pairs of the arena, then the steps. A kernel call
is its function, tasks, grain, number of arguments, and the arguments' slots; loops and branches
are in `control_words`.
"""

from __future__ import annotations

from enum import IntEnum


class Head(IntEnum):
    """The words at the start of a plan."""

    POOL = 0
    STEPS = 1
    SLOTS = 2
    ADDRESSES = 3
    ARENA = 4
    WIDEST = 5  # the most arguments of any step
    PARALLEL = 6  # how many steps may use several threads
    ESTIMATE = 7  # nanoseconds the parallel steps take one thread; 0: not known yet; the code's
    ELAPSED = 8  # nanoseconds the plan last took on a stream; 0: not known yet; the stream's
    WORDS = 9


def load_head(name: str, word: Head) -> str:
    """IR that reads a word of the head of %plan into %name."""
    return (
        f"%{name}.at = getelementptr i64, ptr %plan, i64 {int(word)}\n"
        f"  %{name} = load i64, ptr %{name}.at"
    )
