"""Pad: round up the trip count of a loop, so that tiles are whole.

Beyond the end nothing is read or written: reads give zero, results are not stored, and sums of
products gain zeros. Scratch grows with the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, guarded, map_children, map_expressions, substitute
from ridgeline.loops.ir import (
    Const,
    Expr,
    For,
    If,
    Kernel,
    Load,
    OpExpr,
    Reduce,
    Stmt,
    Store,
    Var,
)
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named

_MEMORY = ("global", "stream")


@dataclass(frozen=True, slots=True)
class Pad(Step):
    """Round the length of an axis up to a multiple."""

    axis: str
    multiple: int
    name: ClassVar[str] = "pad"

    def apply(self, kernel: Kernel) -> Kernel:
        """Lengthen every loop of the axis."""
        loops_named(kernel, self.axis)
        return replace(kernel, body=at_loops(kernel.body, self.axis, self._padded))

    def _padded(self, loop: For) -> Stmt:
        length = known_extent(loop)
        if length % self.multiple == 0:
            return loop
        inside = Var.make(self.axis) < ir.index(length)
        body = map_expressions(loop.body, lambda e: self._guarded(e, inside))
        body = self._stored(body, inside)
        if loop.axis == "reduce":
            _check_zeros(body, self.axis)
        rounded = -(-length // self.multiple) * self.multiple
        return replace(loop, extent=ir.index(rounded), body=body)

    def _guarded(self, expr: Expr, inside: Expr) -> Expr:
        """Reads beyond the end give zero; the guard of a guarded read is extended."""
        mapping: dict[Expr, Expr] = {}
        nodes = ir.subexpressions(expr)
        for node in nodes:
            if is_guarded_read(node) and self._reaches(node.args[1]):  # type: ignore[attr-defined]
                assert isinstance(node, OpExpr)
                condition = node.args[0] & inside
                mapping[node] = guarded(condition, node.args[1], node.args[2])
        covered = {node.args[1] for node in mapping if isinstance(node, OpExpr)}
        for node in nodes:
            if self._reaches(node) and node not in covered:
                mapping[node] = guarded(inside, node, ir.const(0, node.dtype))
        return substitute(expr, mapping) if mapping else expr

    def _reaches(self, node: Expr) -> bool:
        return (
            isinstance(node, Load)
            and node.buffer.scope in _MEMORY
            and any(self.axis in free_vars(i) for i in node.index)
        )

    def _stored(self, statement: Stmt, inside: Expr) -> Stmt:
        inner = map_children(statement, lambda child: self._stored(child, inside))
        if isinstance(inner, Store) and inner.buffer.scope in _MEMORY:
            return If(inside, inner)
        return inner


def is_guarded_read(node: Expr) -> bool:
    """True for a read that gives zero where it must not happen."""
    return (
        isinstance(node, OpExpr)
        and node.name == "guarded"
        and isinstance(node.args[1], Load)
        and isinstance(node.args[2], Const)
        and not node.args[2].value
    )


def _check_zeros(body: Stmt, axis: str) -> None:
    """What is reduced beyond the end must be neutral: zeros in a sum of products."""
    for statement in ir.statements(body):
        if isinstance(statement, Reduce):
            term = statement.values[0]
            product = isinstance(term, OpExpr) and term.name == "mul"
            if (
                statement.monoid != "sum"
                or not product
                or not all(
                    any(is_guarded_read(n) and axis in free_vars(n) for n in ir.subexpressions(a))
                    for a in ir.children(term)
                )
            ):
                raise ScheduleError(f"folding more of {axis!r} would change the result")
