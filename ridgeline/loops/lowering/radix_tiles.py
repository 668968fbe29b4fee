"""A radix pass by tiles: the threads of a block sort a tile in shared memory.

A digit is sorted by four bits at a time. Every thread has a run of the tile and counts how often
each of sixteen values occurs in it; the sum of the counts before one, in the order of values and
then of threads, is the place of a thread's first element with that value. Loops named `t` are for
the threads of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops import ir
from ridgeline.loops.build import (
    cast,
    maximum,
    select,
    sequence,
)
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Load, Reduce, Stmt, Store, Var

RUN = 16  # elements of a thread
_VALUES, _BITS = 16, 4  # that are told apart at a time
_ONE, _NOTHING = ir.const(1, dtypes.int32), ir.const(0, dtypes.int32)


def _wide(value: Expr) -> Expr:
    return cast(value, dtypes.int64)


@dataclass(frozen=True)
class RadixTile:
    """A tile of a row: where it begins, and the row's length."""

    size: int
    number: Var
    length: int

    @property
    def threads(self) -> int:
        """Threads that sort it."""
        return self.size // RUN

    def at(self, position: Expr) -> Expr:
        """The index in the row."""
        return self.number * self.size + position

    def each(
        self,
        across: bool,
        body: Callable[[Expr], Stmt],
        kind: ir.AxisKind = "spatial",
        *first: Stmt,
    ) -> For:
        """Every place of the tile, as memory lies (`across`) or in runs of threads, which do
        something else first."""
        t, v = Var.make("t"), Var.make("v")
        threads, run = ir.index(self.threads), ir.index(RUN)
        position = v * threads + t if across else t * run + v
        inner = body(position)
        if self.length % self.size:
            inner = If(self.at(position) < self.length, inner)
        axis: ir.AxisKind = "reduce" if kind == "reduce" else "spatial"
        return For("t", threads, sequence(*first, For("v", run, inner, kind)), axis)


def counts_body(
    tile: RadixTile, digits: int, digit: Callable[[Expr], Expr], out: Callable[..., Stmt]
) -> Stmt:
    """How often each digit occurs; `digit` is that of the element at an index of the row."""
    count = Buffer("count", (ir.index(digits),), dtypes.int32, "shared")
    d = Var.make("d")

    def join(position: Expr) -> Stmt:
        return Reduce((count,), (digit(tile.at(position)),), "sum", (_ONE,))

    return Alloc(count, sequence(
        For("d", ir.index(digits), Store(count, (d,), _NOTHING)),
        tile.each(True, join, "reduce"),
        For("d", ir.index(digits), out(d, Load.make(count, (d,)))),
    ))  # fmt: skip


