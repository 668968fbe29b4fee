"""Stream: write a result past the caches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops.ir import Buffer, Kernel
from ridgeline.loops.rewrite import map_buffers
from ridgeline.loops.steps.step import ScheduleError, Step


@dataclass(frozen=True, slots=True)
class Stream(Step):
    """Write a result past the caches, because it is too large to be read again from them."""

    buffer: str
    name: ClassVar[str] = "stream"

    def apply(self, kernel: Kernel) -> Kernel:
        """Move the parameter to the `stream` scope."""

        def change(buffer: Buffer) -> Buffer:
            return replace(buffer, scope="stream") if buffer.name == self.buffer else buffer

        if all(b.name != self.buffer for b in kernel.params):
            raise ScheduleError(f"there is no parameter {self.buffer!r}")
        params = tuple(change(b) for b in kernel.params)
        return replace(kernel, params=params, body=map_buffers(kernel.body, change))
