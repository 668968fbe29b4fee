"""Reorder: nest axes in another order, cutting sequences and widening scratch on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars
from ridgeline.loops.ir import Alloc, Expr, For, If, Kernel, Seq, Stmt, Var
from ridgeline.loops.rewrite import sequence
from ridgeline.loops.steps.scratch import widened
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, loops_named


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Nest the named axes in this order, outermost first.

    Independent (spatial) loops may move inwards past anything: what a loop body keeps in scratch
    is widened by an axis, and a sequence is cut into one loop per part.
    """

    order: tuple[str, ...]
    name: ClassVar[str] = "reorder"

    def apply(self, kernel: Kernel) -> Kernel:
        """Move loops inwards, innermost first."""
        for name in self.order:
            loops_named(kernel, name)
        if len(set(self.order)) < len(self.order):
            raise ScheduleError(f"an axis is named twice in {', '.join(self.order)}")
        body = kernel.body
        for position in range(len(self.order) - 1, 0, -1):
            moved, past = self.order[position], set(self.order[:position])
            for loop in loops_named(replace(kernel, body=body), moved):
                inside = {s.name for s in ir.statements(loop.body) if isinstance(s, For)}
                if loop.axis != "spatial" and inside & past and not _perfect(loop, past):
                    raise ScheduleError(
                        f"loop {moved!r} folds values in order and cannot move past "
                        f"{', '.join(sorted(inside & past))}"
                    )
            body = at_loops(body, moved, partial(_push_past, past))
        return replace(kernel, body=body)


def _perfect(loop: For, past: set[str]) -> bool:
    """True when only loops that fold lie between a folding loop and where it moves to."""
    body = loop.body
    while isinstance(body, For) and body.name in past:
        if body.axis != "reduce":
            return False
        body = body.body
    return not any(isinstance(s, For) and s.name in past for s in ir.statements(body))


def _push_past(past: set[str], loop: For) -> Stmt:
    return _push(loop, loop.body, past)


def _push(loop: For, body: Stmt, past: set[str], tests: tuple[Expr, ...] = ()) -> Stmt:
    """The loop moved inside `body`, together with the tests on its variable that stood between."""
    if not any(isinstance(s, For) and s.name in past for s in ir.statements(body)):
        return _innermost(loop, body, tests)
    if isinstance(body, Seq):
        return sequence(*(_push(loop, part, past, tests) for part in body.body))
    if isinstance(body, For) and body.name in past:
        if loop.name in free_vars(body.extent):
            raise ScheduleError(f"the length of loop {body.name!r} depends on {loop.name!r}")
        return replace(body, body=_push(loop, body.body, past, tests))
    if isinstance(body, If):
        if loop.name in free_vars(body.guard):
            return _push(loop, body.body, past, (*tests, body.guard))
        return replace(body, body=_push(loop, body.body, past, tests))
    if isinstance(body, Alloc):
        old = body.buffer
        if any(loop.name in free_vars(size) for size in old.shape):
            raise ScheduleError(f"the size of scratch {old.name!r} depends on {loop.name!r}")
        wide = replace(old, shape=(loop.extent, *old.shape))
        variable = Var.make(loop.name)
        return Alloc(wide, _push(loop, widened(body.body, old, wide, variable), past, tests))
    return _innermost(loop, body, tests)


def _innermost(loop: For, body: Stmt, tests: tuple[Expr, ...]) -> Stmt:
    for test in reversed(tests):
        body = If(test, body)
    return replace(loop, body=body)
