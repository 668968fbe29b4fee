"""Which loops clearly have independent iterations, so that they may run in lock step.

The test is conservative: whatever the body writes outside its own allocations must be reached
through indices that tell iterations apart, and two that differ must be apart by constants.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from itertools import combinations

from ridgeline.loops import ir
from ridgeline.loops.build import affine
from ridgeline.loops.ir import Alloc, Buffer, Const, Expr, For, Load, Reduce, Store

Index = tuple[Expr, ...]


def independent(loop: For) -> bool:
    """True if no iteration of `loop` can touch what another one writes."""
    own: set[Buffer] = set()
    inner: dict[str, int | None] = {}
    reached: defaultdict[Hashable, set[tuple[Buffer, Index]]] = defaultdict(set)
    written: set[Hashable] = set()
    for statement in ir.statements(loop.body):
        if isinstance(statement, Alloc):
            own.add(statement.buffer)
        elif isinstance(statement, For):
            size = statement.extent
            inner[statement.name] = int(size.value) if isinstance(size, Const) else None
        elif isinstance(statement, (Store, Reduce)):
            buffers = (statement.buffer,) if isinstance(statement, Store) else statement.buffers
            for buffer in buffers:
                written.add(_memory(buffer))
                reached[_memory(buffer)].add((buffer, statement.index))
        for node in ir.subexpressions(*ir.expressions(statement)):
            if isinstance(node, Load):
                reached[_memory(node.buffer)].add((node.buffer, node.index))
    own_memory = {_memory(buffer) for buffer in own}
    if loop.name in inner:
        return False
    return all(
        all(any(_separates(i, loop.name, inner) for i in index) for _, index in reached[memory])
        and all(_apart(a, b) for a, b in combinations(reached[memory], 2))
        for memory in written - own_memory
    )


def _apart(a: tuple[Buffer, Index], b: tuple[Buffer, Index]) -> bool:
    """True for indices of one buffer that differ by a constant."""
    return a[0] is b[0] and any(
        isinstance(i, Const) and isinstance(j, Const) and i.value != j.value
        for i, j in zip(a[1], b[1])
    )


def _memory(buffer: Buffer) -> Hashable:
    return buffer.slot if buffer.slot >= 0 else buffer


def _separates(index: Expr, name: str, inner: dict[str, int | None]) -> bool:
    """True if `index` differs for different values of the variable, whatever inner loops do."""
    form = affine(index)
    if form is None or name not in form.strides:
        return False
    reach = 0
    for other, coefficient in form.terms:
        if other in inner:
            extent = inner[other]
            if extent is None:
                return False
            reach += abs(coefficient) * max(extent - 1, 0)
    return abs(form.strides[name]) > reach
