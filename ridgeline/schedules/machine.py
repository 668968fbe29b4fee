"""The facts of a machine that default schedules depend on."""

from __future__ import annotations

from dataclasses import dataclass

_WAITING = 1.6  # a sum asks for fewer lines at a time than the copy that was measured


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
    def far(self) -> float:
        """What a byte that no cache holds takes to read, in multiply-adds of full vectors."""
        return _WAITING * self.core_flops / (2 * self.lanes(4)) / self.core_bytes
