"""OneHotSum: a sum in which one term alone is not zero is that term.

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
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Op,
    Reduce,
    Stmt,
    Var,
)
from ridgeline.loops.steps.inline import computed_again, producer
from ridgeline.loops.steps.step import ScheduleError, Step, loops_named


@dataclass(frozen=True, slots=True)
class OneHotSum(Step):
    """Replace sums over an axis that have at most one term by that term."""

    axis: str
    name: ClassVar[str] = "one_hot_sum"

    def apply(self, kernel: Kernel) -> Kernel:
        """Rewrite every loop that does nothing but such a sum."""
        loops_named(kernel, self.axis)
        body = self._visit(kernel.body, ())
        if body == kernel.body:
            raise ScheduleError(f"no sum over {self.axis!r} has one term alone")
        return replace(kernel, body=body)

    def _visit(self, statement: Stmt, around: tuple[Alloc, ...]) -> Stmt:
        if isinstance(statement, For) and statement.name == self.axis:
            return self._picked(statement, around)
        if isinstance(statement, Alloc):
            around = (statement, *around)
        return map_children(statement, lambda inner: self._visit(inner, around))

    def _picked(self, loop: For, around: tuple[Alloc, ...]) -> Stmt:
        fold = loop.body
        if loop.axis != "reduce" or not isinstance(fold, Reduce) or fold.monoid != "sum":
            return loop
        (value,) = fold.values
        variable = Var.make(self.axis)
        for test in ir.subexpressions(value):
            place = _place(test, variable)
            if place is None or not _is_zero(substitute(value, {test: _FALSE})):
                continue
            term = substitute(substitute(value, {test: _TRUE}), {variable: place})
            inside = (ir.index(0) <= place) & (place < loop.extent)
            for alloc in around:
                if _reads(term, alloc.buffer):
                    term = computed_again(term, producer(alloc.buffer, alloc.body))
            return If(inside, replace(fold, values=(term,)))
        return loop


_TRUE, _FALSE = (ir.const(value, dtypes.bool_) for value in (True, False))


def _place(test: Expr, variable: Var) -> Expr | None:
    """e, if a test is `variable == e` and e is the same along the axis."""
    if not isinstance(test, Op) or test.name != "eq" or test.args[0].dtype is not dtypes.int64:
        return None
    left, right = test.args
    if right == variable:
        left, right = right, left
    return right if left == variable and variable.name not in free_vars(right) else None


def _reads(value: Expr, buffer: Buffer) -> bool:
    parts = ir.subexpressions(value)
    return any(isinstance(part, Load) and part.buffer == buffer for part in parts)


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and not value.value
