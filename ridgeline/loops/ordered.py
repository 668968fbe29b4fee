"""Kernels whose inner iterations meet in memory or in time: prefix scans and scatters.

Rows are the axes along which iterations stay apart, so they may run in parallel and in lanes. A
scan carries an accumulator along its axis. A scatter copies its base and then joins the updates
in, one after another where several may name one element.
"""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size, bounds
from ridgeline.loops import ir
from ridgeline.loops.build import add, cast, maximum, minimum, mul, sub
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Load, Reduce, Stmt, Store
from ridgeline.loops.lower import Axis, GroupLowering, Lowered, Space
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.rewrite import sequence
from ridgeline.loops.views import size_expr
from ridgeline.ops.elementwise import IOTA
from ridgeline.ops.gather import SCATTER
from ridgeline.ops.index_checks import stays_below
from ridgeline.ops.scan import LINEAR_SCAN, SCAN, carried

ORDERED = (SCAN, LINEAR_SCAN, SCATTER)
_JOINS = {"add": "sum", "prod": "prod", "max": "max", "min": "min"}


def has_loops(node: Node) -> bool:
    """True for scans and scatters that kernels can run; the others are library calls."""
    if node.op is SCAN:
        return node.attrs.monoid in ("sum", "prod")
    if node.op is SCATTER:  # updates of narrow floats would be rounded one by one
        narrow = node.dtype.kind == "float" and node.dtype.itemsize < 4
        return node.dtype.kind != "bool" and not narrow
    return node.op is LINEAR_SCAN


def lower_ordered(node: Node, external: Callable[[Node], bool], name: str) -> Lowered:
    """The kernel of one scan or scatter."""
    lowering = GroupLowering((), [node], external, name)
    return _scatter(node, lowering) if node.op is SCATTER else _scan(node, lowering)


def _named(letter: str, sizes: list[Size]) -> tuple[Axis, ...]:
    single = len(sizes) == 1
    return tuple(Axis(letter if single else f"{letter}{i}", s) for i, s in enumerate(sizes))


def _register(lowering: GroupLowering, *axes: Axis) -> None:
    for axis in axes:
        lowering.ranges[axis.name] = (0, max(bounds(axis.extent)[1] - 1, 0))


def _scan(node: Node, lowering: GroupLowering) -> Lowered:
    along = node.attrs.axis
    kept = [a for a in range(len(node.shape)) if a != along]
    rows = _named("r", [node.shape[a] for a in kept])
    inner = Axis("c", node.shape[along])
    _register(lowering, *rows, inner)
    place: Expr = inner.var
    if node.attrs.reverse:
        place = sub(sub(size_expr(inner.extent), ir.index(1)), place)
    where = dict(zip(kept, (r.var for r in rows))) | {along: place}
    index = tuple(where[a] for a in range(len(node.shape)))
    space = Space(rows, (inner,), tuple(r.extent for r in rows), node.shape, index)
    wide = carried(node.dtype)
    values = [cast(lowering.read(i, index, space), wide) for i in node.inputs]
    total = Buffer("acc0", (), wide, "reg")
    held = Load.make(total, ())
    if node.op is LINEAR_SCAN:
        first: Expr = ir.const(0, wide)
        step: Stmt = Store(total, (), add(mul(values[0], held), values[1]))
    else:
        (first,) = MONOIDS[node.attrs.monoid].init((wide,))
        step = Reduce((total,), (), node.attrs.monoid, (values[0],))
    result = Store(lowering.view(node, node.shape), index, cast(held, node.dtype))
    loop = For(inner.name, size_expr(inner.extent), sequence(step, result), "carried")
    body: Stmt = Alloc(total, sequence(Store(total, (), first), loop))
    return _finished(node, lowering, body, space)


def _scatter(node: Node, lowering: GroupLowering) -> Lowered:
    base, updates, *indices = node.inputs
    axes = node.attrs.axes
    rank = len(indices[0].shape)
    rest = [a for a in range(len(base.shape)) if a not in axes]
    ramps = _ramps(indices, axes, base)
    apart = sorted(ramps.values())  # update axes whose index is the axis itself
    rows = _named("r", [indices[0].shape[d] for d in apart] + [base.shape[a] for a in rest])
    copied = [a for a in range(len(base.shape)) if a not in rest and a not in ramps]
    copies = _named("c", [base.shape[a] for a in copied])
    joined = [d for d in range(rank) if d not in apart]
    turns = _named("u", [indices[0].shape[d] for d in joined])
    _register(lowering, *rows, *copies, *turns)
    row_of = {d: rows[i].var for i, d in enumerate(apart)}
    rest_of = {a: rows[len(apart) + i].var for i, a in enumerate(rest)}
    turn_of = {d: turns[i].var for i, d in enumerate(joined)}
    here = {a: row_of[d] for a, d in ramps.items()} | rest_of
    space = Space(rows, (*copies, *turns), (), (), ())
    out = lowering.view(node, node.shape)
    copy_index = tuple(
        here[a] if a in here else copies[copied.index(a)].var for a in range(len(base.shape))
    )
    copy: Stmt = Store(out, copy_index, lowering.read(base, copy_index, space))
    for axis in reversed(copies):
        copy = For(axis.name, size_expr(axis.extent), copy)
    at = tuple(row_of[d] if d in row_of else turn_of[d] for d in range(rank))
    named = dict(zip(axes, (lowering.read(i, at, space) for i in indices)))
    target = tuple(
        here[a] if a in here else _clamped(named[a], indices[axes.index(a)], base.shape[a])
        for a in range(len(base.shape))
    )
    value = lowering.read(updates, (*at, *(rest_of[a] for a in rest)), space)
    if node.attrs.mode == "set":
        update: Stmt = Store(out, target, value)
    else:
        update = Reduce((out,), target, _JOINS[node.attrs.mode], (value,))
    for axis in reversed(turns):
        update = For(axis.name, size_expr(axis.extent), update, "carried")
    return _finished(node, lowering, sequence(copy, update), space)


def _ramps(indices: list[Node], axes: tuple[int, ...], base: Node) -> dict[int, int]:
    """Target axes that are indexed by one update axis itself, over all of their length."""
    found: dict[int, int] = {}
    for axis, index in zip(axes, indices):
        ramp = index.op is IOTA and index.attrs.axis not in found.values()
        if ramp and index.shape[index.attrs.axis] == base.shape[axis]:
            found[axis] = index.attrs.axis
    return found


def _clamped(place: Expr, index: Node, size: Size) -> Expr:
    if stays_below(index, size):
        return place
    return maximum(minimum(place, sub(size_expr(size), ir.index(1))), ir.index(0))


def _finished(node: Node, lowering: GroupLowering, body: Stmt, space: Space) -> Lowered:
    for axis in reversed(space.rows):
        body = For(axis.name, size_expr(axis.extent), body)
    return lowering.finished(body, space, node.op)
