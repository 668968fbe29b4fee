"""Transposes and interleaves in registers, for elements in another order than in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.memory import bit_vector
from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.codegen.llvm.types import vector
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, substitute
from ridgeline.loops.instructions import stride
from ridgeline.loops.ir import Const, Expr, For, Load, OpExpr, Stmt, Store, Var

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.emit import KernelEmitter


# ---- squares of elements turned in registers -----------------------------------------------------


def turns(loop: For) -> bool:
    """True for a transposing loop around a vector loop of whole squares that stores one value."""
    inner = loop.body
    if not (isinstance(inner, For) and inner.kind == "vector" and isinstance(inner.body, Store)):
        return False
    if not (isinstance(loop.extent, Const) and isinstance(inner.extent, Const)):
        return False
    side = length(loop)
    return side > 1 and side & (side - 1) == 0 and length(inner) % side == 0


def length(loop: For) -> int:
    """The number of iterations of a loop where it is known."""
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)


def turned(emitter: ScalarEmitter, rows: list[Value]) -> list[Value]:
    """The columns of a square, given its rows: at each power of two, pairs swap halves."""
    side, step = len(rows), 1
    columns = list(rows)
    while step < side:
        low = [j + side - step if j & step else j for j in range(side)]
        high = [j + side if j & step else j + step for j in range(side)]
        for i in range(side):
            if not i & step:
                pair = columns[i], columns[i + step]
                columns[i] = shuffled(emitter, *pair, low)
                columns[i + step] = shuffled(emitter, *pair, high)
        step *= 2
    return columns


def shuffled(emitter: ScalarEmitter, a: Value, b: Value, picks: list[int]) -> Value:
    """Selected lanes of two vectors."""
    mask = ", ".join(f"i32 {p}" for p in picks)
    text = f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(picks)} x i32> <{mask}>"
    return replace(emitter.instruction(text, a.dtype, a, b), lanes=len(picks))


# ---- results that lie across the lanes, turned before they are stored ----------------------------
# Tiles with channels in the lanes and pixels unrolled leave sums whose neighbours in memory are in
# different registers. Stored lane by lane, every element would be a store of its own. Here squares
# of sums are turned, and what follows (a bias, a residual, an activation) runs with pixels in the
# lanes, where operands and results are in order. Where much follows, as the update of a parameter
# behind its gradient, it is a loop over the columns, which wait for it in scratch.

_FEWEST = 4  # unrolled steps worth turning
_MOST = 16
_SPELLED_OUT = 4  # operations on a column that are written down for every one


def lies_across(loop: For) -> bool:
    """True for an unrolled loop around a vector loop that stores along the unrolled one."""
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
    """Transpose squares of what the lanes hold, and finish and store each of their columns."""
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
    found = [e for e in ir.subexpressions(store.value) if isinstance(e, OpExpr)]
    return sum(not free_vars(e).isdisjoint(axes) for e in found)


def _finish(
    emitter: KernelEmitter, store: Store, held: dict[Load, Value], point: dict[Expr, Expr]
) -> None:
    """Compute and store one column."""
    emitter.momentary = {}
    here: dict[Expr, Expr] = {**point, **{load: emitter.hole(v) for load, v in held.items()}}
    value = emitter.value(substitute(store.value, here))
    index = tuple(substitute(i, here) for i in store.index)
    emitter.write(store.buffer, index, emitter.widen(value, emitter.lane_count), emitter.line)


def _finish_in_a_loop(
    emitter: KernelEmitter, store: Store, axis: str, columns: dict[Load, list[Value]]
) -> None:
    """Spill all columns, then compute and store them in a loop."""
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
            name = emitter.insert(emitter.here, f"load {first.type}, ptr {address}")
            held[load] = replace(first, name=name, depth=emitter.here)
        _finish(emitter, store, held, {})


def _place(emitter: KernelEmitter, kind: str, scratch: str, number: str) -> str:
    return emitter.insert(emitter.here, f"getelementptr {kind}, ptr {scratch}, i64 {number}")


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
    """The columns of some lanes of all rows; missing rows repeat the first."""
    picks = list(range(start, start + side))
    part = [row if row.lanes == side else shuffled(emitter, row, row, picks) for row in rows]
    return turned(emitter, part + part[:1] * (side - len(part)))


# ---- vectors of words: a few narrow elements of each lane next to each other, as one store -------
# Instructions that sum several products into a lane want those elements in one word. Rows that lie
# apart in memory are read as vectors and interleaved; where memory has the words whole, they are
# copied, or squares of them are turned.


_DEPTHS = (2, 4)
_WORD_BYTES = 4
_ELEMENT = "element"  # the lanes of a vector of words, as one loop


def interleaves(loop: Stmt) -> bool:
    """True for an unrolled loop over the elements of words around a vector loop over words."""
    if not (isinstance(loop, For) and loop.kind == "unroll" and isinstance(loop.body, For)):
        return False
    inner = loop.body
    if inner.kind != "vector" or not isinstance(inner.body, Store):
        return False
    if not (isinstance(loop.extent, Const) and isinstance(inner.extent, Const)):
        return False
    store, depth = inner.body, length(loop)
    return (
        depth in _DEPTHS
        and length(inner) > 1
        and store.buffer.scope == "local"
        and stride(store.buffer, store.index, loop.name) == 1
        and stride(store.buffer, store.index, inner.name) == depth
    )


def store_interleaved(emitter: KernelEmitter, loop: For) -> None:
    """Read what words are made of, and store the words of all lanes at once."""
    inner = loop.body
    assert isinstance(inner, For) and isinstance(inner.body, Store)
    store, depth, words = inner.body, length(loop), length(inner)
    if _in_order(store, loop.name, inner.name, depth):
        made = _words(emitter, store.value, loop.name, inner.name, depth, words)
    else:
        made = _joined(emitter, store.value, loop.name, inner.name, depth, words)
    _write(emitter, store, made, _fused(loop.name, inner.name, depth), depth * words)


def turns_words(loop: For) -> bool:
    """True for a loop around interleaved stores of words, or their elements, that lie along it."""
    if not (interleaves(loop.body) and isinstance(loop.extent, Const)):
        return False
    word, lane, store = _nest(loop)
    side, depth, dtype = length(loop), length(word), store.buffer.dtype
    whole = side > 1 and side & (side - 1) == 0 and length(lane) % side == 0
    word_wide = dtype.kind != "float" and dtype.itemsize * depth == _WORD_BYTES
    along = _in_order(store, word.name, loop.name, depth) or _across(store, loop.name)
    return whole and word_wide and along


def turn_words(emitter: KernelEmitter, loop: For) -> None:
    """Read words along the outer loop, turn squares of them, write them along the lanes."""
    word, lane, store = _nest(loop)
    side, depth = length(loop), length(word)
    narrow, wide = vector(f"i{32 // depth}", side * depth), vector("i32", side)
    for start in range(0, length(lane), side):
        rows = []
        for number in range(start, start + side):
            value = substitute(store.value, {Var.make(lane.name): ir.index(number)})
            if _across(store, loop.name):
                made = _joined(emitter, value, word.name, loop.name, depth, side)
            else:
                made = _words(emitter, value, word.name, loop.name, depth, side)
            cast = emitter.instruction(f"bitcast {narrow} {made.name} to {wide}", made.dtype, made)
            rows.append(replace(cast, dtype=dtypes.int32, lanes=side))
        for number, column in enumerate(turned(emitter, rows)):
            text = f"bitcast {wide} {column.name} to {narrow}"
            made = emitter.instruction(text, store.buffer.dtype, column)
            position = _fused(word.name, lane.name, depth, start)
            position[Var.make(loop.name)] = ir.index(number)
            _write(emitter, store, replace(made, lanes=side * depth), position, side * depth)


def _nest(loop: For) -> tuple[For, For, Store]:
    word = loop.body
    assert isinstance(word, For) and isinstance(word.body, For)
    assert isinstance(word.body.body, Store)
    return word, word.body, word.body.body


def _in_order(store: Store, word: str, lane: str, depth: int) -> bool:
    """True if what is stored is in memory as whole words along an axis."""
    loads = [e for e in ir.subexpressions(store.value) if isinstance(e, Load)]
    return all(
        stride(load.buffer, load.index, word) == 1
        and stride(load.buffer, load.index, lane) == depth
        for load in loads
    )


def _across(store: Store, lane: str) -> bool:
    """True if what is stored is in memory element by element along an axis across words."""
    loads = [e for e in ir.subexpressions(store.value) if isinstance(e, Load)]
    return all(stride(load.buffer, load.index, lane) == 1 for load in loads)


def _fused(word: str, lane: str, depth: int, start: int = 0) -> dict[Expr, Expr]:
    """Both loops as one over all elements of all words."""
    element = Var.make(_ELEMENT)
    number = element // ir.index(depth) + ir.index(start)
    return {Var.make(word): element % ir.index(depth), Var.make(lane): number}


def _words(
    emitter: KernelEmitter, value: Expr, word: str, lane: str, depth: int, words: int
) -> Value:
    """A vector of words that are contiguous in memory."""
    _lanes(emitter, _ELEMENT, depth * words)
    emitter.momentary = {}
    made = emitter.value(substitute(value, _fused(word, lane, depth)))
    return emitter.widen(made, emitter.lane_count)


def _joined(
    emitter: KernelEmitter, value: Expr, word: str, lane: str, depth: int, words: int
) -> Value:
    """A vector of words whose elements are each in a row of their own."""
    rows = []
    _lanes(emitter, lane, words)
    for element in range(depth):
        emitter.momentary = {}
        row = emitter.value(substitute(value, {Var.make(word): ir.index(element)}))
        rows.append(emitter.widen(row, emitter.lane_count))
    return _interleaved(emitter, rows)


def _interleaved(emitter: KernelEmitter, rows: list[Value]) -> Value:
    """First elements of all rows, then second ones."""
    if len(rows) == 1:
        return rows[0]
    a, b = _interleaved(emitter, rows[::2]), _interleaved(emitter, rows[1::2])
    picks = [pick for lane in range(a.lanes) for pick in (lane, a.lanes + lane)]
    return shuffled(emitter, a, b, picks)


def _write(
    emitter: KernelEmitter, store: Store, made: Value, point: dict[Expr, Expr], elements: int
) -> None:
    _lanes(emitter, _ELEMENT, elements)
    index = tuple(substitute(i, point) for i in store.index)
    emitter.write(store.buffer, index, made, emitter.line)
    emitter.lanes_var, emitter.lane_mask, emitter.lane_bits = None, None, None
    emitter.lane_count = 1


def _lanes(emitter: KernelEmitter, name: str, size: int) -> None:
    """Let values be vectors over the lanes of a loop."""
    count = emitter.lanes_for(size)
    bits = None if count == size else tuple(i < size for i in range(count))
    emitter.lanes_var, emitter.lane_count, emitter.lane_length = name, count, size
    emitter.lane_bits, emitter.lane_mask = bits, None if bits is None else bit_vector(bits)
