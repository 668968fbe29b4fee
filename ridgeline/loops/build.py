"""Builders and rewriters of expressions and statements; use these instead of `Op.make`.

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
from ridgeline.loops.terms import bitcast, cast, holds, op, rebuild
from ridgeline.weak import WeakMap

__all__ = [
    "affine", "bitcast", "bounds", "cast", "free_vars", "guarded", "holds", "maximum", "minimum",
    "op", "polynomial", "rebuild", "select", "simplify", "substitute", "substitution",
]  # fmt: skip


_Key = TypeVar("_Key", bound=ir.Expr)


def minimum(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """The smaller one; NaN if either is."""
    return op("min", a, b)


def maximum(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """The larger one; NaN if either is."""
    return op("max", a, b)


def select(condition: ir.Expr, yes: ir.Expr, no: ir.Expr) -> ir.Expr:
    """`yes` where `condition` holds, else `no`; both are evaluated."""
    return op("select", condition, yes, no)


def guarded(condition: ir.Expr, value: ir.Expr, fill: ir.Expr) -> ir.Expr:
    """`value`, evaluated only where `condition` holds; elsewhere `fill`."""
    return op("guarded", condition, value, fill)


def substitute(expr: ir.Expr, mapping: Mapping[_Key, ir.Expr]) -> ir.Expr:
    """`expr` with every occurrence of a key replaced, simplified on the way up.

    Replacements are not searched for keys again, and shapes of buffers are not changed.
    """
    return substitution(mapping)(expr)


def substitution(mapping: Mapping[_Key, ir.Expr]) -> Callable[[ir.Expr], ir.Expr]:
    """`substitute` for many expressions with common parts."""
    done: dict[ir.Expr, ir.Expr] = dict(mapping.items())

    def replaced(expr: ir.Expr) -> ir.Expr:
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


_FREE: WeakMap[ir.Expr, frozenset[str]] = WeakMap()


def free_vars(expr: ir.Expr) -> frozenset[str]:
    """Names of the loop variables and sizes an expression mentions."""
    known = _FREE.get(expr)
    if known is not None:
        return known
    for node in ir.subexpressions(expr):
        if node not in _FREE:
            below = [_FREE[child] for child in ir.children(node)]
            _FREE[node] = (
                frozenset({node.name})
                if isinstance(node, ir.Var)
                else (below[0] if len(below) == 1 else frozenset().union(*below))
            )
    return _FREE[expr]


_ARITHMETIC: dict[str, Callable[..., Polynomial[str]]] = {
    "add": Polynomial.plus, "sub": lambda a, b: a.plus(b, -1), "mul": Polynomial.times,
    "neg": lambda a: a.scaled(-1),
}  # fmt: skip
_AFFINE: WeakMap[ir.Expr, Affine[str] | None] = WeakMap()


def polynomial(expr: ir.Expr) -> Polynomial[str] | None:
    """An int64 expression as a polynomial in the names of its variables, if it is one."""
    forms: dict[ir.Expr, Polynomial[str]] = {}
    for node in ir.subexpressions(expr):
        if node.dtype is not dtypes.int64:
            return None
        if isinstance(node, ir.Var):
            forms[node] = Polynomial({(node.name,): 1})
        elif isinstance(node, ir.Const):
            forms[node] = Polynomial({}, int(node.value))
        elif isinstance(node, ir.OpExpr) and node.name in _ARITHMETIC:
            forms[node] = _ARITHMETIC[node.name](*[forms[arg] for arg in node.args])
        else:
            return None
    return forms[expr]


def affine(expr: ir.Expr) -> Affine[str] | None:
    """An int64 expression as an affine map of its variables, if it is one."""
    if expr not in _AFFINE:
        form = polynomial(expr)
        _AFFINE[expr] = None if form is None else form.affine()
    return _AFFINE[expr]


# ---- rebuilding statements: apply a function to every expression, or to every statement ----------


def map_children(statement: ir.Stmt, change: Callable[[ir.Stmt], ir.Stmt]) -> ir.Stmt:
    """The statement with `change` applied to the statements directly inside it."""
    if isinstance(statement, ir.Seq):
        parts = tuple(map(change, statement.body))
        same = all(new is old for new, old in zip(parts, statement.body))
        return statement if same else sequence(*parts)
    if isinstance(statement, (ir.For, ir.If, ir.Alloc, ir.Mma, ir.Pipe)):
        body = change(statement.body)
        return statement if body is statement.body else replace(statement, body=body)
    return statement


def map_expressions(statement: ir.Stmt, change: Callable[[ir.Expr], ir.Expr]) -> ir.Stmt:
    """The statement with `change` applied to every expression in it and in its body."""
    inner = map_children(statement, lambda child: map_expressions(child, change))
    before = ir.expressions(inner)
    after = tuple(map(change, before))
    if after == before:
        return inner
    if isinstance(inner, ir.For):
        return replace(inner, extent=after[0])
    if isinstance(inner, ir.If):
        return replace(inner, guard=after[0])
    if isinstance(inner, ir.Store):
        return ir.Store(inner.buffer, after[:-1], after[-1])
    assert isinstance(inner, ir.Reduce)
    split = len(inner.index)
    return ir.Reduce(inner.buffers, after[:split], inner.monoid, after[split:])


def replace_variables(statement: ir.Stmt, values: Mapping[str, ir.Expr]) -> ir.Stmt:
    """The statement with loop variables replaced by expressions."""
    mapping: dict[ir.Expr, ir.Expr] = {ir.Var.make(name): value for name, value in values.items()}
    names = frozenset(values)
    replaced = substitution(mapping)

    def change(expr: ir.Expr) -> ir.Expr:
        return expr if names.isdisjoint(free_vars(expr)) else replaced(expr)

    return map_expressions(statement, change)


def sequence(*parts: ir.Stmt) -> ir.Stmt:
    """Statements in order, without nested or single-element sequences."""
    flat: list[ir.Stmt] = []
    for part in parts:
        flat.extend(part.body if isinstance(part, ir.Seq) else (part,))
    return flat[0] if len(flat) == 1 else ir.Seq(tuple(flat))


def raising(kernel: ir.Kernel, slot: int) -> ir.Kernel:
    """The kernel with its stores into one slot made only where the value is true.

    Several runs share that memory, and it tells whether any of them found the condition true.
    """

    def visit(current: ir.Stmt) -> ir.Stmt:
        inner = map_children(current, visit)
        if isinstance(inner, ir.Store) and inner.buffer.slot == slot:
            return ir.If(inner.value, replace(inner, value=ir.const(True, dtypes.bool_)))
        return inner

    return replace(kernel, body=visit(kernel.body))


def map_buffers(statement: ir.Stmt, change: Callable[[ir.Buffer], ir.Buffer]) -> ir.Stmt:
    """The statement with every buffer replaced, in loads, stores and allocations."""
    done: dict[ir.Expr, ir.Expr] = {}

    def rewritten(expr: ir.Expr) -> ir.Expr:
        for part in ir.subexpressions(expr):
            if part not in done:
                operands = tuple([done[child] for child in ir.children(part)])
                if isinstance(part, ir.Load):
                    done[part] = ir.Load.make(change(part.buffer), operands)
                else:
                    done[part] = part if operands == ir.children(part) else rebuild(part, operands)
        return done[expr]

    def visit(current: ir.Stmt) -> ir.Stmt:
        inner = map_children(current, visit)
        if isinstance(inner, ir.Alloc):
            return replace(inner, buffer=change(inner.buffer))
        if isinstance(inner, ir.Store):
            return replace(inner, buffer=change(inner.buffer))
        if isinstance(inner, ir.Reduce):
            return replace(inner, buffers=tuple(map(change, inner.buffers)))
        return inner

    return visit(map_expressions(statement, rewritten))
