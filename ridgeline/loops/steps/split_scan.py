"""SplitScan: a scan in pieces that run side by side, each beginning where those before it end.

One launch leaves the total of every piece in a workspace; in a second one each piece joins the
totals of those before it and scans on from there. What is scanned is read twice and written once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import add, lt, mul, select
from ridgeline.loops.ir import For, If, Kernel, Stmt, Var
from ridgeline.loops.rewrite import replace_variables, sequence
from ridgeline.loops.steps.scans import Scan, fields, loads, scan_of, stores
from ridgeline.loops.steps.step import ScheduleError, Step


@dataclass(frozen=True, slots=True)
class SplitScan(Step):
    """Cut the axis of a scan into `pieces`, which `axis.p` counts; `axis.f` folds a piece in the
    first launch, `axis.q` joins the pieces before one in the second."""

    axis: str
    pieces: int
    name: ClassVar[str] = "split_scan"

    def apply(self, kernel: Kernel) -> Kernel:
        """Two nests over the same pieces and rows."""
        if self.pieces < 1:
            raise ScheduleError(f"a scan has no {self.pieces} pieces")
        scan = scan_of(kernel, self.axis)
        if scan.inside or not scan.stores:
            what = "cut already" if scan.inside else "a fold, not a scan"
            raise ScheduleError(f"the scan along {self.axis!r} is {what}")
        index = tuple(Var.make(row.name) for row in scan.rows)
        piece, turn = Var.make(f"{self.axis}.p"), Var.make(f"{self.axis}.q")
        pieces = ir.index(self.pieces)
        shape = (pieces, *(row.extent for row in scan.rows))
        parts = fields(scan.totals, f"{self.axis}_pieces", shape, "global")
        begin = stores(scan.totals, (), scan.neutral)
        fold = self._piece(scan, f"{self.axis}.f", scan.join, scan.folds)
        leave = stores(parts, (piece, *index), loads(scan.totals))
        earlier = tuple(
            select(lt(turn, piece), value, first)
            for value, first in zip(loads(parts, (turn, *index)), scan.neutral)
        )
        joins = For(turn.name, pieces, scan.joined(scan.totals, earlier), scan.folds)
        step = sequence(scan.join, *scan.stores)
        rest = self._piece(scan, self.axis, step, "carried")
        body: Stmt = sequence(
            For(piece.name, pieces, scan.wrapped(sequence(begin, fold, leave))),
            For(piece.name, pieces, scan.wrapped(sequence(begin, joins, rest))),
        )
        for part in reversed(parts):
            body = ir.Alloc(part, body)
        return replace(kernel, body=body)

    def _piece(self, scan: Scan, name: str, body: Stmt, kind: ir.AxisKind) -> For:
        """A loop over the elements of a piece."""
        length = -(-scan.length // self.pieces)
        place = add(mul(Var.make(f"{self.axis}.p"), ir.index(length)), Var.make(name))
        body = replace_variables(body, {self.axis: place})
        if length * self.pieces != scan.length:
            body = If(lt(place, ir.index(scan.length)), body)
        return For(name, ir.index(length), body, kind)
