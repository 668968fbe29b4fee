"""Barrier insertion: where the threads of a block must wait for one another.

Between two waits, memory that several threads can see may be read by all or written by one, but
not both. Statements that stand outside the thread loops are looked at in order; a wait is due
before one that touches what an earlier one has written, or writes what it has read.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ridgeline.loops import ir
from ridgeline.loops.ir import Buffer, Load, Reduce, Stmt, Store

Memory = Hashable


def memory(buffer: Buffer) -> Memory:
    """The memory of a buffer: views of one slot are one memory."""
    return buffer.slot if buffer.slot >= 0 else buffer


@dataclass(slots=True)
class Touched:
    """Memory read and written by some statements."""

    reads: set[Memory] = field(default_factory=set)
    writes: set[Memory] = field(default_factory=set)

    def clashes(self, later: Touched) -> bool:
        """True if later statements must wait for these."""
        return bool(self.writes & (later.reads | later.writes) or self.reads & later.writes)

    def add(self, other: Touched) -> None:
        """Add the accesses of further statements."""
        self.reads |= other.reads
        self.writes |= other.writes

    def clear(self) -> None:
        """A barrier: no earlier access has to be waited for."""
        self.reads, self.writes = set(), set()


def touched(statement: Stmt, written: set[Memory]) -> Touched:
    """The accesses of a statement to memory that several threads see and some write."""
    found = Touched()
    for inner in ir.statements(statement):
        for expr in ir.subexpressions(*ir.expressions(inner)):
            if isinstance(expr, Load) and memory(expr.buffer) in written:
                found.reads.add(memory(expr.buffer))
        if isinstance(inner, Store) and memory(inner.buffer) in written:
            found.writes.add(memory(inner.buffer))
        elif isinstance(inner, Reduce):
            found.writes |= {memory(b) for b in inner.buffers} & written
    return found


def seen_by_several(nest: Stmt) -> set[Memory]:
    """Shared and global memory that a launch writes to and also reads.

    What it only writes needs no order: every element is written once.
    """
    written: set[Memory] = set()
    read: set[Memory] = set()
    for statement in ir.statements(nest):
        for expr in ir.subexpressions(*ir.expressions(statement)):
            if isinstance(expr, Load):
                read.add(memory(expr.buffer))
        buffers: tuple[Buffer, ...] = ()
        if isinstance(statement, Store):
            buffers = (statement.buffer,)
        elif isinstance(statement, Reduce):
            buffers = statement.buffers
            read |= {memory(b) for b in buffers}
        written |= {memory(b) for b in buffers if b.scope in ("shared", "global", "stream")}
    return written & read
