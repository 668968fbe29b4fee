"""BlockScan: a scan by the threads of a block, tile by tile through shared memory.

A tile is read in the order of memory, and each thread folds a run of it. What lies before a run is
joined from whole groups of threads and from the threads before it in its own group, so threads wait
three times a tile. Then each thread scans its run where it lies, and the tile is written out. A
fold has no results to write: its tiles end with the groups. Elements are joined in their order
throughout, so the monoid need not be commutative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import add, floordiv, lt, mod, mul, select, substitution
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Kernel, Stmt, Var
from ridgeline.loops.rewrite import map_expressions, replace_variables, sequence
from ridgeline.loops.steps.scans import Scan, fields, loads, scan_of, stores
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops


@dataclass(frozen=True, slots=True)
class BlockScan(Step):
    """Scan an axis in tiles, which `axis.0` counts, of `threads` (`axis.1`) times `run` elements
    (`axis.2`), which the threads move in `axis.u`. `axis.g` folds groups of threads, `axis.h` joins
    groups and `axis.i` the threads of one."""

    axis: str
    threads: int
    run: int
    name: ClassVar[str] = "block_scan"

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
        # a run ends with an element that nobody uses, so that threads meet different banks
        shape = (threads, ir.index(self.run + 1))
        held = fields(scan.totals, f"{self.axis}_tile", shape, "shared")
        moved = add(mul(turn, threads), thread)
        spot = floordiv(moved, run), mod(moved, run)
        own = self._own(scan)
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
            return For(thread.name, threads, _with(own, sequence(*body)))

        def move(body: Stmt) -> For:
            return For(thread.name, threads, For(turn.name, run, each(moved, body)))

        element = scan.joined(own, loads(held, (thread, at)))
        parts, groups = self._parts(scan)
        body = [
            move(stores(held, spot, scan.join.values)),
            run_of(
                stores(own, (), scan.neutral),
                For(at.name, run, each(mine, element), scan.folds),
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
                    For(at.name, run, each(mine, sequence(element, keep)), "carried"),
                ),
                move(map_expressions(sequence(*scan.stores), left)),
            ]
        other = Var.make(f"{self.axis}.h")
        total = scan.joined(scan.totals, loads(groups, (other,)))
        body.append(For(other.name, groups[0].shape[0], total, scan.folds))
        return For(
            tile.name, ir.index(tiles), _with((*groups, *parts, *held), sequence(*body)), "carried"
        )

    @property
    def _group(self) -> int:
        """Threads of a group: about as many as there are groups."""
        return 1 << (self.threads.bit_length() // 2)

    def _own(self, scan: Scan) -> tuple[Buffer, ...]:
        return fields(scan.totals, "own", (), "reg")

    def _parts(self, scan: Scan) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
        """What every thread has folded, and every group of them."""
        threads, groups = ir.index(self.threads), ir.index(self.threads // self._group)
        return (
            fields(scan.totals, f"{self.axis}_parts", (threads,), "shared"),
            fields(scan.totals, f"{self.axis}_groups", (groups,), "shared"),
        )

    def _begins(self, scan: Scan) -> list[Stmt]:
        """A thread joins what lies before its run."""
        own, (parts, groups) = self._own(scan), self._parts(scan)
        size = ir.index(self._group)
        thread, other, near = (Var.make(f"{self.axis}.{n}") for n in "1hi")
        here = floordiv(thread, size)

        def where(condition: Expr, values: tuple[Expr, ...]) -> Stmt:
            chosen = (select(condition, v, n) for v, n in zip(values, scan.neutral))
            return scan.joined(own, tuple(chosen))

        before = where(lt(other, here), loads(groups, (other,)))
        neighbours = loads(parts, (add(mul(here, size), near),))
        beside = where(lt(near, mod(thread, size)), neighbours)
        return [
            stores(own, (), loads(scan.totals)),
            For(other.name, groups[0].shape[0], before, scan.folds),
            For(near.name, size, beside, scan.folds),
        ]

    def _folded(self, scan: Scan) -> Stmt:
        """Each group of threads is folded."""
        own, (parts, groups) = self._own(scan), self._parts(scan)
        group, near = (Var.make(f"{self.axis}.{n}") for n in "gi")
        size = ir.index(self._group)
        members = scan.joined(own, loads(parts, (add(mul(group, size), near),)))
        folded = sequence(
            stores(own, (), scan.neutral),
            For(near.name, size, members, scan.folds),
            stores(groups, (group,), loads(own)),
        )
        return For(group.name, groups[0].shape[0], _with(own, folded))


def _with(buffers: tuple[Buffer, ...], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Alloc(buffer, body)
    return body
