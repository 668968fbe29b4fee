"""The facts of a machine that default schedules depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Vector width and registers of a core, its caches, and how many cores share the work."""

    vector_bytes: int
    registers: int
    threads: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    def lanes(self, itemsize: int) -> int:
        """Elements of one vector register."""
        return self.vector_bytes // max(itemsize, 4)
