"""Split: one axis becomes pieces and the places inside a piece."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from ridgeline.loops import ir
from ridgeline.loops.build import add, floordiv, lt, minimum, mul, op
from ridgeline.loops.ir import Expr, For, If, Kernel, Stmt, Var
from ridgeline.loops.rewrite import replace_variables, sequence
from ridgeline.loops.steps.repeats import check_repeatable
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named

Tail = Literal["peel", "branch", "guard", "repeat"]


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Cut an axis into `axis.0` (pieces) and `axis.1` (within a piece of `factor`).

    Where the factor does not divide, `peel` runs the rest after the pieces, `branch` makes it a
    last, shorter piece, chosen by a test outside the inner loops, `guard` tests every place, and
    `repeat` fills the last piece up by running the last place again, which writes what it wrote.
    """

    axis: str
    factor: int
    tail: Tail = "peel"
    name: ClassVar[str] = "split"

    def apply(self, kernel: Kernel) -> Kernel:
        """Rewrite every loop of the axis."""
        loops_named(kernel, self.axis)
        if not isinstance(self.factor, int) or self.factor < 1:
            raise ScheduleError(
                f"cannot split {self.axis!r} into pieces of {self.factor!r}",
                help="a piece has a whole number of iterations",
            )
        if self.tail not in get_args(Tail):
            known = ", ".join(get_args(Tail))
            raise ScheduleError(f"a tail is one of {known}, not {self.tail!r}")
        return replace(kernel, body=at_loops(kernel.body, self.axis, self._split))

    def _split(self, loop: For) -> Stmt:
        if self.tail == "guard":
            return self._guarded(loop)
        length, factor = known_extent(loop), self.factor
        whole, rest = divmod(length, factor)
        outer, inner = f"{self.axis}.0", f"{self.axis}.1"
        base = mul(Var.make(outer), ir.index(factor))

        def piece(start: Expr, size: int) -> For:
            place = add(start, Var.make(inner))
            body = replace_variables(loop.body, {loop.name: place})
            return For(inner, ir.index(size), body, loop.axis, loop.kind)

        if whole == 0:
            return piece(ir.index(0), rest)
        if rest == 0:
            return For(outer, ir.index(whole), piece(base, factor), loop.axis, loop.kind)
        if self.tail == "peel":
            pieces = For(outer, ir.index(whole), piece(base, factor), loop.axis, loop.kind)
            return sequence(pieces, piece(ir.index(whole * factor), rest))
        if self.tail == "repeat":
            check_repeatable(loop)
            place = minimum(add(base, Var.make(inner)), ir.index(length - 1))
            body = replace_variables(loop.body, {loop.name: place})
            within = For(inner, ir.index(factor), body, loop.axis, loop.kind)
            return For(outer, ir.index(whole + 1), within, loop.axis, loop.kind)
        full = lt(Var.make(outer), ir.index(whole))
        body = sequence(
            If(full, piece(base, factor)),
            If(op("not", full), piece(ir.index(whole * factor), rest)),
        )
        return For(outer, ir.index(whole + 1), body, loop.axis, loop.kind)

    def _guarded(self, loop: For) -> Stmt:
        """Pieces of one length, also of a loop whose length is known only at run time."""
        outer, inner = f"{self.axis}.0", f"{self.axis}.1"
        factor = ir.index(self.factor)
        pieces = floordiv(add(loop.extent, ir.index(self.factor - 1)), factor)
        place = add(mul(Var.make(outer), factor), Var.make(inner))
        body = replace_variables(loop.body, {loop.name: place})
        if mul(pieces, factor) != loop.extent:
            body = If(lt(place, loop.extent), body)
        piece = For(inner, factor, body, loop.axis, loop.kind)
        return For(outer, pieces, piece, loop.axis, loop.kind)
