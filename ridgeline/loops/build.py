"""Everything to build and rewrite expressions and statements with; nobody calls `Op.make` by hand.

`op`, `cast` and `bitcast` simplify locally as they build (`terms.py`); the helpers below are short
names for them. `substitute`, `free_vars` and `affine` walk iteratively. `simplify` and `bounds`
(`index_bounds.py`) reason about index arithmetic with known ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from ridgeline import dtypes
from ridgeline.index.polynomial import Affine, Polynomial
from ridgeline.loops import ir
from ridgeline.loops.analysis.index_bounds import bounds, simplify
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Load,
    Mma,
    Op,
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
from ridgeline.loops.terms import bitcast, cast, holds, op, rebuild
from ridgeline.weak import WeakMap

__all__ = [
    "affine", "bitcast", "bounds", "cast", "free_vars", "guarded", "holds", "maximum", "minimum",
    "op", "polynomial", "rebuild", "select", "simplify", "substitute", "substitution",
]  # fmt: skip


_Key = TypeVar("_Key", bound=Expr)


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller one; NaN if either is."""
    return op("min", a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    """The larger one; NaN if either is."""
    return op("max", a, b)


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """`yes` where `condition` holds, else `no`; both are evaluated."""
    return op("select", condition, yes, no)


def guarded(condition: Expr, value: Expr, fill: Expr) -> Expr:
    """`value` where `condition` holds, and is read only there; else `fill`."""
    return op("guarded", condition, value, fill)


def substitute(expr: Expr, mapping: Mapping[_Key, Expr]) -> Expr:
    """`expr` with every occurrence of a key replaced, simplified again on the way up.

    Replacements are not searched for keys again. Shapes of buffers are left alone.
    """
    return substitution(mapping)(expr)


def substitution(mapping: Mapping[_Key, Expr]) -> Callable[[Expr], Expr]:
    """`substitute` for many expressions, which does what they share once."""
    done: dict[Expr, Expr] = dict(mapping.items())

    def replaced(expr: Expr) -> Expr:
        stack = [expr]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            operands = ir.children(node)
            missing = [child for child in operands if child not in done]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            made = tuple([done[child] for child in operands])
            done[node] = node if made == operands else rebuild(node, made)
        return done[expr]

    return replaced


_FREE: WeakMap[Expr, frozenset[str]] = WeakMap()


def free_vars(expr: Expr) -> frozenset[str]:
    """Names of the loop variables and sizes an expression mentions."""
    known = _FREE.get(expr)
    if known is not None:
        return known
    for node in ir.subexpressions(expr):
        if node not in _FREE:
            below = [_FREE[child] for child in ir.children(node)]
            _FREE[node] = (
                frozenset({node.name})
                if isinstance(node, Var)
                else (below[0] if len(below) == 1 else frozenset().union(*below))
            )
    return _FREE[expr]


_ARITHMETIC: dict[str, Callable[..., Polynomial[str]]] = {
    "add": Polynomial.plus, "sub": lambda a, b: a.plus(b, -1), "mul": Polynomial.times,
    "neg": lambda a: a.scaled(-1),
}  # fmt: skip
_AFFINE: WeakMap[Expr, Affine[str] | None] = WeakMap()


def polynomial(expr: Expr) -> Polynomial[str] | None:
    """An int64 expression as a polynomial in the names of its variables, if it is one."""
    forms: dict[Expr, Polynomial[str]] = {}
    for node in ir.subexpressions(expr):
        if node.dtype is not dtypes.int64:
            return None
        if isinstance(node, Var):
            forms[node] = Polynomial({(node.name,): 1})
        elif isinstance(node, Const):
            forms[node] = Polynomial({}, int(node.value))
        elif isinstance(node, Op) and node.name in _ARITHMETIC:
            forms[node] = _ARITHMETIC[node.name](*[forms[arg] for arg in node.args])
        else:
            return None
    return forms[expr]


def affine(expr: Expr) -> Affine[str] | None:
    """An int64 expression as an affine map of its variables, if it is one."""
    if expr not in _AFFINE:
        form = polynomial(expr)
        _AFFINE[expr] = None if form is None else form.affine()
    return _AFFINE[expr]


# ---- rebuilding statements: apply a function to every expression, or to every statement ----------


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
                operands = tuple([done[child] for child in children(part)])
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
