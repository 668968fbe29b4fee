"""Stream: write a result past the caches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.ir import Buffer, Kernel, Reduce, Stmt, Store
from ridgeline.loops.rewrite import map_buffers
from ridgeline.loops.steps.step import ScheduleError, Step


@dataclass(frozen=True, slots=True)
class StreamingStore(Step):
    """Write a result past the caches, because it is too large to be read again from them."""

    buffer: str
    name: ClassVar[str] = "stream"

    def apply(self, kernel: Kernel) -> Kernel:
        """Move the parameter to the `stream` scope."""

        def change(buffer: Buffer) -> Buffer:
            return replace(buffer, scope="stream") if buffer.name == self.buffer else buffer

        if all(b.name != self.buffer for b in kernel.params):
            raise ScheduleError(f"there is no parameter {self.buffer!r}")
        if not any(_writes(s, self.buffer) for s in ir.statements(kernel.body)):
            raise ScheduleError(f"nothing writes {self.buffer!r}, so there is nothing to stream")
        params = tuple(change(b) for b in kernel.params)
        return replace(kernel, params=params, body=map_buffers(kernel.body, change))


def _writes(statement: Stmt, name: str) -> bool:
    if isinstance(statement, Store):
        return statement.buffer.name == name
    return isinstance(statement, Reduce) and any(b.name == name for b in statement.buffers)
