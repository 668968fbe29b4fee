"""Lowering rules of ops with own loops: scans, scatters, sorts, searches (`RULES`).

A rule gets a node and writes the loops of its kernel. Pointwise work and views before the op are
read inside them (`lowering.read`). Rows are the axes along which iterations stay apart, so they may
run in parallel and in lanes; what iterates inside a row may meet in memory or in time. A
scan carries an accumulator along its axis. A scatter copies its base and then joins the updates
in, one after another where several may name one element; floats it may add up in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, Op
from ridgeline.graph.sizes import Size, bounds
from ridgeline.loops import ir
from ridgeline.loops.build import cast, maximum, minimum, sequence
from ridgeline.loops.ir import Alloc, AxisKind, Buffer, Expr, For, Load, Reduce, Stmt, Store
from ridgeline.loops.lowering.iteration_space import Axis, Lowered, Nest, size_expr
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.loops.lowering.radix_tiles import RUN, RadixTile, SortedTile, counts_body
from ridgeline.loops.lowering.selection_tiles import Selection, SelectionTile
from ridgeline.loops.lowering.sorting import (
    Index,
    key,
    radix_body,
    rank_body,
    results,
    search_body,
    smallest_body,
    within,
)
from ridgeline.loops.monoids import MONOIDS, compensated_total
from ridgeline.ops.gather import SCATTER, WIDE_ADD, ramps
from ridgeline.ops.index_checks import stays_below
from ridgeline.ops.radix import RADIX, RANK, SMALLEST
from ridgeline.ops.scan import EXTREME_SCAN, LINEAR_SCAN, SCAN, carried, is_compensated
from ridgeline.ops.search import SEARCH
from ridgeline.ops.tiled_radix import DIGIT_COUNTS, TILED, tiles_of
from ridgeline.ops.tiled_selection import TILE_SMALLEST, tiles_of as selection_tiles_of

SUMS = "sums"  # the scratch in which a scatter adds up
_JOINS = {"add": "sum", "prod": "prod", "max": "max", "min": "min"}


def has_loops(node: Node) -> bool:
    """True for nodes of this family that kernels can run; the others are NumPy calls."""
    if node.op is SCATTER and node.attrs.mode in ("add", "prod"):
        # updates of narrow floats would be rounded one by one
        narrow = node.dtype.kind == "float" and node.dtype.itemsize < 4
        return node.dtype.kind != "bool" and not narrow
    return node.op in RULES


def lower_own_loops(node: Node, graph: Graph, name: str) -> Lowered:
    """The kernel of one node; `graph` computes those of its results that are wanted."""
    return RULES[node.op](node, GroupLowering(folds=(), graph=graph, name=name))


def _named(letter: str, sizes: list[Size]) -> tuple[Axis, ...]:
    single = len(sizes) == 1
    return tuple(Axis(letter if single else f"{letter}{i}", s) for i, s in enumerate(sizes))


def _register(lowering: GroupLowering, *axes: Axis) -> None:
    for axis in axes:
        lowering.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))


def _along(shape: tuple[Size, ...], axis: int, reverse: bool, lowering: GroupLowering) -> Nest:
    """Rows of a scan, and the loop along one axis of them."""
    kept = [a for a in range(len(shape)) if a != axis]
    rows = _named("r", [shape[a] for a in kept])
    inner = Axis("c", shape[axis])
    _register(lowering, *rows, inner)
    position: Expr = inner.var
    if reverse:
        position = size_expr(inner.extent) - 1 - position
    where = dict(zip(kept, (r.var for r in rows))) | {axis: position}
    index = tuple(where[a] for a in range(len(shape)))
    return Nest(rows, (inner,), tuple(r.extent for r in rows), shape, index)


def _extreme_scan(node: Node, lowering: GroupLowering) -> Lowered:
    source = node.inputs[0]
    space = _along(source.shape, node.attrs.axis, False, lowering)
    value = lowering.read(source, space.full_index, space)
    stored = results(node, lowering.graph.outputs)
    values = (value, space.inner[0].var)
    return _scanned(node, lowering, space, f"last_{node.attrs.monoid}", values, stored)


def _rank(node: Node, lowering: GroupLowering) -> Lowered:
    (keys,) = node.inputs
    rows = _named("r", list(keys.shape[:-1]))
    each, other = Axis("i", keys.shape[-1]), Axis("j", keys.shape[-1])
    _register(lowering, *rows, each, other)
    at = tuple(r.var for r in rows)
    space = Nest(rows, (each, other))
    pair = [lowering.read(keys, (*at, a.var), space) for a in (each, other)]
    out = lowering.view(node, node.shape)
    body = rank_body(out, at, keys.shape[-1], (pair[0], pair[1]))
    return _finished(node, lowering, body, space)


def _radix(node: Node, lowering: GroupLowering) -> Lowered:
    keys, order = node.inputs
    rows = _named("r", list(keys.shape[:-1]))
    each = Axis("i", keys.shape[-1])
    _register(lowering, *rows, each)
    at = tuple(r.var for r in rows)
    space = Nest(rows, (each,))
    values = [lowering.read(i, (*at, each.var), space) for i in (keys, order)]
    shift, bits = node.attrs.shift, node.attrs.bits
    moved = values[0] >> shift
    digit = cast(moved & (1 << bits) - 1, dtypes.int64)
    outputs = [
        (lowering.view(result, result.shape), values[number])
        for number, result in results(node, lowering.graph.outputs)
    ]
    body = radix_body(outputs, at, keys.shape[-1], digit, bits)
    return _finished(node, lowering, body, space)


def _tile(node: Node, lowering: GroupLowering) -> tuple[Index, RadixTile, Nest]:
    """The loops over rows and tiles, and the tile at hand."""
    keys = node.inputs[0]
    length = keys.shape[-1]
    assert isinstance(length, int), "rows are cut into tiles when their length is known"
    rows = _named("r", list(keys.shape[:-1]))
    number = Axis("p", tiles_of(length, node.attrs))
    tile = RadixTile(node.attrs.tile, number.var, length)
    _register(lowering, *rows, number, Axis("t", tile.threads), Axis("v", RUN))
    space = Nest((*rows, number))
    return tuple(r.var for r in rows), tile, space


def _counts(node: Node, lowering: GroupLowering) -> Lowered:
    at, tile, space = _tile(node, lowering)
    attrs, out = node.attrs, lowering.view(node, node.shape)

    def digit(position: Expr) -> Expr:
        own = lowering.read(node.inputs[0], (*at, position), space)
        moved = own >> attrs.shift
        return cast(moved & (1 << attrs.bits) - 1, dtypes.int64)

    def store(d: Expr, count: Expr) -> Stmt:
        return Store(out, (*at, d, tile.number), count)

    return _finished(node, lowering, counts_body(tile, 1 << attrs.bits, digit, store), space)


def _tiled(node: Node, lowering: GroupLowering) -> Lowered:
    at, tile, space = _tile(node, lowering)
    keys, order, *starts = node.inputs
    outputs = [
        (number, lowering.view(result, result.shape))
        for number, result in results(node, lowering.graph.outputs)
    ]

    def read(position: Expr) -> tuple[Expr, Expr]:
        key, before = (lowering.read(given, (*at, position), space) for given in (keys, order))
        return key, before

    def move(position: Expr, own: Sequence[Expr], digit: Expr, first: Expr) -> Stmt:
        for start in starts:
            begin = cast(lowering.read(start, (*at, digit, tile.number), space), dtypes.int64)
            position = within(begin + (position - first), tile.length)
        return sequence(
            *(Store(buffer, (*at, position), own[number]) for number, buffer in outputs)
        )

    sorted_ = SortedTile(tile, keys.dtype, node.attrs.shift, node.attrs.bits)
    return _finished(node, lowering, sorted_.body(read, move, bool(starts)), space)


def _smallest(node: Node, lowering: GroupLowering) -> Lowered:
    (keys,) = node.inputs
    rows = _named("r", list(keys.shape[:-1]))
    each = Axis("i", keys.shape[-1])
    _register(lowering, *rows, each)
    at = tuple(r.var for r in rows)
    space = Nest(rows, (each,))
    own = lowering.read(keys, (*at, each.var), space)
    values = (own, cast(each.var, dtypes.int32))
    outputs = [
        (lowering.view(result, result.shape), values[number])
        for number, result in results(node, lowering.graph.outputs)
    ]
    body = smallest_body(outputs, at, keys.shape[-1], own, node.attrs.count)
    return _finished(node, lowering, body, space)


def _tile_smallest(node: Node, lowering: GroupLowering) -> Lowered:
    keys, order = node.inputs
    attrs, length = node.attrs, keys.shape[-1]
    assert isinstance(length, int), "rows are cut into tiles when their length is known"
    rows = _named("r", list(keys.shape[:-1]))
    number = Axis("p", selection_tiles_of(length, attrs))
    tile = SelectionTile(attrs.tile, number.var, length, attrs.count)
    _register(lowering, *rows, number, Axis("t", tile.threads), Axis("v", RUN))
    space, at = Nest((*rows, number)), tuple(r.var for r in rows)
    outputs = [
        (output, lowering.view(result, result.shape))
        for output, result in results(node, lowering.graph.outputs)
    ]

    def read(position: Expr) -> Expr:
        return lowering.read(keys, (*at, position), space)

    def keep(position: Expr, own: Expr, rank: Expr) -> Stmt:
        values = (own, lowering.read(order, (*at, within(position, length)), space))
        spot = (*at, number.var * attrs.count + rank)
        return sequence(*(Store(buffer, spot, values[output]) for output, buffer in outputs))

    body = Selection(tile, keys.dtype, 0).body(read, keep)
    return _finished(node, lowering, body, space)


def _search(node: Node, lowering: GroupLowering) -> Lowered:
    sequence_, values = node.inputs
    rows = _named("r", list(values.shape))
    _register(lowering, *rows)
    at = tuple(r.var for r in rows)
    space = Nest(rows, (), values.shape, values.shape, at)
    wanted = key(lowering.read(values, at, space))
    row = at[:-1] if len(sequence_.shape) > 1 else ()
    out = lowering.view(node, node.shape)

    def element(position: Expr) -> Expr:
        return lowering.read(sequence_, (*row, position), space)

    body = search_body(out, at, element, wanted, sequence_.shape[-1], node.attrs.right)
    return _finished(node, lowering, body, space)


def _scan(node: Node, lowering: GroupLowering) -> Lowered:
    space = _along(node.shape, node.attrs.axis, node.attrs.reverse, lowering)
    wide = carried(node.dtype)
    values = tuple(cast(lowering.read(i, space.full_index, space), wide) for i in node.inputs)
    monoid = "affine" if node.op is LINEAR_SCAN else node.attrs.monoid
    if monoid == "sum" and is_compensated(node.dtype, node.shape[node.attrs.axis]):
        return _scanned(
            node, lowering, space, "compensated", (*values, ir.const(-0.0, wide)), [(0, node)]
        )
    return _scanned(node, lowering, space, monoid, values, [(len(values) - 1, node)])


def _scanned(
    node: Node, lowering: GroupLowering, space: Nest, monoid: str, values: tuple[Expr, ...],
    stored: Sequence[tuple[int, Node]],
) -> Lowered:  # fmt: skip
    """A running value by a monoid; `stored` maps its fields to results."""
    (inner,), types = space.inner, tuple(value.dtype for value in values)
    totals = tuple(Buffer(f"acc{n}", (), kind, "reg") for n, kind in enumerate(types))
    begin = [Store(t, (), first) for t, first in zip(totals, MONOIDS[monoid].init(types))]
    step = sequence(
        Reduce(totals, (), monoid, values),
        *(
            Store(
                lowering.view(result, result.shape), space.full_index,
                cast(_running_value(monoid, totals, field), result.dtype),
            )
            for field, result in stored
        ),
    )  # fmt: skip
    loop = For(inner.name, size_expr(inner.extent), step, "carried")
    body = sequence(*begin, loop)
    for total in reversed(totals):
        body = Alloc(total, body)
    return _finished(node, lowering, body, space)


def _running_value(monoid: str, totals: Sequence[Buffer], field: int) -> Expr:
    held = [Load.make(total, ()) for total in totals]
    return compensated_total(*held) if monoid == "compensated" else held[field]


def _scatter(node: Node, lowering: GroupLowering) -> Lowered:
    base, updates, *indices = node.inputs
    axes = node.attrs.axes
    rank = len(indices[0].shape)
    rest = [a for a in range(len(base.shape)) if a not in axes]
    kept = ramps(indices, axes, base)
    apart = sorted(kept.values())  # update axes whose index is the axis itself
    rows = _named("r", [indices[0].shape[d] for d in apart] + [base.shape[a] for a in rest])
    copied = [a for a in range(len(base.shape)) if a not in rest and a not in kept]
    copies = _named("c", [base.shape[a] for a in copied])
    joined = [d for d in range(rank) if d not in apart]
    turns = _named("u", [indices[0].shape[d] for d in joined])
    _register(lowering, *rows, *copies, *turns)
    row_of = {d: rows[i].var for i, d in enumerate(apart)}
    rest_of = {a: rows[len(apart) + i].var for i, a in enumerate(rest)}
    turn_of = {d: turns[i].var for i, d in enumerate(joined)}
    here = {a: row_of[d] for a, d in kept.items()} | rest_of
    space = Nest(rows, (*copies, *turns))
    out = lowering.view(node, node.shape)
    copy_index = tuple(
        here[a] if a in here else copies[copied.index(a)].var for a in range(len(base.shape))
    )
    begin = lowering.read(base, copy_index, space)
    at = tuple(row_of[d] if d in row_of else turn_of[d] for d in range(rank))
    named = dict(zip(axes, (lowering.read(i, at, space) for i in indices)))
    target = tuple(
        here[a] if a in here else _clamped(named[a], indices[axes.index(a)], base.shape[a])
        for a in range(len(base.shape))
    )
    value = lowering.read(updates, (*at, *(rest_of[a] for a in rest)), space)
    if node.attrs.mode == WIDE_ADD:
        # on a GPU the threads of a block add, in any order
        shares = node.type.device != CPU
        scope: ir.Scope = "shared" if shares else "local"
        sums = Buffer(SUMS, tuple(size_expr(c.extent) for c in copies), dtypes.float64, scope)
        index = tuple(c.var for c in copies)
        into = Reduce((sums,), tuple(target[a] for a in copied), "sum", (cast(value, sums.dtype),))
        rounded = cast(Load.make(sums, index), node.dtype)
        body = sequence(
            _nested(copies, Store(sums, index, cast(begin, sums.dtype))),
            _nested(turns, into, "reduce" if shares else "carried"),
            _nested(copies, Store(out, copy_index, rounded)),
        )
        return _finished(node, lowering, Alloc(sums, body), space)
    if node.attrs.mode == "set":
        update: Stmt = Store(out, target, value)
    else:
        update = Reduce((out,), target, _JOINS[node.attrs.mode], (value,))
    copy = _nested(copies, Store(out, copy_index, begin))
    return _finished(node, lowering, sequence(copy, _nested(turns, update, "carried")), space)


def _nested(axes: Sequence[Axis], body: Stmt, kind: AxisKind = "spatial") -> Stmt:
    for axis in reversed(axes):
        body = For(axis.name, size_expr(axis.extent), body, kind)
    return body


def _clamped(position: Expr, index: Node, size: Size) -> Expr:
    if stays_below(index, size):
        return position
    return maximum(minimum(position, size_expr(size) - 1), ir.index(0))


def _finished(node: Node, lowering: GroupLowering, body: Stmt, space: Nest) -> Lowered:
    for axis in reversed(space.rows):
        body = For(axis.name, size_expr(axis.extent), body)
    return lowering.finished(body, space, node.op)


# every op whose family is "own_loops"
RULES: dict[Op, Callable[[Node, GroupLowering], Lowered]] = {
    SCAN: _scan,
    LINEAR_SCAN: _scan,
    EXTREME_SCAN: _extreme_scan,
    SCATTER: _scatter,
    SEARCH: _search,
    RANK: _rank,
    RADIX: _radix,
    SMALLEST: _smallest,
    DIGIT_COUNTS: _counts,
    TILED: _tiled,
    TILE_SMALLEST: _tile_smallest,
}
