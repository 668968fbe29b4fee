"""Prefix: a scan by the threads of a block, tile by tile through shared memory.

A tile is read in the order of memory, and each thread folds a run of it. What lies before a run is
joined from whole groups of threads and from the threads before it in its own group, so threads wait
three times a tile. Then each thread scans its run where it lies, and the tile is written out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import add, floordiv, lt, mod, mul, select, substitution
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    Kernel,
    Load,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.rewrite import map_expressions, replace_variables, sequence
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named


@dataclass(frozen=True, slots=True)
class Scan:
    """A kernel that only scans: its rows, the running value, and what an element does."""

    rows: tuple[For, ...]
    total: Buffer
    length: int
    join: Reduce
    stores: tuple[Store, ...]
    inside: bool  # the loop stands in pieces already

    @property
    def neutral(self) -> Expr:
        """The value with which it begins."""
        return MONOIDS[self.join.monoid].init((self.total.dtype,))[0]


def scan_of(kernel: Kernel, axis: str) -> Scan:
    """The scan along an axis, where joining elements in another grouping is all that it needs."""
    (loop,) = loops_named(kernel, axis)
    rows: list[For] = []
    body = kernel.body
    inside = isinstance(body, Alloc) and body.buffer.scope == "global"
    while isinstance(body, For):
        rows.append(body)
        body = body.body
    parts = loop.body
    while isinstance(parts, If):
        parts = parts.body
    join, *stores = parts.body if isinstance(parts, Seq) else (parts,)
    if (
        loop.axis != "carried" or not isinstance(join, Reduce) or len(join.buffers) != 1
        or join.index or not stores or not all(isinstance(s, Store) for s in stores)
    ):  # fmt: skip
        raise ScheduleError(f"loop {axis!r} is not a scan by one running value")
    kept = tuple(s for s in stores if isinstance(s, Store))
    return Scan(tuple(rows), join.buffers[0], known_extent(loop), join, kept, inside)


def wrapped(scan: Scan, body: Stmt) -> Stmt:
    """Statements that use the running value, in the loops over rows."""
    body = Alloc(scan.total, body)
    for row in reversed(scan.rows):
        body = replace(row, body=body)
    return body


@dataclass(frozen=True, slots=True)
class Prefix(Step):
    """Scan an axis in tiles, which `axis.0` counts, of `threads` (`axis.1`) times `run` elements
    (`axis.2`), which the threads move in `axis.u`. `axis.g` folds groups of threads, `axis.h` joins
    groups and `axis.i` the threads of one."""

    axis: str
    threads: int
    run: int
    name: ClassVar[str] = "prefix"

    def apply(self, kernel: Kernel) -> Kernel:
        """Replace the loop of the scan."""
        if self.threads < 1 or self.threads & (self.threads - 1) or self.run < 1:
            raise ScheduleError(f"no tile has {self.threads} threads with {self.run} elements each")
        scan = scan_of(kernel, self.axis)
        return replace(kernel, body=at_loops(kernel.body, self.axis, lambda f: self._cut(f, scan)))

    def _cut(self, loop: For, scan: Scan) -> Stmt:
        whole, run, threads = self.threads * self.run, ir.index(self.run), ir.index(self.threads)
        tiles = -(-scan.length // whole)
        tile, thread, turn = (Var.make(f"{self.axis}.{n}") for n in "01u")
        at = Var.make(f"{self.axis}.2")
        kind = scan.total.dtype
        # a run ends with an element that nobody uses, so that threads meet different banks
        held = Buffer(f"{self.axis}_tile", (threads, ir.index(self.run + 1)), kind, "shared")
        moved = add(mul(turn, threads), thread)
        spot = floordiv(moved, run), mod(moved, run)
        own = Buffer("own", (), kind, "reg")
        mine = add(mul(thread, run), at)

        def each(place: Expr, body: Stmt) -> Stmt:
            """A statement at a place of the tile, where the row has one."""
            place = add(mul(tile, ir.index(whole)), place)
            guards: list[Expr] = [] if tiles * whole == scan.length else [
                lt(place, ir.index(scan.length))
            ]  # fmt: skip
            inner = loop.body
            while isinstance(inner, If):
                guards.append(inner.guard)
                inner = inner.body
            for guard in reversed(guards):
                body = If(guard, body)
            return replace_variables(body, {self.axis: place})

        def run_of(*body: Stmt) -> For:
            return For(thread.name, threads, Alloc(own, sequence(*body)))

        def move(body: Stmt) -> For:
            return For(thread.name, threads, For(turn.name, run, each(moved, body)))

        element = replace(scan.join, buffers=(own,), values=(Load.make(held, (thread, at)),))
        left = substitution({Load.make(scan.total, ()): Load.make(held, spot)})
        begins, ends = self._groups(scan, own)
        body = sequence(
            move(Store(held, spot, scan.join.values[0])),
            run_of(
                Store(own, (), scan.neutral),
                For(at.name, run, each(mine, element), "reduce"),
                Store(self._parts(kind)[0], (thread,), Load.make(own, ())),
            ),
            ends,
            run_of(
                *begins,
                For(
                    at.name, run,
                    each(mine, sequence(element, Store(held, (thread, at), Load.make(own, ())))),
                    "carried",
                ),
            ),
            move(map_expressions(sequence(*scan.stores), left)),
            self._joined(scan.total, scan.join),
        )  # fmt: skip
        for buffer in (held, *self._parts(kind)):
            body = Alloc(buffer, body)
        return For(tile.name, ir.index(tiles), body, "carried")

    @property
    def _group(self) -> int:
        """Threads of a group: about as many as there are groups."""
        return 1 << (self.threads.bit_length() // 2)

    def _parts(self, kind: DType) -> tuple[Buffer, Buffer]:
        """What every thread has folded, and every group of them."""
        groups = ir.index(self.threads // self._group)
        return (
            Buffer(f"{self.axis}_parts", (ir.index(self.threads),), kind, "shared"),
            Buffer(f"{self.axis}_groups", (groups,), kind, "shared"),
        )

    def _groups(self, scan: Scan, own: Buffer) -> tuple[list[Stmt], Stmt]:
        """How a thread joins what lies before it, and how groups are folded."""
        parts, groups = self._parts(own.dtype)
        size, count = ir.index(self._group), ir.index(self.threads // self._group)
        thread, group, other, near = (Var.make(f"{self.axis}.{n}") for n in "1ghi")
        join = replace(scan.join, buffers=(own,))
        here = floordiv(thread, size)
        before = select(lt(other, here), Load.make(groups, (other,)), scan.neutral)
        neighbour = Load.make(parts, (add(mul(here, size), near),))
        beside = select(lt(near, mod(thread, size)), neighbour, scan.neutral)
        begins: list[Stmt] = [
            Store(own, (), Load.make(scan.total, ())),
            For(other.name, count, replace(join, values=(before,)), "reduce"),
            For(near.name, size, replace(join, values=(beside,)), "reduce"),
        ]
        member = Load.make(parts, (add(mul(group, size), near),))
        folded = sequence(
            Store(own, (), scan.neutral),
            For(near.name, size, replace(join, values=(member,)), "reduce"),
            Store(groups, (group,), Load.make(own, ())),
        )
        return begins, For(group.name, count, Alloc(own, folded))

    def _joined(self, total: Buffer, join: Reduce) -> Stmt:
        """What all groups have folded goes to the running value, for the next tile."""
        groups = self._parts(total.dtype)[1]
        other = Var.make(f"{self.axis}.h")
        value = Load.make(groups, (other,))
        return For(other.name, groups.shape[0], replace(join, values=(value,)), "reduce")
