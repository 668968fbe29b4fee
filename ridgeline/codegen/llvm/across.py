"""Results that lie across the lanes: turned in registers before they are finished and stored.

Tiles with channels in the lanes and pixels unrolled leave sums whose neighbours in memory are in
different registers. Stored lane by lane, every element would be a store of its own. Here squares
of sums are turned, and what follows (a bias, a residual, an activation) runs with pixels in the
lanes, where operands and results are in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.codegen.llvm.memory import bit_vector
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.transpose import length, shuffled, turned
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, substitute
from ridgeline.loops.ir import Const, Expr, For, Load, Store, Var
from ridgeline.loops.tiles import stride

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.emit import KernelEmitter

_FEWEST = 4  # unrolled steps worth turning
_MOST = 16


def lies_across(loop: For) -> bool:
    """True for an unrolled loop around a vector loop whose results lie along the unrolled one."""
    inner = loop.body
    if not (isinstance(inner, For) and inner.kind == "vector" and isinstance(inner.body, Store)):
        return False
    if not (isinstance(loop.extent, Const) and isinstance(inner.extent, Const)):
        return False
    steps, lanes, store = length(loop), length(inner), inner.body
    if not _FEWEST <= steps <= _MOST or lanes % _side(steps) or lanes & (lanes - 1):
        return False
    if store.buffer.scope != "global" or stride(store.buffer, store.index, loop.name) != 1:
        return False
    if stride(store.buffer, store.index, inner.name) in (0, 1, None):
        return False
    held = _held(store, inner.name)
    return bool(held) and all(
        stride(load.buffer, load.index, inner.name) == 1
        and loop.name in frozenset().union(*map(free_vars, load.index))
        for load in held
    )


def store_across(emitter: KernelEmitter, loop: For) -> None:
    """Turn squares of what the lanes hold, and finish and store each of their columns."""
    inner = loop.body
    assert isinstance(inner, For) and isinstance(inner.body, Store)
    steps, lanes, store = length(loop), length(inner), inner.body
    side = _side(steps)
    rows = {
        load: [_row(emitter, load, loop, inner, step) for step in range(steps)]
        for load in _held(store, inner.name)
    }
    bits = tuple(i < steps for i in range(side))
    emitter.lanes_var, emitter.lane_count, emitter.lane_length = loop.name, side, steps
    if steps < side:
        emitter.lane_bits, emitter.lane_mask = bits, bit_vector(bits)
    for start in range(0, lanes, side):
        squares = {load: _square(emitter, held, start, side) for load, held in rows.items()}
        for number in range(side):
            emitter.momentary = {}
            here: dict[Expr, Expr] = {Var.make(inner.name): ir.index(start + number)}
            for load, columns in squares.items():
                here[load] = emitter.hole(columns[number])
            value = emitter.value(substitute(store.value, here))
            place = tuple(substitute(i, here) for i in store.index)
            emitter.write(store.buffer, place, emitter.widen(value, side), emitter.line)
    emitter.lanes_var, emitter.lane_mask, emitter.lane_bits = None, None, None
    emitter.lane_count = 1


def _side(steps: int) -> int:
    return 1 << (steps - 1).bit_length()


def _held(store: Store, lane: str) -> list[Load]:
    """What the lanes hold in registers and scratch."""
    loads = [e for e in ir.subexpressions(store.value) if isinstance(e, Load)]
    near = [load for load in loads if load.buffer.scope in ("reg", "local")]
    return [load for load in near if any(lane in free_vars(i) for i in load.index)]


def _row(emitter: KernelEmitter, load: Load, loop: For, inner: For, step: int) -> Value:
    lanes = length(inner)
    emitter.lanes_var, emitter.lane_count, emitter.lane_length = inner.name, lanes, lanes
    emitter.momentary = {}
    return emitter.value(substitute(load, {Var.make(loop.name): ir.index(step)}))


def _square(emitter: KernelEmitter, rows: list[Value], start: int, side: int) -> list[Value]:
    """The columns of some lanes of all rows; rows that are missing repeat the first."""
    picks = list(range(start, start + side))
    part = [row if row.lanes == side else shuffled(emitter, row, row, picks) for row in rows]
    return turned(emitter, part + part[:1] * (side - len(part)))
