"""Sorts and searches as loops: keys, ranks of short rows, radix passes, binary search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline import dtypes
from ridgeline.graph.node import Node, proj
from ridgeline.graph.sizes import Size, bounds
from ridgeline.loops import ir
from ridgeline.loops.build import (
    bitcast,
    cast,
    maximum,
    minimum,
    op,
    select,
    sequence,
)
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Load, Reduce, Stmt, Store, Var
from ridgeline.loops.lowering.iteration_space import size_expr
from ridgeline.ops.radix import key_type

Index = tuple[Expr, ...]
_FEW_KEYS = 8192  # for which short tables are worth another pass
_ONE, _NONE = ir.index(1), ir.index(0)


def key(value: Expr, descending: bool = False) -> Expr:
    """The unsigned integer that sorts as a value does, as `ops/radix.py` defines it."""
    unsigned = key_type(value.dtype)
    if value.dtype.kind == "float" and value.dtype.itemsize < 4:
        value = cast(value, dtypes.float32)
    source = value.dtype
    if source.kind == "float":
        zero, none = ir.const(0, source), ir.const(0, unsigned)
        bits = bitcast(select(value.eq(zero), zero, value), unsigned)
        top = ir.const(1 << (unsigned.bits - 1), unsigned)
        negative = (bits & top).ne(none)
        ordered = select(negative, ~bits, bits | top)
        result = select(op("isnan", value), ~none, ordered)
    elif source.kind == "int":
        top = ir.const(1 << (unsigned.bits - 1), unsigned)
        result = bitcast(value, unsigned) ^ top
    else:
        result = cast(value, unsigned)
    return ~result if descending else result


def within(position: Expr, size: Size) -> Expr:
    """An index clamped to an axis; it does not change one that is in range."""
    return maximum(minimum(position, size_expr(size) - _ONE), _NONE)


def rank_body(out: Buffer, rows: Index, size: Size, keys: tuple[Expr, Expr]) -> Stmt:
    """One row: each element moves to the index that is the number of elements before it.

    `keys` are the key of element `i` and that of element `j`.
    """
    rank = Buffer("rank", (), dtypes.int32, "reg")
    own, other = keys
    i, j = (cast(Var.make(name), dtypes.int32) for name in "ij")  # as narrow as the counts
    before = (other < own) | other.eq(own) & (j < i)
    count = Reduce((rank,), (), "sum", (cast(before, dtypes.int32),))
    position = within(cast(Load.make(rank, ()), dtypes.int64), size)
    each = sequence(
        Store(rank, (), ir.const(0, dtypes.int32)),
        For("j", size_expr(size), count, "reduce"),
        Store(out, (*rows, position), i),
    )
    return For("i", size_expr(size), Alloc(rank, each))


def radix_body(
    outputs: Sequence[tuple[Buffer, Expr]], rows: Index, size: Size, digit: Expr, bits: int
) -> Stmt:
    """One row of a radix pass: count the digits, find where each begins, move the elements.

    `outputs` are the buffers to fill, each with the value that element `i` contributes; `digit` is
    the digit of element `i`.
    """
    digits = ir.index(1 << bits)
    count = Buffer("count", (digits,), dtypes.int32, "local")
    total = Buffer("total", (), dtypes.int32, "reg")
    here = Buffer("here", (), dtypes.int32, "reg")
    d = Var.make("d")
    nothing, one = ir.const(0, dtypes.int32), ir.const(1, dtypes.int32)
    counted = Reduce((count,), (digit,), "sum", (one,))
    begin = sequence(
        Store(here, (), Load.make(count, (d,))),
        Store(count, (d,), Load.make(total, ())),
        Reduce((total,), (), "sum", (Load.make(here, ()),)),
    )
    index = (*rows, within(cast(Load.make(here, ()), dtypes.int64), size))
    move = sequence(
        Store(here, (), Load.make(count, (digit,))),
        *(Store(buffer, index, value) for buffer, value in outputs),
        Store(count, (digit,), Load.make(here, ()) + one),
    )
    body = sequence(
        For("d", digits, Store(count, (d,), nothing)),
        For("i", size_expr(size), counted, "carried"),
        Store(total, (), nothing),
        For("d", digits, begin, "carried"),
        For("i", size_expr(size), move, "carried"),
    )
    return Alloc(count, Alloc(total, Alloc(here, body)))


def smallest_body(
    outputs: Sequence[tuple[Buffer, Expr]], rows: Index, size: Size, own: Expr, count: int
) -> Stmt:
    """One row: the smallest keys, in their original order.

    The last key that is wanted is found digit by digit, from the highest: a histogram of the digits
    says in which one it lies. `own` is the key of element `i`; `outputs` as in `radix_body`.
    """
    kind = own.dtype
    bits = min(kind.bits, 8 if bounds(size)[1] <= _FEW_KEYS else 11)
    tally = Buffer("tally", (ir.index(1 << bits),), dtypes.int32, "local")
    last, left, seen, slot = (
        Buffer(name, (), dtype, "reg")
        for name, dtype in (
            ("last", kind), ("left", dtypes.int32), ("seen", dtypes.int32), ("slot", dtypes.int64)
        )
    )  # fmt: skip
    parts: list[Stmt] = [
        Store(last, (), ir.const(0, kind)),
        Store(left, (), ir.const(count, dtypes.int32)),
    ]
    for high in range(kind.bits, 0, -bits):
        parts += _narrowed(tally, last, left, seen, size, own, high, min(bits, high))
    one = ir.const(1, dtypes.int32)
    threshold, more = Load.make(last, ()), Load.make(left, ())
    equal = own.eq(threshold)
    wanted = (own < threshold) | equal & (more > 0)
    spot = (*rows, within(Load.make(slot, ()), count))
    take = sequence(
        *(Store(buffer, spot, value) for buffer, value in outputs),
        Store(slot, (), Load.make(slot, ()) + _ONE),
        Store(left, (), select(equal, more - one, more)),
    )
    parts += [
        Store(slot, (), _NONE),
        For("i", size_expr(size), If(wanted, take), "carried"),
    ]
    body = sequence(*parts)
    for buffer in (tally, last, left, seen, slot):
        body = Alloc(buffer, body)
    return body


def _narrowed(
    tally: Buffer, last: Buffer, left: Buffer, seen: Buffer, size: Size, own: Expr, high: int,
    bits: int,
) -> list[Stmt]:  # fmt: skip
    """One digit more of the last wanted key: the bits below `high`."""
    kind, low = own.dtype, high - bits
    d = Var.make("d")
    nothing, one = ir.const(0, dtypes.int32), ir.const(1, dtypes.int32)
    mask = ir.const((1 << bits) - 1, kind)
    digit = cast(own >> low & mask, dtypes.int64)
    known = Load.make(last, ())
    counted: Stmt = Reduce((tally,), (digit,), "sum", (one,))
    if high < kind.bits:  # only keys that agree in the digits found so far
        above = ir.const(high, kind)
        counted = If((own >> above).eq(known >> above), counted)
    before, here = Load.make(seen, ()), Load.make(tally, (d,))
    needed = Load.make(left, ())
    after = before + here
    inside = (nothing < needed) & ((before < needed) & (needed <= after))
    found = known | cast(d, kind) << low
    # once the digit is found, what is left is counted from there: as a negative number until then
    choose = If(
        inside,
        sequence(Store(last, (), found), Store(left, (), before - needed)),
    )
    advance = Store(seen, (), after)
    return [
        For("d", ir.index(1 << bits), Store(tally, (d,), nothing)),
        For("i", size_expr(size), counted, "carried"),
        Store(seen, (), nothing),
        For("d", ir.index(1 << bits), sequence(choose, advance), "carried"),
        Store(left, (), -needed),
    ]


def search_body(
    out: Buffer, index: Index, at: Callable[[Expr], Expr], value: Expr, size: Size, right: bool
) -> Stmt:
    """One value: binary search in a sorted row.

    `value` is the key searched for, `at` the element of the row at an index.
    """
    slot = Buffer("slot", (), dtypes.int64, "reg")
    held = Load.make(slot, ())
    steps = max(bounds(size)[1].bit_length(), 1)
    step = ir.index(1 << steps - 1) >> Var.make("s")
    probe = held + step
    element = key(at(within(probe - _ONE, size)))
    before = element <= value if right else element < value
    further = (probe <= size_expr(size)) & before
    halve = Store(slot, (), select(further, probe, held))
    body = sequence(
        Store(slot, (), _NONE),
        For("s", ir.index(steps), halve, "carried"),
        Store(out, index, held),
    )
    return Alloc(slot, body)


def results(node: Node, stored: Sequence[Node]) -> list[tuple[int, Node]]:
    """The results of a node that are wanted, by number."""
    if len(node.types) == 1:
        return [(0, node)]
    return [(n, proj(node, n)) for n in range(len(node.types)) if proj(node, n) in stored]
