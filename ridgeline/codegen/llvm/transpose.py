"""Squares of elements turned in registers: rows are read, columns are written, none is gathered.

A square of side n takes n·log2(n) shuffles of two registers each, where one gather an element
would take n·n loads.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.codegen.llvm.scalar_ops import ScalarEmitter, Value
from ridgeline.loops.ir import Const, For, Store


def turns(loop: For) -> bool:
    """True for a loop around a vector loop of whole squares that stores one value."""
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
    """The columns of a square whose rows are given: at each power of two, pairs trade halves."""
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
    """Some lanes of two vectors."""
    mask = ", ".join(f"i32 {p}" for p in picks)
    text = f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(picks)} x i32> <{mask}>"
    return replace(emitter.instruction(text, a.dtype, a, b), lanes=len(picks))
