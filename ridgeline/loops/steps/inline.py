"""Inline: compute a value where it is used instead of storing it in scratch."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import sites
from ridgeline.loops.build import free_vars, map_children, map_expressions, substitute
from ridgeline.loops.ir import Alloc, Buffer, Expr, Kernel, Load, Reduce, Stmt, Store, Var
from ridgeline.loops.steps.regions import memory, read_memory, targets, without
from ridgeline.loops.steps.step import ScheduleError, Step


@dataclass(frozen=True, slots=True)
class Inline(Step):
    """Replace every read of a scratch buffer by the expression that fills it."""

    buffer: str
    name: ClassVar[str] = "inline"

    def apply(self, kernel: Kernel) -> Kernel:
        """Remove every allocation of that name."""
        scratch(kernel, self.buffer)
        return replace(kernel, body=self._visit(kernel.body))

    def _visit(self, statement: Stmt) -> Stmt:
        if not (isinstance(statement, Alloc) and statement.buffer.name == self.buffer):
            return map_children(statement, self._visit)
        body, store = statement.body, producer(statement.buffer, statement.body)
        return map_expressions(without(body, store), lambda expr: computed_again(expr, store))


def computed_again(expr: Expr, store: Store) -> Expr:
    """An expression with every read of scratch replaced by what a store put there."""
    done: dict[Expr, Expr] = {}
    for part in ir.subexpressions(expr):
        if isinstance(part, Load) and part.buffer == store.buffer:
            index = [substitute(i, done) for i in part.index]
            here: dict[Expr, Expr] = dict(zip(store.index, index))
            done[part] = substitute(store.value, here)
    return substitute(expr, done) if done else expr


def scratch(kernel: Kernel, name: str) -> list[Alloc]:
    """The allocations of a scratch buffer; refuses a name that the kernel does not have."""
    everything = [s for s in ir.statements(kernel.body) if isinstance(s, Alloc)]
    found = [s for s in everything if s.buffer.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(s.buffer.name for s in everything)) or "none"
        raise ScheduleError(f"there is no scratch {name!r}", help=f"scratch buffers: {known}")
    return found


def producer(buffer: Buffer, body: Stmt) -> Store:
    """The one statement that fills a scratch buffer, if computing it later gives the same."""
    writes = [s for s in sites(Kernel("", (), (), body)) if _writes(s.statement, buffer)]
    if len(writes) != 1 or not isinstance(writes[0].statement, Store):
        raise ScheduleError(f"{buffer.name!r} is not filled by one plain store")
    site, store = writes[0], writes[0].statement
    if site.domain.guards:
        raise ScheduleError(f"{buffer.name!r} is filled under a condition")
    if not all(isinstance(i, Var) for i in store.index) or len(set(store.index)) < len(store.index):
        raise ScheduleError(f"{buffer.name!r} is not filled at one loop variable per axis")
    bound = {s.name for s in ir.statements(body) if isinstance(s, ir.For)}
    loose = (free_vars(store.value) & bound) - {i.name for i in store.index if isinstance(i, Var)}
    if loose:
        raise ScheduleError(
            f"{buffer.name!r} also depends on {', '.join(sorted(loose))}, which its index "
            "does not name"
        )
    inner = {s.buffer for s in ir.statements(body) if isinstance(s, Alloc)}
    held = {e.buffer for e in ir.subexpressions(store.value) if isinstance(e, Load)} & inner
    if not _in_scope(body, buffer, held):
        raise ScheduleError(f"what {buffer.name!r} is made from is gone where it is read")
    needs = read_memory(store.value)
    passed = False
    for other in sites(Kernel("", (), (), body)):
        passed |= other.statement is store
        if not isinstance(other.statement, (Store, Reduce)):
            continue
        changed = [b for b in targets(other.statement) if memory(b) in needs]
        if changed and (passed or set(other.path) & set(site.path)):
            raise ScheduleError(
                f"{changed[0].name!r}, which {buffer.name!r} is computed from, changes later"
            )
    return store


def _in_scope(statement: Stmt, buffer: Buffer, held: Set[Buffer]) -> bool:
    """True if all of `held` is allocated wherever `buffer` is read."""
    reads = ir.subexpressions(*ir.expressions(statement))
    if held and any(isinstance(e, Load) and e.buffer == buffer for e in reads):
        return False
    if isinstance(statement, Alloc):
        return _in_scope(statement.body, buffer, held - {statement.buffer})
    if isinstance(statement, ir.Seq):
        return all(_in_scope(part, buffer, held) for part in statement.body)
    if isinstance(statement, (ir.For, ir.If, ir.Mma, ir.Pipe)):
        return _in_scope(statement.body, buffer, held)
    return True


def _writes(statement: Stmt, buffer: Buffer) -> bool:
    return isinstance(statement, (Store, Reduce)) and buffer in targets(statement)
