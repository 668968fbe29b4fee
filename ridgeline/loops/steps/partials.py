"""Partials: reduce an axis in concurrent pieces, and combine the pieces afterwards.

One launch leaves the accumulators of every piece in a workspace, a second one joins them and does
what comes after the folds. This is how few rows fill a GPU, without atomics and in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import map_children, replace_variables, sequence
from ridgeline.loops.ir import Alloc, Buffer, For, If, Kernel, Load, Reduce, Seq, Stmt, Store, Var
from ridgeline.loops.steps.step import ScheduleError, Step, known_extent


@dataclass(frozen=True, slots=True)
class Partials(Step):
    """Cut a reduce axis into `pieces`: `axis.p` counts them in the first launch, `axis.q` in the
    second. Row loops named in `rows` are called `row.j` in the second, to be scheduled apart."""

    axis: str
    pieces: int
    rows: tuple[str, ...] = ()
    name: ClassVar[str] = "partials"

    def apply(self, kernel: Kernel) -> Kernel:
        """Two nests over the same rows, with a workspace between them."""
        rows, scratch, stages = _parts(kernel.body)
        before, folds, after = self._stages(stages, set(scratch))
        index = tuple(Var.make(row.name) for row in rows)
        pieces = ir.index(self.pieces)
        shape = (pieces, *(row.extent for row in rows))
        parts = {b: Buffer(f"{b.name}_parts", shape, b.dtype, "global") for b in scratch}
        piece, turn = Var.make(f"{self.axis}.p"), Var.make(f"{self.axis}.q")
        leave = [Store(parts[b], (piece, *index), Load.make(b, ())) for b in scratch]
        cut = [self._cut(fold) for fold in folds]
        first = _wrapped(rows, scratch, sequence(*before, *cut, *leave))
        joins: list[Stmt] = []
        for reduce in _joined(folds):
            values = tuple(Load.make(parts[b], (turn, *index)) for b in reduce.buffers)
            joins.append(For(turn.name, pieces, replace(reduce, values=values), "reduce"))
        named = {name: Var.make(f"{name}.j") for name in self.rows}
        second = _wrapped(
            [replace(r, name=named[r.name].name if r.name in named else r.name) for r in rows],
            scratch,
            replace_variables(sequence(*before, *joins, *after), named),
        )
        body: Stmt = sequence(For(piece.name, pieces, first), second)
        for part in reversed(parts.values()):
            body = Alloc(part, body)
        return replace(kernel, body=body)

    def _stages(
        self, stages: tuple[Stmt, ...], scratch: set[Buffer]
    ) -> tuple[list[Stmt], list[Stmt], list[Stmt]]:
        """Initial values, reductions over the axis, and what comes after them."""
        before: list[Stmt] = []
        folds: list[Stmt] = []
        after: list[Stmt] = []
        for stage in stages:
            loops = [s for s in ir.statements(stage) if isinstance(s, For)]
            if any(s.name == self.axis and s.axis == "reduce" for s in loops):
                if after or _reads_any(stage, scratch):
                    raise ScheduleError("a fold that needs the result of another cannot be cut")
                folds.append(stage)
            elif isinstance(stage, Store) and stage.buffer in scratch:
                before.append(stage)
            elif loops:
                raise ScheduleError("what follows the folds runs over the columns again")
            else:
                after.append(stage)
        if not folds:
            raise ScheduleError(f"nothing is folded over {self.axis!r}")
        return before, folds, after

    def _cut(self, fold: Stmt) -> Stmt:
        if isinstance(fold, For) and fold.name == self.axis:
            length = known_extent(fold)
            step = -(-length // self.pieces)
            start = Var.make(f"{self.axis}.p") * ir.index(step)
            position = start + Var.make(self.axis)
            body = replace_variables(fold.body, {self.axis: position})
            if step * self.pieces != length:
                body = If(position < ir.index(length), body)
            return replace(fold, extent=ir.index(step), body=body)
        return map_children(fold, self._cut)


def _parts(body: Stmt) -> tuple[list[For], list[Buffer], tuple[Stmt, ...]]:
    rows: list[For] = []
    scratch: list[Buffer] = []
    while isinstance(body, For) and body.axis == "spatial":
        rows.append(body)
        body = body.body
    while isinstance(body, Alloc):
        scratch.append(body.buffer)
        body = body.body
    if any(buffer.shape for buffer in scratch):
        raise ScheduleError("a row that is kept in scratch cannot be cut")
    return rows, scratch, body.body if isinstance(body, Seq) else (body,)


def _wrapped(rows: list[For], scratch: list[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(scratch):
        body = Alloc(buffer, body)
    for row in reversed(rows):
        body = replace(row, body=body)
    return body


def _joined(folds: list[Stmt]) -> list[Reduce]:
    return [s for fold in folds for s in ir.statements(fold) if isinstance(s, Reduce)]


def _reads_any(stage: Stmt, scratch: set[Buffer]) -> bool:
    return any(
        isinstance(e, Load) and e.buffer in scratch
        for s in ir.statements(stage)
        for e in ir.subexpressions(*ir.expressions(s))
    )
