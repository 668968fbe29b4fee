"""The facts about a CPU that default schedules depend on, and how cores share tasks.

The thread pool gives every core an equal range of tasks (`runtime/cpu/pool_ir.py`), which it works
through in parts; a core that is done takes parts of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ridgeline.dtypes import DType
from ridgeline.loops.instructions import INSTRUCTIONS

_WAITING = 1.6  # a sum asks for fewer lines at a time than the copy that was measured
_SURE = 4  # times the least work that is worth sharing: estimates of what caches hold are high
PART_SECONDS = 4e-6  # of work that is worth fetching
SOME_PARTS = 8  # for a core, so that fast ones can take over from slow ones
LONG_SECONDS = 50e-6  # of work next to which fetching is nothing; others may wait for all of it


@dataclass(frozen=True, slots=True)
class Machine:
    """Vector width and registers of a core, its caches, and how many cores share the work.

    The last three are measured (`runtime/cpu/calibration.py`): bytes that a core moves to and from
    memory in a second while all do, its float32 operations in full vectors, and the seconds it
    takes to open and close a parallel step. Their defaults are round figures of common machines.
    `half_units` says that arithmetic units are half as wide as registers: a full vector then takes
    two passes, and vectors of half the width run twice as fast. `instructions` are those of
    `loops/instructions.py` that the machine has and that sum several products at a time.
    """

    vector_bytes: int
    registers: int
    threads: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    half_units: bool = False
    instructions: tuple[str, ...] = ()  # sorted: a machine is printed into keys of the disk cache
    core_bytes: float = 20e9
    core_flops: float = 100e9
    region_seconds: float = 1e-6

    def lanes(self, itemsize: int) -> int:
        """Elements of one vector register."""
        return self.vector_bytes // max(itemsize, 4)

    @property
    def dot_types(self) -> frozenset[DType]:
        """The element types of which its `instructions` multiply several at a time."""
        return frozenset([INSTRUCTIONS[name].right for name in self.instructions])

    @property
    def far(self) -> float:
        """The cost of reading a byte from memory, in multiply-adds of full vectors."""
        return _WAITING * self.core_flops / (2 * self.lanes(4)) / self.core_bytes


def grain(tasks: int, seconds: float, machine: Machine) -> int:
    """Tasks handed out at a time; all of them if the work is too short to share."""
    if machine.threads == 1 or seconds < shared_from(machine):
        return max(tasks, 1)
    per_task = seconds / tasks
    some = min(ceil(tasks / (machine.threads * SOME_PARTS)), int(LONG_SECONDS / per_task))
    return min(max(ceil(PART_SECONDS / per_task), some, 1), tasks)


def shared_from(machine: Machine) -> float:
    """Seconds of work from which sharing surely pays, even with two threads."""
    threads = max(machine.threads, 2)
    as_long = machine.region_seconds * threads / (threads - 1)  # equal shares and a parallel step
    return _SURE * as_long
