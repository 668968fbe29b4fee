"""Results that lie across the lanes: turned in registers before they are finished and stored.

Tiles with channels in the lanes and pixels unrolled leave sums whose neighbours in memory are in
different registers. Stored lane by lane, every element would be a store of its own. Here squares
of sums are turned, and what follows (a bias, a residual, an activation) runs with pixels in the
lanes, where operands and results are in order. Where much follows, as the update of a parameter
behind its gradient, it is a loop over the columns, which wait for it in scratch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.codegen.llvm.memory import bit_vector
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.transpose import length, shuffled, turned
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, substitute
from ridgeline.loops.instructions import stride
from ridgeline.loops.ir import Const, Expr, For, Load, Op, Store, Var

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.emit import KernelEmitter

_FEWEST = 4  # unrolled steps worth turning
_MOST = 16
_SPELLED_OUT = 4  # operations on a column that are written down for every one


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
    later: dict[Load, list[Value]] = {load: [] for load in rows}
    in_a_loop = _operations(store, loop.name, inner.name) > _SPELLED_OUT
    for start in range(0, lanes, side):
        squares = {load: _square(emitter, held, start, side) for load, held in rows.items()}
        for number in range(0 if in_a_loop else side):
            columns = {load: square[number] for load, square in squares.items()}
            _finish(emitter, store, columns, {Var.make(inner.name): ir.index(start + number)})
        for load, square in squares.items():
            later[load] += square
    if in_a_loop:
        _finish_in_a_loop(emitter, store, inner.name, later)
    emitter.lanes_var, emitter.lane_mask, emitter.lane_bits = None, None, None
    emitter.lane_count = 1


def _operations(store: Store, *axes: str) -> int:
    """What is computed of every element."""
    found = [e for e in ir.subexpressions(store.value) if isinstance(e, Op)]
    return sum(not free_vars(e).isdisjoint(axes) for e in found)


def _finish(
    emitter: KernelEmitter, store: Store, held: dict[Load, Value], place: dict[Expr, Expr]
) -> None:
    """Compute and store one column."""
    emitter.momentary = {}
    here: dict[Expr, Expr] = {**place, **{load: emitter.hole(v) for load, v in held.items()}}
    value = emitter.value(substitute(store.value, here))
    index = tuple(substitute(i, here) for i in store.index)
    emitter.write(store.buffer, index, emitter.widen(value, emitter.lane_count), emitter.line)


def _finish_in_a_loop(
    emitter: KernelEmitter, store: Store, axis: str, columns: dict[Load, list[Value]]
) -> None:
    """Lay all columns down, and compute and store one after the other."""
    scratch: dict[Load, str] = {}
    for load, values in columns.items():
        scratch[load] = f"%v{emitter.fresh()}"
        kind = values[0].type
        emitter.allocas.append(f"  {scratch[load]} = alloca [{len(values)} x {kind}], align 64")
        for number, value in enumerate(values):
            address = _place(emitter, kind, scratch[load], str(number))
            emitter.line(f"store {kind} {value.name}, ptr {address}")
    (count,) = {len(values) for values in columns.values()}
    with emitter.counted("0", str(count), runs=True) as turn:
        emitter.bind(axis, turn)
        held: dict[Load, Value] = {}
        for load, (first, *_) in columns.items():
            address = _place(emitter, first.type, scratch[load], turn.name)
            name = emitter.place(emitter.here, f"load {first.type}, ptr {address}")
            held[load] = replace(first, name=name, depth=emitter.here)
        _finish(emitter, store, held, {})


def _place(emitter: KernelEmitter, kind: str, scratch: str, number: str) -> str:
    return emitter.place(emitter.here, f"getelementptr {kind}, ptr {scratch}, i64 {number}")


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
