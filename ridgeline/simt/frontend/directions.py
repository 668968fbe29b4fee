"""Which way loops count: the sign of a step where it is known; others test it as they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ridgeline.simt.ir import (
    Assign,
    Builtin,
    Choose,
    Compute,
    Convert,
    Extent,
    ForRange,
    IfElse,
    Number,
    ThreadExpr,
    ThreadStmt,
    Variable,
    WhileLoop,
)
from ridgeline.simt.traversal import walk

_NEVER_NEGATIVE = ("threadIdx", "blockIdx", "blockDim", "gridDim", "laneid", "warpid")
Definitions = Mapping[str, ThreadExpr]


def with_directions(body: tuple[ThreadStmt, ...]) -> tuple[ThreadStmt, ...]:
    """The statements, with the direction of each loop in it."""
    return _directed(body, _assigned_once(body))


def _assigned_once(body: tuple[ThreadStmt, ...]) -> dict[str, ThreadExpr]:
    every = list(walk(body))
    counts = Counter(
        target.name
        for s in every
        for target in (getattr(s, "target", None), *getattr(s, "targets", ()))
        if isinstance(target, Variable)
    )
    return {
        s.target.name: s.value
        for s in every
        if isinstance(s, Assign) and counts[s.target.name] == 1
    }


def _directed(body: tuple[ThreadStmt, ...], known: Definitions) -> tuple[ThreadStmt, ...]:
    found: list[ThreadStmt] = []
    for statement in body:
        match statement:
            case IfElse():
                then, otherwise = (
                    _directed(p, known) for p in (statement.then, statement.otherwise)
                )
                found.append(replace(statement, then=then, otherwise=otherwise))
            case WhileLoop():
                found.append(replace(statement, body=_directed(statement.body, known)))
            case ForRange():
                inner, way = _directed(statement.body, known), sign(statement.step, known)
                found.append(replace(statement, body=inner, direction=way))
            case _:
                found.append(statement)
    return tuple(found)


def sign(expr: ThreadExpr, known: Definitions) -> int:
    """1 of what is never negative, -1 of what is never positive, 0 where that is open."""
    match expr:
        case Number():
            return -1 if expr.value < 0 else 1
        case Builtin():
            return 1 if expr.name in _NEVER_NEGATIVE else 0
        case Extent():
            return 1
        case Variable():
            defined = known.get(expr.name)
            return 0 if defined is None else sign(defined, known)
        case Convert() if expr.value.dtype.kind == "int" and expr.dtype.kind == "int":
            return sign(expr.value, known) if expr.dtype.bits >= expr.value.dtype.bits else 0
        case Choose():
            return _agreed(sign(expr.then, known), sign(expr.otherwise, known))
        case Compute():
            return _computed(expr, known)
    return 1 if expr.dtype.kind == "uint" else 0


def _computed(expr: Compute, known: Definitions) -> int:
    signs = [sign(operand, known) for operand in expr.operands]
    if expr.name == "neg":
        return -signs[0]
    if expr.name in ("mul", "floordiv"):
        return signs[0] * signs[1]
    if expr.name in ("add", "min", "max"):
        return _agreed(*signs)
    if expr.name in ("shl", "shr"):
        return signs[0]
    return 1 if expr.dtype.kind == "uint" else 0


def _agreed(one: int, other: int) -> int:
    return one if one == other else 0
