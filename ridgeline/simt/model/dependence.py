"""What each instruction waits for: variables it reads, and loads that follow from one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ridgeline.simt.ir import (
    Assign,
    Atomic,
    ElementRead,
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    ThreadExpr,
    Variable,
    VectorRead,
    WarpOp,
)
from ridgeline.simt.simulator.instructions import Instruction, JumpUnless
from ridgeline.simt.traversal import expressions, subexpressions


@dataclass(frozen=True)
class Dependence:
    """One instruction's part in the order that its values force."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    loads: int  # loads of its own that wait for one another: 2 for a[b[i]], 0 for none
    is_chased: bool  # where it loads from depends on what it loaded before


def dependences(code: Sequence[Instruction]) -> list[Dependence]:
    """Of every instruction of a kernel."""
    sources: dict[str, set[str]] = defaultdict(set)
    for instruction in code:
        for target in _writes(instruction):
            sources[target] |= set(_names(_expressions(instruction)))
    return [_dependence(instruction, sources) for instruction in code]


def _dependence(instruction: Instruction, sources: dict[str, set[str]]) -> Dependence:
    found, writes = _expressions(instruction), _writes(instruction)
    loads = max((_depth(expr) for expr in found), default=0)
    statement = getattr(instruction, "statement", None)
    if isinstance(statement, (VectorRead, FragmentLoad)):
        loads = 1
    if isinstance(statement, Atomic) and statement.target is not None:
        loads = 1
    places = [e for expr in found for e in subexpressions(expr) if isinstance(e, ElementRead)]
    leads = _reached({n for place in places for n in _names(place.index)}, sources)
    reads = dict.fromkeys(_names(found))
    if isinstance(statement, FragmentMultiply):
        reads = dict.fromkeys(part.name for part in (statement.a, statement.b, statement.c))
    return Dependence(tuple(reads), writes, loads, bool(leads.intersection(writes)))


def _expressions(instruction: Instruction) -> tuple[ThreadExpr, ...]:
    if isinstance(instruction, JumpUnless):
        return (instruction.condition,)
    statement = getattr(instruction, "statement", None)
    return () if statement is None else expressions(statement)


def _writes(instruction: Instruction) -> tuple[str, ...]:
    statement = getattr(instruction, "statement", None)
    if isinstance(statement, VectorRead):
        return tuple(target.name for target in statement.targets)
    if isinstance(statement, (FragmentFill, FragmentLoad)):
        return (statement.fragment.name,)
    if isinstance(statement, FragmentMultiply):
        return (statement.target.name,)
    if isinstance(statement, (Assign, Atomic, WarpOp)) and statement.target is not None:
        return (statement.target.name,)
    return ()


def _names(found: Sequence[ThreadExpr]) -> Iterator[str]:
    for expr in found:
        for part in subexpressions(expr):
            if isinstance(part, Variable):
                yield part.name


def _depth(expr: ThreadExpr) -> int:
    """How many loads of an expression follow from one another."""
    if not isinstance(expr, ElementRead):
        below = [part for part in subexpressions(expr) if isinstance(part, ElementRead)]
        return max((_depth(part) for part in below), default=0)
    inner = max((_depth(index) for index in expr.index), default=0)
    return inner + (expr.array.space != "local")


def _reached(names: set[str], sources: dict[str, set[str]]) -> set[str]:
    """The names, and all from which their values come."""
    found, ahead = set(names), list(names)
    while ahead:
        fresh = sources.get(ahead.pop(), set()) - found
        found |= fresh
        ahead += fresh
    return found
