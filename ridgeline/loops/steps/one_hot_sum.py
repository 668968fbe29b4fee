"""OneHotSum: replace a sum with at most one nonzero term by that term.

`sum over c of select(c == e, f(c), 0)` is `f(e)` where e is a place on the axis, and 0 elsewhere:
the score of a target class is read, not searched for along the row. A term that lies in scratch is
computed again from what fills it: each thread may hold a part of the row alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, map_children, substitute
from ridgeline.loops.steps.inline import computed_again, producer
from ridgeline.loops.steps.step import ScheduleError, Step, loops_named


@dataclass(frozen=True, slots=True)
class OneHotSum(Step):
    """Replace sums over an axis that have at most one term by that term."""

    axis: str
    name: ClassVar[str] = "one_hot_sum"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Rewrite every loop that is nothing but such a sum."""
        loops_named(kernel, self.axis)
        body = self._visit(kernel.body, ())
        if body == kernel.body:
            raise ScheduleError(f"no sum over {self.axis!r} has one term alone")
        return replace(kernel, body=body)

    def _visit(self, statement: ir.Stmt, around: tuple[ir.Alloc, ...]) -> ir.Stmt:
        if isinstance(statement, ir.For) and statement.name == self.axis:
            return self._picked(statement, around)
        if isinstance(statement, ir.Alloc):
            around = (statement, *around)
        return map_children(statement, lambda inner: self._visit(inner, around))

    def _picked(self, loop: ir.For, around: tuple[ir.Alloc, ...]) -> ir.Stmt:
        fold = loop.body
        if loop.axis != "reduce" or not isinstance(fold, ir.Reduce) or fold.monoid != "sum":
            return loop
        (value,) = fold.values
        variable = ir.Var.make(self.axis)
        for test in ir.subexpressions(value):
            position = _chosen_index(test, variable)
            if position is None or not _is_zero(substitute(value, {test: _FALSE})):
                continue
            term = substitute(substitute(value, {test: _TRUE}), {variable: position})
            inside = (ir.index(0) <= position) & (position < loop.extent)
            for alloc in around:
                if _reads(term, alloc.buffer):
                    term = computed_again(term, producer(alloc.buffer, alloc.body))
            return ir.If(inside, replace(fold, values=(term,)))
        return loop


_TRUE, _FALSE = (ir.const(value, dtypes.bool_) for value in (True, False))


def _chosen_index(test: ir.Expr, variable: ir.Var) -> ir.Expr | None:
    """e, if a test is `variable == e` and e does not vary along the axis."""
    if (
        not isinstance(test, ir.OpExpr)
        or test.name != "eq"
        or test.args[0].dtype is not dtypes.int64
    ):
        return None
    left, right = test.args
    if right == variable:
        left, right = right, left
    return right if left == variable and variable.name not in free_vars(right) else None


def _reads(value: ir.Expr, buffer: ir.Buffer) -> bool:
    parts = ir.subexpressions(value)
    return any(isinstance(part, ir.Load) and part.buffer == buffer for part in parts)


def _is_zero(value: ir.Expr) -> bool:
    return isinstance(value, ir.Const) and not value.value
