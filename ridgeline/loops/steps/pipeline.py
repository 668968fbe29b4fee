"""Pipeline: fill scratch some iterations ahead of its use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops.analysis.pipelined_loops import parts
from ridgeline.loops.ir import Alloc, For, Kernel, Pipe, Stmt
from ridgeline.loops.steps.regions import memory, reads, written_memory
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, loops_named


@dataclass(frozen=True, slots=True)
class Pipeline(Step):
    """Let a loop that first fills scratch and then uses it fill `stages - 1` iterations ahead."""

    axis: str
    stages: int = 2
    name: ClassVar[str] = "pipeline"

    def apply(self, kernel: Kernel) -> Kernel:
        """Mark every loop of the axis."""
        if self.stages < 2:
            raise ScheduleError(f"a pipeline has at least 2 stages, not {self.stages}")
        loops_named(kernel, self.axis)
        return replace(kernel, body=at_loops(kernel.body, self.axis, self._piped))

    def _piped(self, loop: For) -> Stmt:
        if loop.kind != "serial":
            raise ScheduleError(f"loop {loop.name!r} runs as {loop.kind}, not one after another")
        if not isinstance(loop.body, Alloc):
            raise ScheduleError(
                f"loop {loop.name!r} fills no scratch", help="cache_read inside it first"
            )
        buffers, fill, use = parts(loop)
        if fill is None or use is None:
            raise ScheduleError(f"loop {loop.name!r} does not fill scratch first and use it then")
        scratch = set(map(memory, buffers))
        if written_memory(use) & scratch:
            raise ScheduleError("what uses the scratch also writes it")
        if {memory(r.load.buffer) for r in reads(fill)} & written_memory(use):
            raise ScheduleError("what fills the scratch reads what its use writes")
        return Pipe(self.stages, loop)
