"""Memory of the interpreter: data, what was written, and which iteration touched what.

The race detector keeps, for every enclosing concurrent loop, the last iteration that touched each
element. An element touched by two iterations of one execution of that loop must only be read, or,
under a reduce loop, only be joined.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ridgeline.dtypes import DType
from ridgeline.loops.ir import AxisKind, Buffer
from ridgeline.scalars import Array

READ, WRITE, JOIN, _SEVERAL = 1, 2, 4, 8
Bits = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Level:
    """A concurrent loop being executed: which execution and iteration each lane belongs to."""

    name: str
    axis: AxisKind
    executions: Integers
    iterations: Integers

    def of(self, lanes: Array) -> Level:
        """The same for a selection of lanes."""
        return Level(self.name, self.axis, self.executions[lanes], self.iterations[lanes])


@dataclass(slots=True)
class _Shadow:
    execution: Integers
    iteration: Integers
    flags: Bits


@dataclass(slots=True)
class FlatMemory:
    """A flat piece of memory. `depth` is how many concurrent loops enclose its allocation."""

    data: Array
    depth: int = 0
    initialised: Flags | None = None  # None: contents came from outside
    fetched: Flags | None = None
    produced: Flags | None = None
    _shadows: dict[int, _Shadow] = field(default_factory=dict)

    @classmethod
    def uninitialised(cls, size: int, dtype: DType, depth: int) -> FlatMemory:
        """New memory whose first contents must not be read."""
        return cls(np.zeros(size, dtype.numpy), depth, np.zeros(size, np.bool_))

    def clash(self, elements: Array, kind: int, levels: list[Level]) -> tuple[int, Level] | None:
        """Record an access by all lanes; returns a lane and loop with a race, if any."""
        for depth in range(self.depth, len(levels)):
            lane = self._clash_at(depth, elements, kind, levels[depth])
            if lane is not None:
                return lane, levels[depth]
        return None

    def _clash_at(self, depth: int, elements: Array, kind: int, level: Level) -> int | None:
        shadow = self._shadows.get(depth)
        if shadow is None:
            size = len(self.data)
            shadow = self._shadows[depth] = _Shadow(
                np.full(size, -1), np.zeros(size, np.int64), np.zeros(size, np.uint8)
            )
        fresh = shadow.execution[elements] != level.executions
        renewed = elements[fresh]
        shadow.execution[renewed] = level.executions[fresh]
        shadow.iteration[renewed] = level.iterations[fresh]
        shadow.flags[renewed] = 0
        # lanes of one batch that touch the same element: one of them is recorded, the rest differ
        other = (shadow.iteration[elements] != level.iterations) & (
            shadow.execution[elements] == level.executions
        )
        shadow.flags[elements] |= np.uint8(kind)
        shadow.flags[elements[other]] |= np.uint8(_SEVERAL)
        bad = np.flatnonzero(_clashes(shadow.flags[elements], level.axis))
        return int(bad[0]) if len(bad) else None

    def track(self) -> None:
        """Start noting which elements are fetched and produced."""
        self.fetched = np.zeros(len(self.data), np.bool_)
        self.produced = np.zeros(len(self.data), np.bool_)


def _clashes(flags: Bits, axis: AxisKind) -> Flags:
    unsafe: Flags = (flags & (WRITE | JOIN)) != 0
    if axis == "reduce":
        mixed = (flags & (READ | JOIN)) == (READ | JOIN)
        unsafe = ((flags & WRITE) != 0) | mixed
    several: Flags = (flags & _SEVERAL) != 0
    return np.logical_and(several, unsafe)


@dataclass(frozen=True, slots=True)
class Binding:
    """A buffer in scope: its memory, its sizes, and the offset of each lane's own copy."""

    buffer: Buffer
    storage: FlatMemory
    shape: tuple[int, ...]
    origins: Integers

    def of(self, lanes: Array) -> Binding:
        """The same for a selection of lanes."""
        return Binding(self.buffer, self.storage, self.shape, self.origins[lanes])