class SortedTile:
    """The statements that sort a tile by some bits of its keys."""

    def __init__(self, tile: RadixTile, kind: DType, shift: int, bits: int) -> None:
        self.tile, self.kind, self.shift, self.bits = tile, kind, shift, bits
        threads = tile.threads
        # runs are longer by an element, so that threads meet different banks
        held = (ir.index(tile.size + threads),)
        self.keys = Buffer("keys", held, kind, "shared")
        self.order = Buffer("order", held, dtypes.int32, "shared")
        # where the elements lie that come first, second, … by the bits seen so far
        self.slots = [
            Buffer(f"slots{n}", (ir.index(RUN), ir.index(threads)), dtypes.uint16, "shared")
            for n in range(2)
        ]
        padded = ir.index(threads + threads // _VALUES)
        self.counts = Buffer("counts", (ir.index(_VALUES), padded), dtypes.int32, "shared")
        self.parts = Buffer("parts", (ir.index(threads),), dtypes.int32, "shared")
        self.totals = Buffer("totals", (ir.index(_VALUES),), dtypes.int32, "shared")
        self.first = Buffer("first", (ir.index(1 << bits),), dtypes.int32, "shared")

    def body(
        self,
        read: Callable[[Expr], tuple[Expr, Expr]],
        move: Callable[..., Stmt],
        begins: bool,
    ) -> Stmt:
        """Sort, and `move` each element: its place in the sorted tile, its key and order, and its
        digit with the place of the first that has it, if `begins`. `read` is the key and order at
        a place of the row."""

        def fetch(position: Expr) -> Stmt:
            key, order = read(self.tile.at(position))
            spot = (_padded(position),)
            return sequence(Store(self.keys, spot, key), Store(self.order, spot, order))

        parts: list[Stmt] = [self.tile.each(True, fetch)]
        passes = range(0, self.bits, _BITS)
        for number, low in enumerate(passes):
            parts.append(self._sorted(number, low, min(_BITS, self.bits - low)))
        held = self.slots[len(passes) % 2]

        def slot(position: Expr) -> Expr:
            return _wide(Load.make(held, (position % RUN, position // RUN)))

        def digit(position: Expr) -> Expr:
            return self._digit(slot(position), self.shift, self.bits)

        def mark(position: Expr) -> Stmt:
            before = digit(maximum(position - 1, ir.index(0)))
            starts = position.eq(0) | before.ne(digit(position))
            return If(starts, Store(self.first, (digit(position),), cast(position, dtypes.int32)))

        def moved(position: Expr) -> Stmt:
            start = _wide(Load.make(self.first, (digit(position),))) if begins else ir.index(0)
            own = [Load.make(buffer, (slot(position),)) for buffer in (self.keys, self.order)]
            return move(position, own, digit(position), start)

        if begins:
            parts.append(self.tile.each(True, mark))
        body = sequence(*parts, self.tile.each(True, moved))
        scratch = (self.keys, self.order, *self.slots, self.counts, self.parts, self.totals)
        for buffer in (*scratch, *[self.first] * begins):
            body = Alloc(buffer, body)
        return body

    def _digit(self, slot: Expr, shift: int, bits: int) -> Expr:
        moved = Load.make(self.keys, (slot,)) >> shift
        return _wide(moved & (1 << bits) - 1)

    def _sorted(self, number: int, low: int, bits: int) -> Stmt:
        """One pass over a few bits, from one buffer to the other."""
        t, v, z = Var.make("t"), Var.make("v"), Var.make("z")
        before, after = self.slots[number % 2], self.slots[(number + 1) % 2]
        own = t + t // _VALUES

        def slot(position: Expr) -> Expr:
            return _padded(position) if number == 0 else _wide(Load.make(before, (v, t)))

        digits = Buffer("digits", (ir.index(self.tile.threads), ir.index(RUN)), dtypes.int32, "reg")
        at = (_wide(Load.make(digits, (t, v))), own)

        def look(position: Expr) -> Stmt:
            digit = self._digit(slot(position), self.shift + low, bits)
            return Store(digits, (t, v), cast(digit, dtypes.int32))

        def count(position: Expr) -> Stmt:
            return Store(self.counts, at, Load.make(self.counts, at) + _ONE)

        def put(position: Expr) -> Stmt:
            here = Buffer("here", (), dtypes.int32, "reg")
            to = Load.make(here, ())
            run, turn = (ir.const(n, dtypes.int32) for n in (RUN - 1, RUN.bit_length() - 1))
            spot = (_wide(to & run), _wide(to >> turn))
            return Alloc(here, sequence(
                Store(here, (), Load.make(self.counts, at)),
                Store(after, spot, cast(slot(position), dtypes.uint16)),
                Store(self.counts, at, to + _ONE),
            ))  # fmt: skip

        clear = For("z", ir.index(_VALUES), Store(self.counts, (z, own), _NOTHING))
        return Alloc(digits, sequence(
            self.tile.each(False, look),
            self.tile.each(False, count, "carried", clear),
            *self._places(),
            self.tile.each(False, put, "carried"),
        ))  # fmt: skip

    def _places(self) -> list[Stmt]:
        """Prefix sums of the counts: thread `t` combines a run of the counts of one value."""
        beside = self.tile.threads // _VALUES  # threads with one value
        t, w, z, h, i = (Var.make(n) for n in "twzhi")
        value, column = t // beside, t % beside
        at = (value, column * (_VALUES + 1) + z)
        total = Buffer("total", (), dtypes.int32, "reg")
        here = Buffer("here", (), dtypes.int32, "reg")
        threads, values = ir.index(self.tile.threads), ir.index(_VALUES)

        def summed(name: str, size: Expr, term: Expr) -> For:
            return For(name, size, Reduce((total,), (), "sum", (term,)), "reduce")

        start = Store(total, (), _NOTHING)
        member = Load.make(self.parts, (w * beside + i,))
        lower = select(h < value, Load.make(self.totals, (h,)), _NOTHING)
        other = Load.make(self.parts, (value * beside + i,))
        near = select(i < column, other, _NOTHING)
        walk = sequence(
            Store(here, (), Load.make(self.counts, at)),
            Store(self.counts, at, Load.make(total, ())),
            Reduce((total,), (), "sum", (Load.make(here, ()),)),
        )
        leave = Load.make(total, ())
        return [
            For("t", threads, Alloc(total, sequence(
                start, summed("z", values, Load.make(self.counts, at)),
                Store(self.parts, (t,), leave),
            ))),
            For("w", values, Alloc(total, sequence(
                start, summed("i", ir.index(beside), member),
                Store(self.totals, (w,), leave),
            ))),
            For("t", threads, Alloc(total, Alloc(here, sequence(
                start, summed("h", values, lower), summed("i", ir.index(beside), near),
                For("z", values, walk, "carried"),
            )))),
        ]  # fmt: skip


def _padded(position: Expr) -> Expr:
    return position + position // RUN
