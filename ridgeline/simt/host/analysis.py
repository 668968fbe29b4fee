"""What is found out about a program before code is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod

from ridgeline.simt import ir, traversal
from ridgeline.simt.host.expressions import NotForHost, WarpProgram
from ridgeline.simt.host.statements import MOST_UNROLLED, SHORT, jumps
from ridgeline.simt.host.uniformity import Uniformity

_MOST_MEMBERS = 256  # elements of a local array that become variables
_WAITING = ("cas", "exch", "load")


def analysed(program: ir.ThreadProgram, block: tuple[int, int, int], dynamic: int) -> WarpProgram:
    """The program with its varying variables, inlined definitions and small local arrays."""
    _check(program)
    definitions = _definitions(program)
    made = WarpProgram(program, block, dynamic, Uniformity(program, block), definitions)
    made.scalarised = frozenset(_scalarised(program, definitions))
    return made


def _check(program: ir.ThreadProgram) -> None:
    """Refuse what waits for other threads: warps of a block run one after the other here."""
    if program.fragments:
        raise NotForHost("tensor-core fragments")
    for statement in traversal.walk(program.body):
        if isinstance(statement, ir.WhileLoop):
            waits = [s for s in traversal.walk(statement.body) if isinstance(s, ir.Atomic)]
            if any(atomic.name in _WAITING for atomic in waits):
                raise NotForHost("a loop that waits for other threads")
        if isinstance(statement, ir.PrintOut):
            raise NotForHost("print")


def _targets(statement: ir.ThreadStmt) -> Iterator[ir.Variable]:
    for target in (getattr(statement, "target", None), *getattr(statement, "targets", ())):
        if isinstance(target, ir.Variable):
            yield target


def _definitions(program: ir.ThreadProgram) -> dict[str, ir.ThreadExpr]:
    """Variables that are assigned once, by index arithmetic over what does not change."""
    counts = Counter(t.name for s in traversal.walk(program.body) for t in _targets(s))
    loops = {s.target.name for s in traversal.walk(program.body) if isinstance(s, ir.ForRange)}
    given = {p.name for p in program.parameters if isinstance(p, ir.Variable)}
    found: dict[str, ir.ThreadExpr] = {}
    for statement in traversal.walk(program.body):
        if not isinstance(statement, ir.Assign) or counts[statement.target.name] != 1:
            continue
        parts = [*traversal.subexpressions(statement.value)]
        if statement.target.dtype.kind not in ("int", "uint"):
            continue
        if any(isinstance(p, (ir.ElementRead, ir.Choose, ir.ShortCircuit)) for p in parts):
            continue
        names = {p.name for p in parts if isinstance(p, ir.Variable)}
        once = {n for n in names if n in found or n in given or (n in loops and counts[n] == 1)}
        if names == once:
            found[statement.target.name] = statement.value
    return found


def _scalarised(
    program: ir.ThreadProgram, definitions: Mapping[str, ir.ThreadExpr]
) -> Iterator[str]:
    """Local arrays that literals alone index, once short loops are written out."""
    local = {
        array.name: array
        for array in program.memories
        if array.space == "local" and prod(int(s) for s in array.shape) <= _MOST_MEMBERS
    }
    moving = {name for name, index in _local_indices(program.body, frozenset()) if index is None}
    yield from (name for name in local if name not in moving)


def _local_indices(
    body: tuple[ir.ThreadStmt, ...], written_out: frozenset[str]
) -> Iterator[tuple[str, bool | None]]:
    """Local arrays as they are indexed: True for literals, None for what is computed."""
    for statement in body:
        inner = written_out
        if isinstance(statement, ir.ForRange) and _is_written_out(statement):
            inner = written_out | {statement.target.name}
        indexed = [(e.array, e.index) for e in _reads(statement) if e.array.space == "local"]
        if isinstance(statement, (ir.ElementWrite, ir.VectorRead, ir.VectorWrite)):
            indexed.append((statement.array, statement.index))
        if isinstance(statement, (ir.AsyncCopy, ir.Atomic, ir.FragmentLoad, ir.FragmentStore)):
            array = statement.target if isinstance(statement, ir.AsyncCopy) else statement.array
            yield array.name, None
        for array, index in indexed:
            literal = all(_is_literal(e, written_out) for e in index)
            vector = isinstance(statement, (ir.VectorRead, ir.VectorWrite))
            yield array.name, True if literal and not vector else None
        if isinstance(statement, ir.IfElse):
            yield from _local_indices((*statement.then, *statement.otherwise), inner)
        elif isinstance(statement, (ir.WhileLoop, ir.ForRange)):
            yield from _local_indices(statement.body, inner)


def _reads(statement: ir.ThreadStmt) -> Iterator[ir.ElementRead]:
    for expr in traversal.expressions(statement):
        yield from (e for e in traversal.subexpressions(expr) if isinstance(e, ir.ElementRead))


def _is_written_out(loop: ir.ForRange) -> bool:
    bounds = (loop.start, loop.stop, loop.step)
    if not all(isinstance(b, ir.Number) for b in bounds) or jumps(loop.body):
        return False
    if any(isinstance(s, ir.Barrier) for s in traversal.walk(loop.body)):
        return False
    start, stop, step = (int(b.value) for b in bounds if isinstance(b, ir.Number))
    return len(range(start, stop, step or 1)) <= (MOST_UNROLLED if loop.unroll else SHORT)


def _is_literal(expr: ir.ThreadExpr, written_out: frozenset[str]) -> bool:
    if isinstance(expr, ir.Variable):
        return expr.name in written_out
    if isinstance(expr, (ir.Number, ir.Compute, ir.Convert)):
        return all(_is_literal(e, written_out) for e in traversal.operands(expr))
    return False
