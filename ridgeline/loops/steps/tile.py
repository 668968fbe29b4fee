"""Tile: cut several axes at once and run whole tiles, one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ridgeline.loops.ir import Kernel
from ridgeline.loops.steps.reorder import Reorder
from ridgeline.loops.steps.split import Split
from ridgeline.loops.steps.step import ScheduleError, Step


@dataclass(frozen=True, slots=True)
class Tile(Step):
    """Split each axis by its factor and nest all pieces (`x.0`) outside all places (`x.1`)."""

    axes: tuple[str, ...]
    factors: tuple[int, ...]
    tail: Literal["peel", "branch"] = "branch"
    name: ClassVar[str] = "tile"

    def apply(self, kernel: Kernel) -> Kernel:
        """The splits, then the reorder."""
        if len(self.axes) != len(self.factors):
            raise ScheduleError(f"{len(self.axes)} axes but {len(self.factors)} tile sizes")
        for axis, factor in zip(self.axes, self.factors):
            kernel = Split(axis, factor, self.tail).apply(kernel)
        return Reorder((*(f"{a}.0" for a in self.axes), *(f"{a}.1" for a in self.axes))).apply(
            kernel
        )
