"""Which arrays threads signal through, as against those that hold data.

A volatile access is one access of memory and orders nothing. Where threads wait for what another
one will write (a lock, a flag, a counter that a loop looks at again and again), that is what is
wanted. In an array of data it is an ordinary access: the reduction whose last warp reads what other
lanes have just written races, volatile or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ridgeline.simt.ir import (
    Assign,
    Atomic,
    Barrier,
    Break,
    ElementWrite,
    ForRange,
    IfElse,
    Return,
    ThreadExpr,
    ThreadProgram,
    ThreadStmt,
    Variable,
    VectorRead,
    VectorWrite,
    WarpOp,
    WhileLoop,
)
from ridgeline.simt.traversal import expressions, subexpressions, walk

Body = tuple[ThreadStmt, ...]


def flag_arrays(program: ThreadProgram) -> set[str]:
    """Arrays of which an atomic or volatile read ends a loop, or goes into conditions alone."""
    found: set[str] = set()
    for statement in walk(program.body):
        if isinstance(statement, (WhileLoop, ForRange)):
            found |= _looked_at_again(statement)
    return found | _only_decided_by(program)


def steering(program: ThreadProgram) -> set[str]:
    """Variables that decide, in the end, where a thread goes on: no others end its waiting."""
    statements = list(walk(program.body))
    wanted: set[str] = set()
    for statement in statements:
        if isinstance(statement, (IfElse, WhileLoop, ForRange)):
            wanted |= _names(expressions(statement)) | _assigned(statement)
    return _grown(wanted, [(s, ()) for s in statements])


def _grown(wanted: set[str], parts: list[tuple[ThreadStmt, tuple[ThreadExpr, ...]]]) -> set[str]:
    """Names, with those that statements compute them from, and the conditions these are under."""
    while True:
        before = len(wanted)
        for statement, branches in parts:
            if _assigned(statement) & wanted:
                wanted |= _names([*expressions(statement), *branches])
        if len(wanted) == before:
            return wanted


def _looked_at_again(loop: WhileLoop | ForRange) -> set[str]:
    """Arrays of atomic reads in a loop that its end depends on."""
    parts = list(_with_branches(loop.body))
    wanted = _grown(_names(_exits(loop)), parts)
    atomics = [s for s, _ in parts if isinstance(s, Atomic) and s.target is not None]
    return {s.array.name for s in atomics if s.target is not None and s.target.name in wanted}


def _exits(loop: WhileLoop | ForRange) -> Iterator[ThreadExpr]:
    """The conditions under which a loop is left."""
    if isinstance(loop, WhileLoop):
        yield loop.condition
    for statement, branches in _with_branches(loop.body):
        if isinstance(statement, (Break, Return)):
            yield from branches


def _with_branches(
    body: Body, around: tuple[ThreadExpr, ...] = ()
) -> Iterator[tuple[ThreadStmt, tuple[ThreadExpr, ...]]]:
    """All statements, with the conditions that they stand under."""
    for statement in body:
        yield statement, around
        if isinstance(statement, IfElse):
            inner = (*around, statement.condition)
            yield from _with_branches(statement.then, inner)
            yield from _with_branches(statement.otherwise, inner)
        elif isinstance(statement, (WhileLoop, ForRange)):
            yield from _with_branches(statement.body, around)


def _only_decided_by(program: ThreadProgram) -> set[str]:
    """Arrays whose volatile reads go into conditions and nowhere else."""
    statements = list(walk(program.body))
    reads = [s for s in statements if isinstance(s, Atomic) and s.volatile and s.target is not None]
    data = {s.array.name for s in reads if s.target and _is_computed_with(s.target, statements)}
    return {s.array.name for s in reads} - data


def _is_computed_with(target: Variable, statements: list[ThreadStmt]) -> bool:
    """Whether a value ends up in memory, in an index or with other threads."""
    followed = {target.name}
    while True:
        before = len(followed)
        for statement in statements:
            if not _names(expressions(statement)) & followed:
                continue
            if isinstance(statement, (ElementWrite, VectorWrite, VectorRead, Atomic, WarpOp)):
                return True
            followed |= _assigned(statement)
        if len(followed) == before:
            return False


def _targets(statement: ThreadStmt) -> tuple[Variable, ...]:
    """The variables that a statement gives values."""
    match statement:
        case Assign() | ForRange():
            return (statement.target,)
        case VectorRead():
            return statement.targets
        case Atomic() | WarpOp() | Barrier():
            return () if statement.target is None else (statement.target,)
    return ()


def _assigned(statement: ThreadStmt) -> set[str]:
    return {target.name for target in _targets(statement)}


def _names(parts: Iterable[ThreadExpr]) -> set[str]:
    every = (inner for part in parts for inner in subexpressions(part))
    return {inner.name for inner in every if isinstance(inner, Variable)}
