"""Python's cyclic garbage collector, paused while a graph is captured and compiled.

These stages make many objects that are kept and hardly any cycles: every look at all of them costs
time and finds nothing.
"""

from __future__ import annotations

import gc
from itertools import repeat
from operator import call, getitem

from ridgeline.atomic import Block, at_fork

# Whether collection was on when each block was entered. With blocks in several threads the first
# one alone finds it on, and whoever leaves last turns it on again: it is the last to take one off.
_was_on: list[bool] = []
_choices = {}.clear, gc.enable  # nothing to do where it was off


def _forked() -> None:
    """The threads that would have turned collection on again are not in the child."""
    if any(_was_on):
        _was_on[:] = [False] * len(_was_on)
        gc.enable()


at_fork(after_in_child=_forked)


def is_on() -> bool:
    """Whether it runs of itself, or would where no block pauses it."""
    return gc.isenabled() or any(_was_on)


# `with paused:` no automatic collection in any thread
paused = Block(
    zip(map(_was_on.append, map(call, repeat(gc.isenabled))), map(call, repeat(gc.disable))),
    map(call, map(getitem, repeat(_choices), map(list.pop, repeat(_was_on)))),
)
