"""Bind: map the iterations of an axis to the blocks of a GPU or to the threads of a block.

A bound loop keeps its plain meaning. Iterations must be independent, or meet in nothing but joins:
threads that fold into one accumulator are joined by the code generator (shuffles and shared
memory), and joins into a kernel's results become atomic. Threads come in powers of two, so that a
thread's place is a few bits of its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ridgeline.loops import ir
from ridgeline.loops.build import map_children
from ridgeline.loops.ir import Alloc, Buffer, For, Kernel, Reduce, Seq, Stmt, Store
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.steps.nest import check_apart
from ridgeline.loops.steps.step import ScheduleError, Step, known_extent, loops_named


@dataclass(frozen=True, slots=True)
class Bind(Step):
    """Map an axis to the blocks of the `grid`, or to the `thread`s of a block."""

    axis: str
    kind: Literal["grid", "thread"]
    name: ClassVar[str] = "bind"

    def apply(self, kernel: Kernel) -> Kernel:
        """Check the conditions of the binding, and set it."""
        if self.kind not in ("grid", "thread"):
            raise ScheduleError(
                f"a loop is bound to the grid or to threads, not to {self.kind!r}",
                help='bind(axis, "grid") or bind(axis, "thread")',
            )
        for loop in loops_named(kernel, self.axis):
            if loop.axis == "carried":
                _check_only_joins(loop)
            check_apart(loop)
            if self.kind == "thread":
                _check_power_of_two(loop)
        body = self._bound(kernel.body)
        if self.kind == "grid":
            outermost = {loop.name for nest in launches(body) for loop in _leading(nest)}
            if self.axis not in outermost:
                raise ScheduleError(f"loop {self.axis!r} is not outermost: it cannot be the grid")
            for loop in loops_named(replace(kernel, body=body), self.axis):
                if loop.axis == "reduce":
                    _check_joins_results(loop)
        return replace(kernel, body=body)

    def _bound(self, statement: Stmt) -> Stmt:
        inner = map_children(statement, self._bound)
        if isinstance(inner, For) and inner.name == self.axis:
            axis = "reduce" if inner.axis == "carried" else inner.axis
            return replace(inner, kind=self.kind, axis=axis)
        return inner


def launches(body: Stmt) -> Iterator[Stmt]:
    """The parts of a kernel that run one after another on the whole GPU.

    Adjacent statements for a single thread are one part.
    """
    together: list[Stmt] = []
    for part in _parts(body):
        if any(isinstance(s, For) and s.kind in ("grid", "thread") for s in ir.statements(part)):
            yield from _one(together)
            together = []
            yield part
        else:
            together.append(part)
    yield from _one(together)


def _parts(body: Stmt) -> Iterator[Stmt]:
    if isinstance(body, Alloc) and body.buffer.scope == "global":
        yield from _parts(body.body)
    elif isinstance(body, Seq):
        for part in body.body:
            yield from _parts(part)
    else:
        yield body


def _one(parts: list[Stmt]) -> Iterator[Stmt]:
    if parts:
        yield parts[0] if len(parts) == 1 else Seq(tuple(parts))


def _leading(nest: Stmt) -> Iterator[For]:
    while isinstance(nest, For) and nest.kind == "grid":
        yield nest
        nest = nest.body


def _check_power_of_two(loop: For) -> None:
    threads = known_extent(loop)
    if threads & (threads - 1):
        raise ScheduleError(
            f"loop {loop.name!r} runs {threads} times, and threads come in powers of two",
            help="split it with tail='guard' first",
        )


def _check_only_joins(loop: For) -> None:
    """Iterations may run in any order if all they do is combine into memory."""
    own = {s.buffer for s in ir.statements(loop.body) if isinstance(s, Alloc)}
    joined: set[Buffer] = set()
    for statement in ir.statements(loop.body):
        if isinstance(statement, Store) and statement.buffer not in own:
            raise ScheduleError(f"iterations of loop {loop.name!r} depend on one another")
        if isinstance(statement, Reduce):
            if not MONOIDS[statement.monoid].commutative:
                raise ScheduleError(f"loop {loop.name!r} joins in order")
            joined.update(statement.buffers)
    for statement in ir.statements(loop.body):
        for expr in ir.subexpressions(*ir.expressions(statement)):
            if isinstance(expr, ir.Load) and expr.buffer in joined - own:
                raise ScheduleError(f"loop {loop.name!r} reads what it joins into")


def _check_joins_results(loop: For) -> None:
    """Blocks may only meet in the kernel's results, one value at a time."""
    own = {s.buffer for s in ir.statements(loop.body) if isinstance(s, Alloc)}
    for statement in ir.statements(loop.body):
        if isinstance(statement, Reduce) and not own.issuperset(statement.buffers):
            scopes = {b.scope for b in statement.buffers}
            if len(statement.buffers) > 1 or scopes != {"global"}:
                raise ScheduleError(
                    f"blocks cannot join into {statement.buffers[0].name!r}",
                    help="give every block an accumulator of its own (rfactor) first",
                )
