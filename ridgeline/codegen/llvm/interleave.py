"""Vectors of words: a few narrow elements of each lane next to each other, as one store.

Instructions that sum several products into a lane want those elements in one word. Rows that lie
apart in memory are read as vectors and interleaved; where memory has the words whole, they are
copied, or squares of them are turned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline import dtypes
from ridgeline.codegen.llvm.memory import bit_vector
from ridgeline.codegen.llvm.scalar_ops import Value
from ridgeline.codegen.llvm.transpose import length, shuffled, turned
from ridgeline.codegen.llvm.types import vector
from ridgeline.loops import ir
from ridgeline.loops.build import add, floordiv, mod, substitute
from ridgeline.loops.instructions import stride
from ridgeline.loops.ir import Const, Expr, For, Load, Stmt, Store, Var

if TYPE_CHECKING:
    from ridgeline.codegen.llvm.emit import KernelEmitter

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
            place = _fused(word.name, lane.name, depth, start)
            place[Var.make(loop.name)] = ir.index(number)
            _write(emitter, store, replace(made, lanes=side * depth), place, side * depth)


def _nest(loop: For) -> tuple[For, For, Store]:
    word = loop.body
    assert isinstance(word, For) and isinstance(word.body, For)
    assert isinstance(word.body.body, Store)
    return word, word.body, word.body.body


def _in_order(store: Store, word: str, lane: str, depth: int) -> bool:
    """True where what is stored lies in memory as whole words along an axis."""
    loads = [e for e in ir.subexpressions(store.value) if isinstance(e, Load)]
    return all(
        stride(load.buffer, load.index, word) == 1
        and stride(load.buffer, load.index, lane) == depth
        for load in loads
    )


def _across(store: Store, lane: str) -> bool:
    """True where what is stored lies in memory element by element along an axis across words."""
    loads = [e for e in ir.subexpressions(store.value) if isinstance(e, Load)]
    return all(stride(load.buffer, load.index, lane) == 1 for load in loads)


def _fused(word: str, lane: str, depth: int, start: int = 0) -> dict[Expr, Expr]:
    """Both loops in terms of one over all elements of all words."""
    element = Var.make(_ELEMENT)
    number = add(floordiv(element, ir.index(depth)), ir.index(start))
    return {Var.make(word): mod(element, ir.index(depth)), Var.make(lane): number}


def _words(
    emitter: KernelEmitter, value: Expr, word: str, lane: str, depth: int, words: int
) -> Value:
    """A vector of words that lie in memory as they are wanted."""
    _lanes(emitter, _ELEMENT, depth * words)
    emitter.momentary = {}
    made = emitter.value(substitute(value, _fused(word, lane, depth)))
    return emitter.widen(made, emitter.lane_count)


def _joined(
    emitter: KernelEmitter, value: Expr, word: str, lane: str, depth: int, words: int
) -> Value:
    """A vector of words whose elements lie apart, each in a row of its own."""
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
    picks = [place for lane in range(a.lanes) for place in (lane, a.lanes + lane)]
    return shuffled(emitter, a, b, picks)


def _write(
    emitter: KernelEmitter, store: Store, made: Value, place: dict[Expr, Expr], elements: int
) -> None:
    _lanes(emitter, _ELEMENT, elements)
    index = tuple(substitute(i, place) for i in store.index)
    emitter.write(store.buffer, index, made, emitter.line)
    emitter.lanes_var, emitter.lane_mask, emitter.lane_bits = None, None, None
    emitter.lane_count = 1


def _lanes(emitter: KernelEmitter, name: str, size: int) -> None:
    """Let values be vectors over the lanes of a loop."""
    count = emitter.lanes_for(size)
    bits = None if count == size else tuple(i < size for i in range(count))
    emitter.lanes_var, emitter.lane_count, emitter.lane_length = name, count, size
    emitter.lane_bits, emitter.lane_mask = bits, None if bits is None else bit_vector(bits)
