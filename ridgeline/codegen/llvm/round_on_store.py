"""Narrow floats that a kernel stores and goes on with: it goes on with what memory holds.

In registers they are float32, unrounded. Another kernel reads the stored value, and what both
compute from it must fit together: the deviation of a number from its own mean is 0.
"""

from __future__ import annotations

from ridgeline.loops import ir
from ridgeline.loops.ir import Expr, Op, Stmt, Store, children, expressions, subexpressions


def stored_and_read(body: Stmt) -> frozenset[Expr]:
    """The narrow values of a kernel that it writes to memory and also uses otherwise."""
    stored = [s for s in ir.statements(body) if isinstance(s, Store) and _rounds(s)]
    if not stored:
        return frozenset()
    found = {s.value for s in stored}
    read: set[Expr] = set()
    for statement in ir.statements(body):
        roots = expressions(statement)
        if not (isinstance(statement, Store) and _rounds(statement)):
            read.update(roots)
        for expr in subexpressions(*roots):
            read.update(children(expr))
    return frozenset(found & read)


def _rounds(store: Store) -> bool:
    """True where a store rounds a computed value."""
    dtype, value = store.buffer.dtype, store.value
    narrow = dtype.kind == "float" and dtype.itemsize < 4 and store.buffer.scope != "reg"
    return narrow and isinstance(value, Op) and value.dtype is dtype and value.name != "cast"
