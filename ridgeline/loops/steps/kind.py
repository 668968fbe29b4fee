"""SetKind: run an axis unrolled, in vector lanes, or in parallel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, For, Kernel, LoopKind, Stmt
from ridgeline.loops.rewrite import map_children
from ridgeline.loops.steps.repeats import check_apart
from ridgeline.loops.steps.scratch import outside_scratch
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named

_MOST_COPIES = 1 << 12  # of a body, or lanes of one vector


@dataclass(frozen=True, slots=True)
class SetKind(Step):
    """Run an axis's loops as `unroll`, `vector` or `parallel`."""

    axis: str
    kind: LoopKind
    name: ClassVar[str] = "kind"

    def apply(self, kernel: Kernel) -> Kernel:
        """Check what the kind needs, and set it."""
        if self.kind == "vector":  # scratch that a lane has for itself gets an axis of lanes
            body = at_loops(kernel.body, self.axis, outside_scratch)
            kernel = replace(kernel, body=body)
        for loop in loops_named(kernel, self.axis):
            self._check(loop)
        body = _set_kind(kernel.body, self.axis, self.kind)
        if self.kind == "parallel":
            _check_parallel(body, self.axis)
        return replace(kernel, body=body)

    def _check(self, loop: For) -> None:
        if self.kind in ("unroll", "vector") and known_extent(loop) > _MOST_COPIES:
            raise ScheduleError(
                f"{self.kind} would make {known_extent(loop)} copies of the body of {loop.name!r}",
                help="split the axis, and take the inner loop",
            )
        if self.kind in ("vector", "parallel"):
            check_apart(loop)
        if self.kind == "parallel" and loop.axis != "spatial":
            raise ScheduleError(f"iterations of loop {loop.name!r} depend on one another")
        if self.kind == "vector":
            if loop.axis == "carried":
                raise ScheduleError(f"iterations of loop {loop.name!r} run in order")
            if any(isinstance(s, (For, Alloc)) for s in ir.statements(loop.body)):
                raise ScheduleError(
                    f"only an innermost loop can be vectorized, and {loop.name!r} holds others",
                    help="reorder first",
                )


def _set_kind(statement: Stmt, name: str, kind: LoopKind) -> Stmt:
    inner = map_children(statement, lambda child: _set_kind(child, name, kind))
    return replace(inner, kind=kind) if isinstance(inner, For) and inner.name == name else inner


def _check_parallel(body: Stmt, name: str) -> None:
    """Parallel loops are the outermost ones, with nothing between them."""
    while isinstance(body, For) and body.kind == "parallel":
        if body.name == name:
            return
        body = body.body
    raise ScheduleError(f"loop {name!r} is not outermost, so it cannot be parallel")
