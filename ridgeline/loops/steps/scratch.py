"""Scratch memory that grows an axis when a loop moves inside the place where it is allocated."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.loops import ir
from ridgeline.loops.build import substitution
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, Load, Reduce, Seq, Stmt, Store, Var
from ridgeline.loops.rewrite import map_children, map_expressions, sequence


def outside_scratch(loop: For) -> Stmt:
    """The loop moved inside the scratch that its body has, where it holds no other loop."""
    inside = list(ir.statements(loop.body))
    if any(isinstance(s, For) for s in inside) or not any(isinstance(s, Alloc) for s in inside):
        return loop
    return _sunk(loop, loop.body)


def _sunk(loop: For, body: Stmt) -> Stmt:
    if isinstance(body, Seq):
        return sequence(*(_sunk(loop, part) for part in body.body))
    if isinstance(body, Alloc):
        old = body.buffer
        wide = replace(old, shape=(loop.extent, *old.shape))
        return Alloc(wide, _sunk(loop, widened(body.body, old, wide, Var.make(loop.name))))
    return replace(loop, body=body)


def widened(statement: Stmt, old: Buffer, wide: Buffer, variable: Expr) -> Stmt:
    """Accesses of a scratch buffer that has grown a leading axis indexed by `variable`."""
    loads = {
        e: Load.make(wide, (variable, *e.index))
        for s in ir.statements(statement)
        for e in ir.subexpressions(*ir.expressions(s))
        if isinstance(e, Load) and e.buffer == old
    }
    replaced = map_expressions(statement, substitution(loads)) if loads else statement

    def visit(current: Stmt) -> Stmt:
        inner = map_children(current, visit)
        if isinstance(inner, Store) and inner.buffer == old:
            return Store(wide, (variable, *inner.index), inner.value)
        if isinstance(inner, Reduce) and old in inner.buffers:
            buffers = tuple(wide if b == old else b for b in inner.buffers)
            # accumulators that move together share one index, which grows with the first of them
            grown = len(inner.index) == len(wide.shape)
            index = inner.index if grown else (variable, *inner.index)
            return Reduce(buffers, index, inner.monoid, inner.values)
        return inner

    return visit(replaced)
