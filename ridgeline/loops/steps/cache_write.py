"""CacheWrite: collect what a loop writes to a buffer in scratch, and copy it out afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import (
    free_vars,
    map_buffers,
    map_children,
    map_expressions,
    sequence,
    substitution,
)
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Kernel, Load, Reduce, Stmt, Store, Var
from ridgeline.loops.steps.cache_read import copy_loops
from ridgeline.loops.steps.regions import (
    Ranges,
    at_loops_in_range,
    extents_inside,
    in_range,
    injective,
    memory,
    reads,
    targets,
    writes,
)  # fmt: skip
from ridgeline.loops.steps.step import ScheduleError, Step, free_name, loops_named


@dataclass(frozen=True, slots=True)
class CacheWrite(Step):
    """Let a loop write into scratch instead of a buffer, and copy the scratch out after the loop.

    The scratch has one axis for every loop inside `after` that the address depends on, in the
    order of `axes`. Where the loop joins into the buffer, or writes only part of the elements, the
    scratch starts as a copy of them.
    """

    buffer: str
    after: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "cache_write"

    @property
    def scratch(self) -> str:
        """The name of the copy."""
        return f"{self.buffer}_write"

    def apply(self, kernel: Kernel) -> Kernel:
        """Wrap every loop of that name."""
        if not any(self._writes(loop) for loop in loops_named(kernel, self.after)):
            raise ScheduleError(f"nothing writes {self.buffer!r} inside {self.after!r}")
        free_name(kernel, self.scratch, f"{self.buffer!r} is collected")
        return replace(kernel, body=at_loops_in_range(kernel.body, self.after, self._collected))

    def _writes(self, loop: For) -> list[tuple[Store | Reduce, bool]]:
        return [w for w in writes(loop) if any(b.name == self.buffer for b in targets(w[0]))]

    def _collected(self, loop: For, ranges: Ranges) -> Stmt:
        found = self._writes(loop)
        if not found:
            return loop
        buffer, index = self._target(loop, found)
        inside = {s.name for s in ir.statements(loop) if isinstance(s, For)}
        used = {n for i in index for n in free_vars(i) if n in inside}
        if used != set(self.axes):
            raise ScheduleError(
                f"where {self.buffer!r} is written depends on {', '.join(sorted(used))}",
                help="name exactly these loops as axes",
            )
        extents = extents_inside(loop, used, f"{self.buffer!r} is written")
        if not injective(index, extents):
            raise ScheduleError(f"several iterations may write one element of {self.buffer!r}")
        guarded = any(condition for _, condition in found)
        if guarded and not in_range(index, buffer, ranges):
            raise ScheduleError(
                f"{self.buffer!r} is written under a condition, "
                "without which it may be out of range"
            )
        starts_as_copy = guarded or any(isinstance(w, Reduce) for w, _ in found)
        sets = guarded or any(isinstance(w, Store) for w, _ in found)
        if starts_as_copy and sets and buffer.slot < 0:  # parameters hold something from the start
            raise ScheduleError(
                f"the scratch {self.buffer!r} may hold nothing before {self.after!r}, and would be "
                "copied"
            )
        own_index = tuple(Var.make(n) for n in self.axes)
        shape = tuple(extents[n] for n in self.axes)
        scratch = Buffer(self.scratch, shape, buffer.dtype, "local")
        parts: list[Stmt] = []
        if starts_as_copy:
            fill = Store(scratch, own_index, Load.make(buffer, index))
            parts.append(copy_loops(fill, self.axes, extents, loop))
        parts.append(_redirected(loop, buffer, scratch, own_index))
        flush = Store(buffer, index, Load.make(scratch, own_index))
        parts.append(copy_loops(flush, self.axes, extents, loop))
        return Alloc(scratch, sequence(*parts))

    def _target(
        self, loop: For, found: list[tuple[Store | Reduce, bool]]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer and the one index at which all statements write it."""
        written = {w.index for w, _ in found}
        if len(written) > 1:
            raise ScheduleError(
                f"{self.buffer!r} is written in {len(written)} ways inside {self.after!r}"
            )
        if any(len(targets(w)) > 1 for w, _ in found):
            raise ScheduleError(f"{self.buffer!r} is written together with other buffers")
        buffer = next(b for b in targets(found[0][0]) if b.name == self.buffer)
        if any(memory(r.load.buffer) == memory(buffer) for r in reads(loop)):
            raise ScheduleError(f"{self.buffer!r} is also read inside {self.after!r}")
        return buffer, found[0][0].index


def _redirected(statement: Stmt, old: Buffer, new: Buffer, index: tuple[Expr, ...]) -> Stmt:
    inner = map_children(statement, lambda child: _redirected(child, old, new, index))
    if isinstance(inner, Store) and inner.buffer == old:
        return Store(new, index, inner.value)
    if isinstance(inner, Reduce) and old in inner.buffers:
        return Reduce((new,), index, inner.monoid, inner.values)
    return inner


# ---- StreamingStore: write a result past the caches ----------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamingStore(Step):
    """Write a large result with non-temporal stores, past the caches."""

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


# ---- LanesLast: scratch in which lanes are neighbours --------------------------------------------


@dataclass(frozen=True, slots=True)
class LanesLast(Step):
    """Move the first axis of scratch last: that of a loop that moved inside to be vectorised."""

    buffer: str
    name: ClassVar[str] = "lanes_last"

    def apply(self, kernel: Kernel) -> Kernel:
        """Permute the scratch and every index into it."""
        made = [s.buffer for s in ir.statements(kernel.body) if isinstance(s, Alloc)]
        if all(b.name != self.buffer or not b.shape for b in made):
            raise ScheduleError(f"there is no scratch {self.buffer!r} with axes")
        loads = {
            e: Load.make(self._turned(e.buffer), _last(e.index))
            for s in ir.statements(kernel.body)
            for e in ir.subexpressions(*ir.expressions(s))
            if isinstance(e, Load) and e.buffer.name == self.buffer
        }
        body = map_expressions(kernel.body, substitution(loads)) if loads else kernel.body
        return replace(kernel, body=self._stores(body))

    def _turned(self, buffer: Buffer) -> Buffer:
        return replace(buffer, shape=_last(buffer.shape))

    def _stores(self, statement: Stmt) -> Stmt:
        inner = map_children(statement, self._stores)
        if isinstance(inner, Alloc) and inner.buffer.name == self.buffer:
            return replace(inner, buffer=self._turned(inner.buffer))
        if isinstance(inner, Store) and inner.buffer.name == self.buffer:
            return replace(inner, buffer=self._turned(inner.buffer), index=_last(inner.index))
        if isinstance(inner, Reduce) and any(b.name == self.buffer for b in inner.buffers):
            if len(inner.buffers) > 1:
                raise ScheduleError(f"{self.buffer!r} is joined into together with other buffers")
            return replace(
                inner, buffers=(self._turned(inner.buffers[0]),), index=_last(inner.index)
            )
        return inner


def _last(axes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return (*axes[1:], *axes[:1])
