"""How the tasks of a kernel are shared out among cores."""

from __future__ import annotations

from math import ceil

from ridgeline.schedules.machine import Machine

_SERIAL_SECONDS = 8e-6  # below this, waking another core costs more than it gives
_PART_SECONDS = 4e-6  # of work that is worth fetching
_MOST_PARTS = 8  # for a core, so that fast ones can take over from slow ones
_EVEN = 1.05  # shares that are nearly as small as the smallest, in finer parts
_TRIED = 32


def grain(tasks: int, seconds: float, machine: Machine) -> int:
    """Tasks handed out at a time; all of them where the work is too short to share.

    Parts that do not come out even leave most cores waiting for the few that do one more: of the
    sizes from the least up to twice that, the first whose largest share is about the smallest.
    """
    threads = machine.threads
    if seconds < _SERIAL_SECONDS or threads == 1:
        return max(tasks, 1)
    least = max(ceil(_PART_SECONDS * tasks / seconds), ceil(tasks / (threads * _MOST_PARTS)), 1)
    if least >= tasks:
        return tasks
    sizes = range(least, min(2 * least, tasks) + 1, ceil(least / _TRIED))
    enough = _EVEN * min(largest_share(tasks, size, threads) for size in sizes)
    return next(size for size in sizes if largest_share(tasks, size, threads) <= enough)


def largest_share(tasks: int, grain: int, threads: int) -> int:
    """The tasks of the core that has most of them, where all parts take as long."""
    return min(ceil(ceil(tasks / grain) / threads) * grain, tasks)
