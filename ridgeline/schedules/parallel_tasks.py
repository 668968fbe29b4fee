"""How the tasks of a kernel are shared out among cores.

The thread pool gives every core an equal range of them (`runtime/cpu/pool_ir.py`), which it works
through in parts; a core that is done takes parts of others.
"""

from __future__ import annotations

from math import ceil

from ridgeline.schedules.machine import Machine

_SURE = 4  # times the least work that is worth sharing: estimates of what caches hold are high
_PART_SECONDS = 4e-6  # of work that is worth fetching
_SOME_PARTS = 8  # for a core, so that fast ones can take over from slow ones
_LONG_SECONDS = 50e-6  # of work next to which fetching is nothing; others may wait for all of it


def grain(tasks: int, seconds: float, machine: Machine) -> int:
    """Tasks handed out at a time; all of them where the work is too short to share."""
    if machine.threads == 1 or seconds < _SURE * least_shared(machine):
        return max(tasks, 1)
    per_task = seconds / tasks
    some = min(ceil(tasks / (machine.threads * _SOME_PARTS)), int(_LONG_SECONDS / per_task))
    return min(max(ceil(_PART_SECONDS / per_task), some, 1), tasks)


def least_shared(machine: Machine) -> float:
    """Seconds of work whose equal shares take as long, with a parallel step around them."""
    return machine.region_seconds * machine.threads / (machine.threads - 1)
