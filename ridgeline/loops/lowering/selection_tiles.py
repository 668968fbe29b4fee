"""The smallest keys of a tile, selected by the threads of a block in registers.

The last key that is wanted is found bit by bit, from the highest: a bit is set where fewer keys
than are wanted lie below the number with it. Counting takes no memory, and no longer for keys that
are alike, as a table of digits would. Then every thread knows how many of its run are wanted, the
sum of that over the threads before it is the place of its first one, and the order stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import cast, maximum, minimum, select, sequence
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Load, Reduce, Stmt, Store, Var

RUN = 16  # elements of a thread
_LEAST_THREADS = 32
_GROUPS = 16  # threads whose counts are joined first
_ONE, _NOTHING = ir.const(1, dtypes.int32), ir.const(0, dtypes.int32)
_HALF = 16  # bits: counts of smaller keys lie above, of equal ones below


def _number(buffer: Buffer) -> Expr:
    return Load.make(buffer, ())


@dataclass(frozen=True)
class SelectionTile:
    """A tile of a row: its length and number, the row's length, how many keys are wanted."""

    size: int
    number: Var
    length: int
    count: int

    @property
    def threads(self) -> int:
        """Threads that share it, a power of two."""
        needed = -(-self.size // RUN)
        return max(1 << (needed - 1).bit_length(), _LEAST_THREADS)

    def at(self, position: Expr) -> Expr:
        """The index in the row."""
        return self.number * self.size + position

    def holds(self, position: Expr) -> Expr:
        """Whether there is an element at an index of the tile."""
        return (position < self.size) & (self.at(position) < self.length)


class Selection:
    """The statements that select among the keys of a row."""

    def __init__(self, tile: SelectionTile, kind: DType, low: int) -> None:
        """`low` bits of all keys are zero."""
        self.tile, self.kind, self.low = tile, kind, low
        threads = ir.index(tile.threads)
        held = (ir.index(tile.threads * (RUN + 1)),)  # runs that meet different banks
        self.keys = Buffer("keys", held, kind, "shared")
        self.mine = Buffer("mine", (threads, ir.index(RUN)), kind, "reg")
        self.last = Buffer("last", (), kind, "reg")
        self.below = Buffer("below", (), dtypes.int32, "reg")
        self.parts = Buffer("parts", (threads,), dtypes.int32, "shared")
        self.sums = Buffer("sums", (ir.index(tile.threads // _GROUPS),), dtypes.int32, "shared")

    def body(self, key: Callable[[Expr], Expr], keep: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
        """Choose; `key` is that at a place of the row, `keep` stores one: its place in the row, its
        key and its place among the chosen."""
        parts = [
            self._fetched(key),
            Store(self.last, (), ir.const(0, self.kind)),
            Store(self.below, (), _NOTHING),
            *(self._decided(bit) for bit in range(self.kind.bits - 1, self.low - 1, -1)),
            self._counted(),
            self._summed(),
            self._chosen(keep),
        ]
        body = sequence(*parts)
        for buffer in (self.keys, self.mine, self.last, self.below, self.parts, self.sums):
            body = Alloc(buffer, body)
        return body

    def _fetched(self, key: Callable[[Expr], Expr]) -> Stmt:
        """Keys come as memory lies, and go to threads in runs; where there is none, the largest."""
        t, v = Var.make("t"), Var.make("v")
        threads, run = ir.index(self.tile.threads), ir.index(RUN)
        across, own = v * threads + t, t * run + v
        nothing = ir.const((1 << self.kind.bits) - 1, self.kind)
        there = self.tile.holds(across)
        fetch = sequence(
            If(there, Store(self.keys, (_padded(across),), key(self.tile.at(across)))),
            If(~there, Store(self.keys, (_padded(across),), nothing)),
        )
        take = Store(self.mine, (t, v), Load.make(self.keys, (_padded(own),)))
        return sequence(
            For("t", threads, For("v", run, fetch)), For("t", threads, For("v", run, take))
        )

    def _over(self, body: Callable[[Expr], Stmt], *first: Stmt, kind: ir.AxisKind) -> Stmt:
        """Every key of every thread."""
        t, v = Var.make("t"), Var.make("v")
        own = Load.make(self.mine, (t, v))
        inner = For("v", ir.index(RUN), body(own), kind)
        axis: ir.AxisKind = "reduce" if kind == "reduce" else "spatial"
        return For("t", ir.index(self.tile.threads), sequence(*first, inner), axis)

    def _decided(self, bit: int) -> Stmt:
        """Decide one bit of the last key that is wanted."""
        total = Buffer("total", (), dtypes.int32, "reg")
        tried = _number(self.last) | ir.const(1 << bit, self.kind)

        def count(own: Expr) -> Stmt:
            return Reduce((total,), (), "sum", (cast(own < tried, dtypes.int32),))

        found = _number(total)
        sets = found < ir.const(self.tile.count, dtypes.int32)
        return Alloc(total, sequence(
            Store(total, (), _NOTHING),
            self._over(count, kind="reduce"),
            Store(self.below, (), select(sets, found, _number(self.below))),
            Store(self.last, (), select(sets, tried, _number(self.last))),
        ))  # fmt: skip

    def _counted(self) -> Stmt:
        """For each thread the number of keys below the last wanted one, and equal to it."""
        t = Var.make("t")
        total = Buffer("total", (), dtypes.int32, "reg")

        def count(own: Expr) -> Stmt:
            smaller = select(own < _number(self.last), ir.const(1 << _HALF, dtypes.int32), _NOTHING)
            equal = cast(own.eq(_number(self.last)), dtypes.int32)
            return Reduce((total,), (), "sum", (smaller + equal,))

        inner = For("v", ir.index(RUN), count(Load.make(self.mine, (t, Var.make("v")))), "reduce")
        return For("t", ir.index(self.tile.threads), Alloc(total, sequence(
            Store(total, (), _NOTHING), inner, Store(self.parts, (t,), _number(total)),
        )))  # fmt: skip

    def _summed(self) -> Stmt:
        """The counts of some threads together."""
        w, i = Var.make("w"), Var.make("i")
        total = Buffer("total", (), dtypes.int32, "reg")
        part = Load.make(self.parts, (w * _GROUPS + i,))
        return For("w", ir.index(self.tile.threads // _GROUPS), Alloc(total, sequence(
            Store(total, (), _NOTHING),
            For("i", ir.index(_GROUPS), Reduce((total,), (), "sum", (part,)), "reduce"),
            Store(self.sums, (w,), _number(total)),
        )))  # fmt: skip

    def _chosen(self, keep: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
        """Every thread continues from the counts of those before it."""
        t, v, h, i = (Var.make(name) for name in "tvhi")
        total = Buffer("total", (), dtypes.int32, "reg")
        groups = self.tile.threads // _GROUPS
        lower = select(h < t // _GROUPS, Load.make(self.sums, (h,)), _NOTHING)
        other = Load.make(self.parts, (t // _GROUPS * _GROUPS + i,))
        near = select(i < t % _GROUPS, other, _NOTHING)
        own, last = Load.make(self.mine, (t, v)), _number(self.last)
        wanted = ir.const(self.tile.count, dtypes.int32)
        # of the keys that equal the last one, the first count
        smaller, equal = _number(total) >> _ONE * _HALF, _number(total) & (1 << _HALF) - 1
        spare = wanted - _number(self.below)
        takes = (own < last) | own.eq(last) & (equal < spare)
        rank = cast(smaller + minimum(equal, spare), dtypes.int64)
        sure = maximum(minimum(rank, ir.index(self.tile.count - 1)), ir.index(0))
        step = select(own < last, ir.const(1 << _HALF, dtypes.int32), _NOTHING)
        walk = sequence(
            If(takes, keep(self.tile.at(t * RUN + v), own, sure)),
            Reduce((total,), (), "sum", (step + cast(own.eq(last), dtypes.int32),)),
        )
        return For("t", ir.index(self.tile.threads), Alloc(total, sequence(
            Store(total, (), _NOTHING),
            For("h", ir.index(groups), Reduce((total,), (), "sum", (lower,)), "reduce"),
            For("i", ir.index(_GROUPS), Reduce((total,), (), "sum", (near,)), "reduce"),
            For("v", ir.index(RUN), walk, "carried"),
        )))  # fmt: skip


def _padded(position: Expr) -> Expr:
    return position + position // RUN
