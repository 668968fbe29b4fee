"""Proofs that a kernel stays inside its buffers, for all iterations and all contents of memory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import z3

from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import Domain, loads, sites
from ridgeline.loops.ir import Buffer, Const, Expr, Kernel, Load, OpExpr, Reduce, Store, Var
from tests.loops import solver

_INTEGER = {"add", "sub", "mul", "neg", "min", "max", "floordiv", "mod", "abs"}
_COMPARE = {"lt", "le", "eq", "ne"}


class _Terms:
    """Integer and boolean expressions as z3 terms; what memory holds may be anything.

    `below` are slots whose contents earlier kernels made sure to lie in 0 … limit - 1.
    """

    def __init__(self, below: Mapping[int, int]) -> None:
        self._below = below
        self.facts: list[Any] = []
        self._known: dict[Expr, Any] = {}
        self._names = count()

    def term(self, expr: Expr) -> Any:
        for node in ir.subexpressions(expr):
            if node not in self._known:
                self._known[node] = self._make(node)
        return self._known[expr]

    def _make(self, node: Expr) -> Any:
        if isinstance(node, Var):
            return z3.Int(node.name)
        if isinstance(node, Const) and node.dtype.kind != "float":
            value = node.value
            return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(int(value))
        if isinstance(node, OpExpr):
            found = self._operation(node)
            if found is not None:
                return found
        return self._anything(node)

    def _operation(self, node: OpExpr) -> Any:
        args = [self._known[a] for a in node.args]
        kind = node.args[-1].dtype.kind
        if node.name == "cast" and kind in ("int", "uint") and node.dtype.kind == "int":
            return args[0]
        if node.name == "and" and kind in ("int", "uint") and isinstance(node.args[1], Const):
            masked = self._anything(node)
            self.facts += [masked >= 0, masked <= int(node.args[1].value)]
            return masked
        if kind == "bool" or (node.name == "select" and kind == "int"):
            return solver.apply(node, args, unbounded=True)
        if kind == "int" and node.name in _INTEGER | _COMPARE:
            return solver.apply(node, args, unbounded=True)
        return None

    def _anything(self, node: Expr) -> Any:
        name = f"any{next(self._names)}"
        if node.dtype.kind == "bool":
            return z3.Bool(name)
        value = z3.Int(name)
        if node.dtype.kind == "uint":
            self.facts.append(value >= 0)
        if isinstance(node, Load) and node.buffer.slot in self._below:
            self.facts += [value >= 0, value < self._below[node.buffer.slot]]
        return value


def prove_in_range(kernel: Kernel, below: Mapping[int, int]) -> int:
    """Prove every access of a kernel; the number of proofs. Fails with a counterexample."""
    claims: dict[tuple[Buffer, tuple[Expr, ...], Domain], None] = {}
    for site in sites(kernel):
        statement = site.statement
        if isinstance(statement, (Store, Reduce)):
            written = (statement.buffer,) if isinstance(statement, Store) else statement.buffers
            for buffer in written:
                claims[buffer, statement.index, site.domain] = None
        for load, where in loads(ir.expressions(statement), site.domain):
            claims[load.buffer, load.index, where] = None
    for buffer, index, domain in claims:
        _prove(buffer, index, domain, below)
    return len(claims)


def _prove(
    buffer: Buffer, index: tuple[Expr, ...], domain: Domain, below: Mapping[int, int]
) -> None:
    terms = _Terms(below)
    facts = []
    for name, extent in domain.loops:
        variable = z3.Int(name)
        facts += [variable >= 0, variable < terms.term(extent)]
    facts += [terms.term(guard) for guard in domain.guards]
    inside = []
    for place, size in zip(index, buffer.shape):
        at = terms.term(place)
        inside += [at >= 0, at < terms.term(size)]
    if inside:
        solver.prove(z3.And(*inside), *facts, *terms.facts)
