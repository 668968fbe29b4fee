"""The facts of a machine that default schedules depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Vector width and registers of a core, its caches, and how many cores share the work.

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

    def lanes(self, itemsize: int) -> int:
        """Elements of one vector register."""
        return self.vector_bytes // max(itemsize, 4)
