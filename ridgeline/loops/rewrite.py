"""Rebuilding statements: apply a function to every expression, or to every statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ridgeline.loops.build import free_vars, rebuild, substitution
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    Load,
    Mma,
    Pipe,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
    children,
    expressions,
    subexpressions,
)  # fmt: skip


def map_children(statement: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """The statement with `change` applied to the statements directly inside it."""
    if isinstance(statement, Seq):
        parts = tuple(map(change, statement.body))
        same = all(new is old for new, old in zip(parts, statement.body))
        return statement if same else sequence(*parts)
    if isinstance(statement, (For, If, Alloc, Mma, Pipe)):
        body = change(statement.body)
        return statement if body is statement.body else replace(statement, body=body)
    return statement


def map_expressions(statement: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `change` applied to every expression in it and in its body."""
    inner = map_children(statement, lambda child: map_expressions(child, change))
    before = expressions(inner)
    after = tuple(map(change, before))
    if after == before:
        return inner
    if isinstance(inner, For):
        return replace(inner, extent=after[0])
    if isinstance(inner, If):
        return replace(inner, guard=after[0])
    if isinstance(inner, Store):
        return Store(inner.buffer, after[:-1], after[-1])
    assert isinstance(inner, Reduce)
    split = len(inner.index)
    return Reduce(inner.buffers, after[:split], inner.monoid, after[split:])


def replace_variables(statement: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """The statement with loop variables replaced by expressions."""
    mapping: dict[Expr, Expr] = {Var.make(name): value for name, value in values.items()}
    names = frozenset(values)
    replaced = substitution(mapping)

    def change(expr: Expr) -> Expr:
        return expr if names.isdisjoint(free_vars(expr)) else replaced(expr)

    return map_expressions(statement, change)


def sequence(*parts: Stmt) -> Stmt:
    """Statements in order, without nested or single-element sequences."""
    flat: list[Stmt] = []
    for part in parts:
        flat.extend(part.body if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def map_buffers(statement: Stmt, change: Callable[[Buffer], Buffer]) -> Stmt:
    """The statement with every buffer replaced, in loads, stores and allocations."""
    done: dict[Expr, Expr] = {}

    def rewritten(expr: Expr) -> Expr:
        for part in subexpressions(expr):
            if part not in done:
                operands = tuple(done[child] for child in children(part))
                if isinstance(part, Load):
                    done[part] = Load.make(change(part.buffer), operands)
                else:
                    done[part] = part if operands == children(part) else rebuild(part, operands)
        return done[expr]

    def visit(current: Stmt) -> Stmt:
        inner = map_children(current, visit)
        if isinstance(inner, Alloc):
            return replace(inner, buffer=change(inner.buffer))
        if isinstance(inner, Store):
            return replace(inner, buffer=change(inner.buffer))
        if isinstance(inner, Reduce):
            return replace(inner, buffers=tuple(map(change, inner.buffers)))
        return inner

    return visit(map_expressions(statement, rewritten))
