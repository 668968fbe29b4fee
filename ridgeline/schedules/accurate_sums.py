"""Sums stay accurate however long they are: what a family's schedule sums in one go is cascaded.

A chain of additions may lose half an ulp of the sum in each. Short ones are left alone, since lanes
and threads, which are joined in pairs, have made most sums short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ridgeline.loops.ir import Alloc, Const, For, If, Kernel, Mma, Pipe, Seq, Stmt
from ridgeline.loops.schedule import Cascade, Step
from ridgeline.loops.steps.cascade import sums_of
from ridgeline.schedules.attempts import attempt

_LONGEST = 32  # additions one after the other


def cascades(kernel: Kernel, spared: Collection[str] = ()) -> list[Step]:
    """Steps that cut the long sums of a scheduled kernel, but for loops named in `spared`."""
    chosen: list[Step] = []
    tried: set[Step] = set()
    while step := next((s for s in _wanted(kernel, spared) if s not in tried), None):
        tried.add(step)
        made = attempt(kernel, step)
        if made is not None:
            kernel = made
            chosen.append(step)
    return chosen


def _wanted(kernel: Kernel, spared: Collection[str]) -> Iterator[Cascade]:
    for nest in _chains(kernel.body, ()):
        if not any(loop.name in spared for loop in nest):
            yield from _cut(nest, _within(nest[-1]))


def _chains(statement: Stmt, around: tuple[For, ...]) -> Iterator[tuple[For, ...]]:
    """Serial loops one inside the other that sum into the same accumulators, to the innermost."""
    if isinstance(statement, For):
        own = sums_of(statement)
        outer = sums_of(around[-1]) if around else {}
        nest = (*around, statement) if own.keys() & outer.keys() else (statement,) * bool(own)
        inner = list(_chains(statement.body, nest or around))
        yield from inner or ([nest] if nest else [])
    elif isinstance(statement, Seq):
        for part in statement.body:
            yield from _chains(part, around)
    elif isinstance(statement, (If, Alloc, Mma, Pipe)):
        yield from _chains(statement.body, around)


def _within(loop: For) -> int:
    """Additions into one accumulator that an iteration makes, by unrolled loops and in lanes."""
    most = 1
    stack: list[tuple[Stmt, int]] = [(loop.body, 1)]
    while stack:
        statement, times = stack.pop()
        most = max(most, times)
        if isinstance(statement, Seq):
            stack += [(part, times) for part in statement.body]
        elif isinstance(statement, For):
            in_turn = statement.axis == "reduce" and statement.kind not in ("thread", "grid")
            again = (_length(statement) or 1) if in_turn else 1
            stack.append((statement.body, times * again))
        elif isinstance(statement, (If, Alloc, Mma, Pipe)):
            stack.append((statement.body, times))
    return most


def _cut(nest: tuple[For, ...], inside: int) -> Iterator[Cascade]:
    """The loop at which additions become too many, from the inside out."""
    for number, loop in reversed(list(enumerate(nest))):
        length = _length(loop)
        if length is not None and inside * length <= _LONGEST:
            inside *= length
            continue
        if inside * 2 <= _LONGEST or number + 1 == len(nest):
            yield Cascade(loop.name, _block(length, max(_LONGEST // inside, 1)))
        else:
            yield Cascade(nest[number + 1].name, _length(nest[number + 1]) or 1)
        return


def _block(length: int | None, most: int) -> int:
    """Iterations of a block; equal ones, where that makes them no shorter than half."""
    even = (b for b in range(most, most // 2, -1) if length is not None and length % b == 0)
    return next(even, most)


def _length(loop: For) -> int | None:
    return int(loop.extent.value) if isinstance(loop.extent, Const) else None
