"""Address arithmetic: over the lanes of a vector, and over iterations, for prefetching.

`over_lanes` splits an index into a part that all lanes share and one known number per lane, also
through divisions and remainders whose other terms divide evenly: `(8*i + v) // 2` over eight
lanes is `4*i` plus 0 0 1 1 2 2 3 3.

A processor foresees loads that go on from line to line. Where a loop moves by several lines and
reads few of them, as down the columns of a matrix, it does not, or too late, and every step waits
for the caches further out. Asking (`ahead_of`) costs an instruction a line and step, and changes no
value: an address past the end of the buffer is ignored. Columns of matrices fall on few sets of the
nearest cache, so what is asked for goes to the next one. A register tile that is summed for a long
time and then joined with what lies in memory, as in the update of a weight by its gradient, would
wait for that too: it is asked for before the sum (`after`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import values_at
from ridgeline.loops.build import affine, free_vars, substitute
from ridgeline.loops.ir import (
    Buffer,
    Const,
    Expr,
    For,
    Load,
    OpExpr,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)

Offsets = tuple[int, ...]
AHEAD = 64  # steps between asking and using
_LEAST_STEP = 256  # bytes between the addresses of two steps
_LINE = 64
_MOST_LINES = 8  # of a step
_LEAST_STEPS = 64  # of a loop that is long enough to hide what is asked for before it
_MOST_LINES_AFTER = 64  # of one access behind it


@lru_cache(maxsize=512)
def steady(step: int, lanes: int) -> Offsets:
    """Offsets that grow by one step from lane to lane."""
    return tuple([step * lane for lane in range(lanes)])


def over_lanes(expr: Expr, var: str, lanes: int) -> tuple[Expr, Offsets] | None:
    """The shared part and the offset of each lane; None if offsets depend on other loops."""
    if var not in free_vars(expr):
        return expr, steady(0, lanes)
    form = affine(expr)
    if form is not None:
        coefficients = form.strides
        step = coefficients.pop(var)
        shared = _sum(coefficients, form.offset)
        return shared, steady(step, lanes)
    if not isinstance(expr, OpExpr):
        return None
    if expr.name in ("add", "sub"):
        return _of_sum(expr, var, lanes)
    if expr.name in ("floordiv", "mod") and isinstance(expr.args[1], Const):
        return _of_division(expr, var, lanes)
    if expr.name == "mul" and isinstance(expr.args[1], Const):
        inner = over_lanes(expr.args[0], var, lanes)
        factor = int(expr.args[1].value)
        return inner and (inner[0] * expr.args[1], tuple(o * factor for o in inner[1]))
    return None


def _of_sum(expr: OpExpr, var: str, lanes: int) -> tuple[Expr, Offsets] | None:
    left = over_lanes(expr.args[0], var, lanes)
    right = over_lanes(expr.args[1], var, lanes)
    if left is None or right is None:
        return None
    sign = 1 if expr.name == "add" else -1
    shared = left[0] + right[0] if sign == 1 else left[0] - right[0]
    return shared, tuple(a + sign * b for a, b in zip(left[1], right[1]))


def _of_division(expr: OpExpr, var: str, lanes: int) -> tuple[Expr, Offsets] | None:
    divisor = int(expr.args[1].value)  # type: ignore[attr-defined]
    form = affine(expr.args[0])
    if form is None or divisor <= 0:
        return None
    coefficients = form.strides
    step = coefficients.pop(var)
    if any(c % divisor for c in coefficients.values()):
        return None
    offsets = [step * lane + form.offset for lane in range(lanes)]
    if expr.name == "mod":
        return ir.index(0), tuple(p % divisor for p in offsets)
    shared = _sum({name: c // divisor for name, c in coefficients.items()}, 0)
    return shared, tuple(p // divisor for p in offsets)


def _sum(coefficients: dict[str, int], constant: int) -> Expr:
    total: Expr = ir.index(constant)
    for name in sorted(coefficients):
        total = total + Var.make(name) * ir.index(coefficients[name])
    return total


def holds_in_lanes(condition: Expr, var: str, lanes: int) -> tuple[bool, ...] | None:
    """In which lanes a condition on the lane number alone holds; None if it needs other loops."""
    if free_vars(condition) != {var}:
        return None
    found = values_at([condition], {"": np.zeros(lanes, np.int64), var: np.arange(lanes)})
    return None if found is None else tuple(found[0].tolist())


@dataclass(frozen=True, slots=True)
class Ahead:
    """An access some iterations later, and the byte offset of each line that one touches."""

    load: Load
    offsets: tuple[int, ...]


def ahead_of(loop: For, cache_bytes: int, around: Sequence[For] = ()) -> Iterator[Ahead]:
    """What to prefetch in a serial loop around unrolled and vector loops."""
    inside = [s for s in ir.statements(loop.body) if isinstance(s, For)]
    if any(s.kind not in ("unroll", "vector") for s in inside):
        return
    start: dict[Expr, Expr] = {Var.make(s.name): ir.index(0) for s in inside}
    start[Var.make(loop.name)] = Var.make(loop.name) + ir.index(AHEAD)
    for load in _loads(loop.body):
        moves = _moves(load, cache_bytes)
        if moves is None or abs(moves.get(loop.name, 0)) < _LEAST_STEP:
            continue
        if _steps(moves, loop, around) <= 2 * AHEAD:
            continue
        lines = _lines(moves, inside)
        gaps = len(lines) * _LINE < abs(moves[loop.name])
        if len(lines) <= _MOST_LINES and gaps:
            index = tuple(substitute(i, start) for i in load.index)
            yield Ahead(Load.make(load.buffer, index), lines)


def after(loop: For, rest: Sequence[Stmt], cache_bytes: int) -> Iterator[Ahead]:
    """What to prefetch for the statements after a long loop, each line once."""
    steps = isinstance(loop.extent, Const) and int(loop.extent.value) >= _LEAST_STEPS
    if not steps or not _is_flat(loop.body):
        return
    seen: set[Load] = set()
    for part in rest:
        if not _is_flat(part):
            return
        inside = [s for s in ir.statements(part) if isinstance(s, For)]
        start: dict[Expr, Expr] = {Var.make(s.name): ir.index(0) for s in inside}
        for load in _loads(part):
            moves = _moves(load, cache_bytes)
            first = Load.make(load.buffer, tuple(substitute(i, start) for i in load.index))
            if moves is None or first in seen:
                continue
            seen.add(first)
            lines = _lines(moves, inside)
            if len(lines) <= _MOST_LINES_AFTER:
                yield Ahead(first, lines)


def _steps(moves: dict[str, int], loop: For, around: Sequence[For]) -> int:
    """Steps that an address goes on by as it does in a loop, also from one run of it to the next,
    as in the blocks of a sum; 0 if that is not known."""
    steps = _length(loop)
    for outer in reversed(around):
        apart, rest = divmod(moves.get(outer.name, 0), moves[loop.name])
        if rest or apart <= 0 or steps not in (None, apart):
            break
        steps = apart * (_length(outer) or 0)
    return steps or 0


def _length(loop: For) -> int | None:
    return int(loop.extent.value) if isinstance(loop.extent, Const) else None


def _is_flat(statement: Stmt) -> bool:
    """True where all loops are written out, and nothing but loops, stores and sums is there."""
    return all(
        s.kind in ("unroll", "vector")
        if isinstance(s, For)
        else isinstance(s, (Seq, Store, Reduce))
        for s in ir.statements(statement)
    )


def _loads(statement: Stmt) -> list[Load]:
    expressions = [e for s in ir.statements(statement) for e in ir.expressions(s)]
    return list(dict.fromkeys(e for e in ir.subexpressions(*expressions) if isinstance(e, Load)))


def is_beyond(buffer: Buffer, cache_bytes: int) -> bool:
    """True for memory of a known size that a cache does not hold."""
    sizes = [int(s.value) for s in buffer.shape if isinstance(s, Const)]
    known = buffer.scope == "global" and len(sizes) == len(buffer.shape)
    return known and prod(sizes) * buffer.dtype.itemsize > cache_bytes


def _moves(load: Load, cache_bytes: int) -> dict[str, int] | None:
    """Bytes that an address moves by each loop; None for small buffers and irregular addresses."""
    if not is_beyond(load.buffer, cache_bytes):
        return None
    itemsize = load.dtype.itemsize
    linear: Expr = ir.index(0)
    for size, coordinate in zip(load.buffer.shape, load.index):
        linear = linear * size + coordinate
    form = affine(linear)
    return None if form is None else {name: step * itemsize for name, step in form.terms}


def _lines(moves: dict[str, int], inside: list[For]) -> tuple[int, ...]:
    """The bytes to one element of each line of a step, the first and the last element included."""
    extents = {s.name: int(s.extent.value) for s in inside if isinstance(s.extent, Const)}
    ranges = [range(0, moves[n] * e, moves[n]) for n, e in extents.items() if moves.get(n)]
    offsets = sorted({sum(offset) for offset in product(*ranges)})
    chosen = [offsets[0]]
    for offset in offsets:
        if offset - chosen[-1] >= _LINE or (offset == offsets[-1] and offset != chosen[-1]):
            chosen.append(offset)
    return tuple(chosen)
