"""Scratch reuse: two rows of scratch whose lifetimes do not overlap share one allocation.

A chain keeps a row of scores, and then a row of what it makes of them, element by element. Where
nothing reads the scores after that, one row holds first these and then those: half the scratch,
so that longer rows, or more of them, stay in a core's own cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import permutations

from ridgeline.loops import ir
from ridgeline.loops.build import map_buffers, sequence
from ridgeline.loops.ir import Buffer, For, Load, Reduce, Seq, Stmt, Store


def in_one_row(body: Stmt, rows: Iterable[Buffer]) -> tuple[Stmt, list[Buffer]]:
    """The same stages over as few rows of scratch as they need, and these rows."""
    stages: list[Stmt] = list(body.body) if isinstance(body, Seq) else [body]
    kept = list(rows)
    for number in range(len(stages)):
        for old, new in permutations(tuple(kept), 2):
            if new in kept and _is_followed(stages, number, old, new):
                stages[number] = _stored_last(stages[number], new)
                stages = [map_buffers(s, partial(_in_place_of, old, new)) for s in stages]
                kept.remove(new)
    return sequence(*stages), kept


def _in_place_of(old: Buffer, new: Buffer, buffer: Buffer) -> Buffer:
    return old if buffer == new else buffer


def _is_followed(stages: list[Stmt], number: int, old: Buffer, new: Buffer) -> bool:
    """True if a stage makes one row of another, which otherwise only earlier stages read."""
    stage = stages[number]
    if old == new or (old.shape, old.dtype) != (new.shape, new.dtype) or not _is_plain(stage):
        return False
    stores = [s for s in ir.statements(stage) if isinstance(s, Store) and s.buffer == new]
    reads = [load for load in _loads(stage) if load.buffer == old]
    if len({s.index for s in stores}) != 1 or {r.index for r in reads} != {stores[0].index}:
        return False
    others = [*stages[:number], *stages[number + 1 :]]
    if any(_writes(s, new) for s in others) or any(b == new for b in map(_buffer, _loads(stage))):
        return False
    return not any(_writes(s, old) or old in map(_buffer, _loads(s)) for s in stages[number + 1 :])


def _is_plain(stage: Stmt) -> bool:
    """True for one loop over elements that sums and stores, each statement for one element."""
    return isinstance(stage, For) and all(isinstance(s, Store | Reduce) for s in _parts(stage.body))


def _stored_last(stage: Stmt, row: Buffer) -> Stmt:
    """A loop that stores into a row after all its other uses of that element."""
    assert isinstance(stage, For)
    parts = _parts(stage.body)
    last = [p for p in parts if isinstance(p, Store) and p.buffer == row]
    return replace(stage, body=sequence(*(p for p in parts if p not in last), *last))


def _parts(body: Stmt) -> tuple[Stmt, ...]:
    return body.body if isinstance(body, Seq) else (body,)


def _writes(stage: Stmt, row: Buffer) -> bool:
    return any(isinstance(s, Store) and s.buffer == row for s in ir.statements(stage))


def _loads(stage: Stmt) -> list[Load]:
    expressions = [e for s in ir.statements(stage) for e in ir.expressions(s)]
    return [e for e in ir.subexpressions(*expressions) if isinstance(e, Load)]


def _buffer(load: Load) -> Buffer:
    return load.buffer
