"""Accurate summation: cascade the long sums of a scheduled kernel.

A chain of additions may lose half an ulp of the sum in each. Short ones are left alone, since lanes
and threads, which are joined in pairs, have made most sums short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from ridgeline import dtypes
from ridgeline.loops import ir
from ridgeline.loops.ir import (
    Alloc,
    Const,
    For,
    If,
    Kernel,
    Mma,
    OpExpr,
    Pipe,
    Reduce,
    Seq,
    Stmt,
    Var,
)
from ridgeline.loops.schedule import Cascade, Step, attempt
from ridgeline.loops.steps.cascade import sums_of
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.machine import Machine

_LONGEST = 32  # additions one after the other, of a sum of so many numbers
_MANY = 512
_LONGEST_OF_FEW = 16  # of a sum of fewer
_CHEAP = frozenset({"add", "sub", "mul", "neg", "abs", "cast"})
_FEW_OPERATIONS = 4  # on a number before it is added
_FAR_APART = 1024  # bytes from a number to the next one


def cascades(
    kernel: Kernel, machine: Machine | None = None, axes: Collection[str] | None = None
) -> list[Step]:
    """Steps that cut the long sums of a kernel that is scheduled for a CPU's machine or a GPU.

    With `axes`, those along pieces of these alone: sums of products stay as they are.
    """
    chosen: list[Step] = []
    tried: set[Step] = set()
    while step := next((s for s in _wanted(kernel, machine, axes) if s not in tried), None):
        tried.add(step)
        made = attempt(kernel, step)
        if made is not None:
            kernel = made
            chosen.append(step)
    return chosen


def _wanted(
    kernel: Kernel, machine: Machine | None, axes: Collection[str] | None
) -> Iterator[Cascade]:
    lanes = _lanes(kernel)
    loops = {s.name for s in ir.statements(kernel.body) if isinstance(s, For)}
    for nest in _chains(kernel.body, ()):
        if any(Cascade.blocks(loop.name) in loops for loop in nest):
            continue  # the loop inside a block is short enough
        if axes is not None and not any(loop.name.split(".")[0] in axes for loop in nest):
            continue
        inside = _within(nest[-1])
        many = inside * lanes * prod(_length(loop) or 1 for loop in nest) >= _MANY
        far = machine is not None and _is_read_from_afar(kernel, nest[-1], machine)
        longest = _LONGEST if many else _LONGEST_OF_FEW
        yield from _cut(nest, inside, longest, in_blocks=not far)


def _lanes(kernel: Kernel) -> int:
    """Partial sums that are computed side by side."""
    loops = (s for s in ir.statements(kernel.body) if isinstance(s, For) and s.axis == "reduce")
    apart = {s.name: _length(s) or 1 for s in loops if s.kind in ("vector", "thread", "grid")}
    return prod(apart.values())


def _is_read_from_afar(kernel: Kernel, loop: For, machine: Machine) -> bool:
    """True for float32 sums down columns of a matrix that no near cache holds.

    Each step waits for memory, so its numbers can be added in double precision meanwhile, and
    blocks would interrupt the loads.
    """
    inner = [s for s in ir.statements(loop.body) if isinstance(s, For)]
    lanes = {Var.make(s.name) for s in inner if s.kind == "vector" and s.axis == "spatial"}
    apart = all(
        b.dtype is dtypes.float32 and lanes.intersection(index)
        for b, index in sums_of(loop).items()
    )
    read = ir.subexpressions(*(e for s in ir.statements(loop.body) for e in ir.expressions(s)))
    done = [e.name for e in read if isinstance(e, OpExpr) and e.dtype.kind == "float"]
    cheap = len(done) <= _FEW_OPERATIONS and _CHEAP.issuperset(done)
    return apart and cheap and any(
        abs(a.stride(loop.name) or 0) * a.buffer.dtype.itemsize >= _FAR_APART
        and a.bytes > machine.l2_bytes // 2
        for a in accesses(kernel) if not a.is_store
    )  # fmt: skip


def _chains(statement: Stmt, around: tuple[For, ...]) -> Iterator[tuple[For, ...]]:
    """Nested serial loops that sum into the same accumulators, down to the innermost."""
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
    """The number of successive additions into one accumulator in an iteration."""
    most = 1
    stack: list[tuple[Stmt, int]] = [(loop.body, 1)]
    while stack:
        statement, times = stack.pop()
        most = max(most, times)
        if isinstance(statement, Seq):
            stack += [(part, times) for part in statement.body]
        elif isinstance(statement, For):
            again = (_length(statement) or 1) if _adds_in_turn(statement) else 1
            stack.append((statement.body, times * again))
        elif isinstance(statement, (If, Alloc, Mma, Pipe)):
            stack.append((statement.body, times))
    return most


def _adds_in_turn(loop: For) -> bool:
    """False if iterations have accumulators of their own, which are combined pairwise."""
    if loop.axis != "reduce" or loop.kind in ("thread", "grid"):
        return False
    lane = Var.make(loop.name)
    folds = [s for s in ir.statements(loop.body) if isinstance(s, Reduce)]
    return any(lane not in fold.index for fold in folds)


def _cut(nest: tuple[For, ...], inside: int, longest: int, in_blocks: bool) -> Iterator[Cascade]:
    """The loop at which additions become too many, from the inside out."""
    for number, loop in reversed(list(enumerate(nest))):
        length = _length(loop)
        if length is not None and inside * length <= longest:
            inside *= length
        elif not in_blocks:
            yield Cascade(nest[-1].name, 1)
            return
        elif inside * 2 <= longest or number + 1 == len(nest):
            yield Cascade(loop.name, _block(length, max(longest // inside, 1)))
            return
        else:
            yield Cascade(nest[number + 1].name, _length(nest[number + 1]) or 1)
            return


def _block(length: int | None, most: int) -> int:
    """Iterations of a block; blocks of equal length, if that at most halves them."""
    even = (b for b in range(most, most // 2, -1) if length is not None and length % b == 0)
    return next(even, most)


def _length(loop: For) -> int | None:
    return int(loop.extent.value) if isinstance(loop.extent, Const) else None
