"""Pipelined loops: their two halves, and the same loop with several copies of its scratch.

`parts` takes the loop of a `Pipe` apart into what fills its scratch and what uses it. `unpiped` is
how a target without asynchronous copies runs it: the scratch becomes a ring, the first fills come
before the loop, and every iteration fills for a later one, so that the loads are under way while
earlier data is used.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.loops import ir
from ridgeline.loops.build import add, lt, minimum, mod
from ridgeline.loops.ir import Alloc, Buffer, Expr, For, If, Pipe, Reduce, Seq, Stmt, Store, Var
from ridgeline.loops.rewrite import map_children, replace_variables, sequence
from ridgeline.loops.steps.scratch import widened


def parts(loop: For) -> tuple[list[Buffer], Stmt | None, Stmt | None]:
    """The scratch of a loop's body, the leading statements that fill it, and the others."""
    buffers: list[Buffer] = []
    body = loop.body
    while isinstance(body, Alloc):
        buffers.append(body.buffer)
        body = body.body
    statements = body.body if isinstance(body, Seq) else (body,)
    first = 0
    while first < len(statements) and _only_fills(statements[first], buffers):
        first += 1
    fill, use = statements[:first], statements[first:]
    return buffers, sequence(*fill) if fill else None, sequence(*use) if use else None


def _only_fills(statement: Stmt, buffers: list[Buffer]) -> bool:
    stores = [s for s in ir.statements(statement) if isinstance(s, (Store, Reduce))]
    return all(isinstance(s, Store) and s.buffer in buffers for s in stores)


def unpiped(statement: Stmt) -> Stmt:
    """The statement with every pipe written out as loops over a ring of scratch."""
    inner = map_children(statement, unpiped)
    if not isinstance(inner, Pipe):
        return inner
    loop = inner.body
    assert isinstance(loop, For)
    buffers, fill, use = parts(loop)
    assert fill is not None and use is not None
    stages = ir.index(inner.stages)
    variable, ahead = Var.make(loop.name), ir.index(inner.stages - 1)
    later = add(variable, ahead)
    first = f"{loop.name}.first"

    def filling(iteration: Expr) -> Stmt:
        return _in_ring(replace_variables(fill, {loop.name: iteration}), buffers, stages, iteration)

    start = For(first, minimum(ahead, loop.extent), filling(Var.make(first)))
    body = sequence(
        If(lt(later, loop.extent), filling(later)), _in_ring(use, buffers, stages, variable)
    )
    result = sequence(start, replace(loop, body=body))
    for buffer in reversed(buffers):
        result = Alloc(replace(buffer, shape=(stages, *buffer.shape)), result)
    return result


def _in_ring(statement: Stmt, buffers: list[Buffer], stages: Expr, iteration: Expr) -> Stmt:
    for buffer in buffers:
        ring = replace(buffer, shape=(stages, *buffer.shape))
        statement = widened(statement, buffer, ring, mod(iteration, stages))
    return statement
