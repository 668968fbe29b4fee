"""SplitScan: a scan in pieces. BlockScan: a scan by the threads of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import map_expressions, replace_variables, select, sequence, substitution
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named

Buffers = tuple[ir.Buffer, ...]
Exprs = tuple[ir.Expr, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """A kernel that only scans: its rows, the running value, and what it does with an element."""

    rows: tuple[ir.For, ...]
    length: int
    join: ir.Reduce
    stores: tuple[ir.Store, ...]  # none for a fold
    inside: bool  # the loop stands in pieces already

    @property
    def totals(self) -> Buffers:
        """The running value."""
        return self.join.buffers

    @property
    def neutral(self) -> Exprs:
        """The initial value."""
        return MONOIDS[self.join.monoid].init(tuple(b.dtype for b in self.totals))

    @property
    def folds(self) -> ir.AxisKind:
        """The kind of a loop that only combines."""
        return "reduce" if MONOIDS[self.join.monoid].commutative else "carried"

    def joined(self, buffers: Buffers, values: Sequence[ir.Expr]) -> ir.Reduce:
        """Combine values into accumulators."""
        return replace(self.join, buffers=buffers, values=tuple(values))

    def wrapped(self, body: ir.Stmt) -> ir.Stmt:
        """Statements that use the running value, in the loops over rows."""
        for total in reversed(self.totals):
            body = ir.Alloc(total, body)
        for row in reversed(self.rows):
            body = replace(row, body=body)
        return body


def scan_of(kernel: ir.Kernel, axis: str) -> Scan:
    """The scan along an axis, if it can be computed by combining elements in another grouping."""
    (loop,) = loops_named(kernel, axis)
    rows: list[ir.For] = []
    body = kernel.body
    inside = isinstance(body, ir.Alloc) and body.buffer.scope == "global"
    while isinstance(body, ir.For):
        rows.append(body)
        body = body.body
    parts = loop.body
    while isinstance(parts, ir.If):
        parts = parts.body
    join, *rest = parts.body if isinstance(parts, ir.Seq) else (parts,)
    kept = tuple(s for s in rest if isinstance(s, ir.Store))
    if (
        loop.axis == "spatial" or not isinstance(join, ir.Reduce) or join.index
        or len(kept) < len(rest) or any(s.buffer in join.buffers for s in kept)
        or _reads(join.values, join.buffers)
    ):  # fmt: skip
        raise ScheduleError(f"loop {axis!r} is not a scan by a running value")
    return Scan(tuple(rows), known_extent(loop), join, kept, inside)


def _reads(values: Exprs, buffers: Buffers) -> bool:
    return any(isinstance(e, ir.Load) and e.buffer in buffers for e in ir.subexpressions(*values))


def fields(like: Buffers, name: str, shape: Exprs, scope: ir.Scope) -> Buffers:
    """Buffers for running values: one for each field."""
    return tuple(ir.Buffer(f"{name}{n}", shape, b.dtype, scope) for n, b in enumerate(like))


def loads(buffers: Buffers, index: Exprs = ()) -> Exprs:
    """One element of each buffer."""
    return tuple(ir.Load.make(buffer, index) for buffer in buffers)


def stores(buffers: Buffers, index: Exprs, values: Sequence[ir.Expr]) -> ir.Stmt:
    """Values into one element of each buffer."""
    return sequence(*(ir.Store(b, index, v) for b, v in zip(buffers, values)))


# ---- SplitScan: pieces that run side by side, each beginning where those before it end -----------
# One launch leaves the total of every piece in a workspace; in a second one each piece joins the
# totals of those before it and scans on from there. What is scanned is read twice and written once.


@dataclass(frozen=True, slots=True)
class SplitScan(Step):
    """Cut the axis of a scan into `pieces`, which `axis.p` counts; `axis.f` folds a piece in the
    first launch, `axis.q` joins the pieces before one in the second."""

    axis: str
    pieces: int
    name: ClassVar[str] = "split_scan"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Two nests over the same pieces and rows."""
        if self.pieces < 1:
            raise ScheduleError(f"a scan has no {self.pieces} pieces")
        scan = scan_of(kernel, self.axis)
        if scan.inside or not scan.stores:
            what = "cut already" if scan.inside else "a fold, not a scan"
            raise ScheduleError(f"the scan along {self.axis!r} is {what}")
        index = tuple(ir.Var.make(row.name) for row in scan.rows)
        piece, turn = ir.Var.make(f"{self.axis}.p"), ir.Var.make(f"{self.axis}.q")
        pieces = ir.index(self.pieces)
        shape = (pieces, *(row.extent for row in scan.rows))
        parts = fields(scan.totals, f"{self.axis}_pieces", shape, "global")
        begin = stores(scan.totals, (), scan.neutral)
        fold = self._piece(scan, f"{self.axis}.f", scan.join, scan.folds)
        leave = stores(parts, (piece, *index), loads(scan.totals))
        earlier = tuple(
            select(turn < piece, value, first)
            for value, first in zip(loads(parts, (turn, *index)), scan.neutral)
        )
        joins = ir.For(turn.name, pieces, scan.joined(scan.totals, earlier), scan.folds)
        step = sequence(scan.join, *scan.stores)
        rest = self._piece(scan, self.axis, step, "carried")
        body: ir.Stmt = sequence(
            ir.For(piece.name, pieces, scan.wrapped(sequence(begin, fold, leave))),
            ir.For(piece.name, pieces, scan.wrapped(sequence(begin, joins, rest))),
        )
        for part in reversed(parts):
            body = ir.Alloc(part, body)
        return replace(kernel, body=body)

    def _piece(self, scan: Scan, name: str, body: ir.Stmt, kind: ir.AxisKind) -> ir.For:
        """A loop over the elements of a piece."""
        length = -(-scan.length // self.pieces)
        position = ir.Var.make(f"{self.axis}.p") * ir.index(length) + ir.Var.make(name)
        body = replace_variables(body, {self.axis: position})
        if length * self.pieces != scan.length:
            body = ir.If(position < ir.index(scan.length), body)
        return ir.For(name, ir.index(length), body, kind)


# ---- BlockScan: by the threads of a block, tile by tile through shared memory --------------------
# A tile is read in the order of memory, and each thread folds a run of it. What lies before a run
# is joined from whole groups of threads and from the threads before it in its own group, so threads
# wait three times a tile. Then each thread scans its run where it lies, and the tile is written
# out. A fold has no results to write: its tiles end with the groups. Elements are joined in their
# order throughout, so the monoid need not be commutative.


@dataclass(frozen=True, slots=True)
class BlockScan(Step):
    """Scan an axis in tiles, which `axis.0` counts, of `threads` (`axis.1`) times `run` elements
    (`axis.2`), which the threads move in `axis.u`. `axis.g` folds groups of threads, `axis.h` joins
    groups and `axis.i` the threads of one."""

    axis: str
    threads: int
    run: int
    name: ClassVar[str] = "block_scan"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Replace the loop of the scan."""
        if self.threads < 1 or self.threads & (self.threads - 1) or self.run < 1:
            raise ScheduleError(f"no tile has {self.threads} threads with {self.run} elements each")
        scan = scan_of(kernel, self.axis)
        return replace(kernel, body=at_loops(kernel.body, self.axis, lambda f: self._cut(f, scan)))

    def _cut(self, loop: ir.For, scan: Scan) -> ir.Stmt:
        whole, run, threads = self.threads * self.run, ir.index(self.run), ir.index(self.threads)
        tiles = -(-scan.length // whole)
        tile, thread, turn = (ir.Var.make(f"{self.axis}.{n}") for n in "01u")
        at = ir.Var.make(f"{self.axis}.2")
        # a run ends with an element that nobody uses, so that threads meet different banks
        shape = (threads, ir.index(self.run + 1))
        held = fields(scan.totals, f"{self.axis}_tile", shape, "shared")
        moved = turn * threads + thread
        spot = moved // run, moved % run
        own = self._own(scan)
        mine = thread * run + at

        def each(position: ir.Expr, body: ir.Stmt) -> ir.Stmt:
            """A statement at a place of the tile, where the row has one."""
            position = tile * ir.index(whole) + position
            guards: list[ir.Expr] = [] if tiles * whole == scan.length else [
                position < ir.index(scan.length)
            ]  # fmt: skip
            inner = loop.body
            while isinstance(inner, ir.If):
                guards.append(inner.guard)
                inner = inner.body
            for guard in reversed(guards):
                body = ir.If(guard, body)
            return replace_variables(body, {self.axis: position})

        def run_of(*body: ir.Stmt) -> ir.For:
            return ir.For(thread.name, threads, _with(own, sequence(*body)))

        def move(body: ir.Stmt) -> ir.For:
            return ir.For(thread.name, threads, ir.For(turn.name, run, each(moved, body)))

        element = scan.joined(own, loads(held, (thread, at)))
        parts, groups = self._parts(scan)
        body = [
            move(stores(held, spot, scan.join.values)),
            run_of(
                stores(own, (), scan.neutral),
                ir.For(at.name, run, each(mine, element), scan.folds),
                stores(parts, (thread,), loads(own)),
            ),
            self._folded(scan),
        ]
        if scan.stores:
            keep = stores(held, (thread, at), loads(own))
            left = substitution(dict(zip(loads(scan.totals), loads(held, spot))))
            body += [
                run_of(
                    *self._begins(scan),
                    ir.For(at.name, run, each(mine, sequence(element, keep)), "carried"),
                ),
                move(map_expressions(sequence(*scan.stores), left)),
            ]
        other = ir.Var.make(f"{self.axis}.h")
        total = scan.joined(scan.totals, loads(groups, (other,)))
        body.append(ir.For(other.name, groups[0].shape[0], total, scan.folds))
        return ir.For(
            tile.name, ir.index(tiles), _with((*groups, *parts, *held), sequence(*body)), "carried"
        )

    @property
    def _group(self) -> int:
        """Threads in a group: about as many as there are groups."""
        return 1 << (self.threads.bit_length() // 2)

    def _own(self, scan: Scan) -> tuple[ir.Buffer, ...]:
        return fields(scan.totals, "own", (), "reg")

    def _parts(self, scan: Scan) -> tuple[tuple[ir.Buffer, ...], tuple[ir.Buffer, ...]]:
        """The partial results of every thread and every group."""
        threads, groups = ir.index(self.threads), ir.index(self.threads // self._group)
        return (
            fields(scan.totals, f"{self.axis}_parts", (threads,), "shared"),
            fields(scan.totals, f"{self.axis}_groups", (groups,), "shared"),
        )

    def _begins(self, scan: Scan) -> list[ir.Stmt]:
        """A thread combines what lies before its run."""
        own, (parts, groups) = self._own(scan), self._parts(scan)
        size = ir.index(self._group)
        thread, other, near = (ir.Var.make(f"{self.axis}.{n}") for n in "1hi")
        here = thread // size

        def where(condition: ir.Expr, values: tuple[ir.Expr, ...]) -> ir.Stmt:
            chosen = (select(condition, v, n) for v, n in zip(values, scan.neutral))
            return scan.joined(own, tuple(chosen))

        before = where(other < here, loads(groups, (other,)))
        neighbours = loads(parts, (here * size + near,))
        beside = where(near < thread % size, neighbours)
        return [
            stores(own, (), loads(scan.totals)),
            ir.For(other.name, groups[0].shape[0], before, scan.folds),
            ir.For(near.name, size, beside, scan.folds),
        ]

    def _folded(self, scan: Scan) -> ir.Stmt:
        """Each group of threads is folded."""
        own, (parts, groups) = self._own(scan), self._parts(scan)
        group, near = (ir.Var.make(f"{self.axis}.{n}") for n in "gi")
        size = ir.index(self._group)
        members = scan.joined(own, loads(parts, (group * size + near,)))
        folded = sequence(
            stores(own, (), scan.neutral),
            ir.For(near.name, size, members, scan.folds),
            stores(groups, (group,), loads(own)),
        )
        return ir.For(group.name, groups[0].shape[0], _with(own, folded))


def _with(buffers: tuple[ir.Buffer, ...], body: ir.Stmt) -> ir.Stmt:
    for buffer in reversed(buffers):
        body = ir.Alloc(buffer, body)
    return body
