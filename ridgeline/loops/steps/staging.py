"""Where data lies: Stage packs what a loop reads into scratch, Stream writes past the caches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, substitute
from ridgeline.loops.ir import Alloc, Buffer, For, Kernel, Load, Stmt, Store, Var
from ridgeline.loops.rewrite import map_buffers, map_expressions, sequence
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, loops_named


@dataclass(frozen=True, slots=True)
class Stage(Step):
    """Copy what a loop reads of a buffer into scratch before the loop, laid out as it is read.

    This is packing: the scratch has one axis for every loop inside `before` that the address
    depends on, in the order of `axes`, so that the innermost of them walks memory in order.
    """

    buffer: str
    before: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "stage"

    def apply(self, kernel: Kernel) -> Kernel:
        """Wrap every loop of that name."""
        loops_named(kernel, self.before)
        return replace(kernel, body=at_loops(kernel.body, self.before, self._staged))

    def _staged(self, loop: For) -> Stmt:
        loads = {
            e
            for s in ir.statements(loop)
            for e in ir.subexpressions(*ir.expressions(s))
            if isinstance(e, Load) and e.buffer.name == self.buffer
        }
        if not loads:
            return loop
        if len(loads) > 1:
            raise ScheduleError(
                f"{self.buffer!r} is read in {len(loads)} ways inside {self.before!r}, not in one"
            )
        (load,) = loads
        inside = {s.name: s.extent for s in ir.statements(loop) if isinstance(s, For)}
        used = {n for i in load.index for n in free_vars(i) if n in inside}
        if used != set(self.axes):
            raise ScheduleError(
                f"what {self.buffer!r} is read at depends on {', '.join(sorted(used))}",
                help="name exactly these loops as axes",
            )
        place = tuple(Var.make(n) for n in self.axes)
        scratch = Buffer(
            f"{self.buffer}_staged", tuple(inside[n] for n in self.axes), load.dtype, "local"
        )
        copy: Stmt = Store(scratch, place, load)
        for axis in reversed(self.axes):
            kind = next(
                s.kind for s in ir.statements(loop) if isinstance(s, For) and s.name == axis
            )
            copy = For(
                axis, inside[axis], copy, "spatial", "vector" if kind == "vector" else "serial"
            )
        held = {load: Load.make(scratch, place)}
        body = map_expressions(loop, lambda e: substitute(e, held))
        return Alloc(scratch, sequence(copy, body))


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
