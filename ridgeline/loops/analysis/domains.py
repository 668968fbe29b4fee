"""Iteration domains: the loops and guards around a statement, and how often it runs.

Counts are exact polynomials where loops are plain or triangular. Guards and awkward extents are
settled by listing the loops they involve, or, for the guard of an uneven split, by noticing that
the guarded index runs through 0, 1, 2, … without repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TypeAlias

import numpy as np

from ridgeline import dtypes
from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.analysis.index_bounds import Simplifier
from ridgeline.loops.build import affine, free_vars, polynomial, simplify
from ridgeline.loops.interpreter.evaluate import evaluate
from ridgeline.scalars import Array

Count: TypeAlias = Polynomial[str]
MOST_POINTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Domain:
    """Loops from the outside in, as (name, extent), and the guards that must hold inside."""

    loops: tuple[tuple[str, ir.Expr], ...]
    guards: tuple[ir.Expr, ...] = ()

    def under(self, *guards: ir.Expr) -> Domain:
        """The part in which further conditions hold."""
        return Domain(self.loops, (*self.guards, *guards))

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Inclusive bounds of the loop variables, as far as they are known."""
        found: dict[str, tuple[int, int]] = {}
        for name, extent in self.loops:
            simplifier = Simplifier(found)
            _, most = simplifier.interval(simplifier.form(simplifier.run(extent)))
            if most < inf:
                found[name] = (0, max(int(most) - 1, 0))
        return found


@dataclass(frozen=True, slots=True)
class PointCount:
    """A number of points, and whether it is exact or an upper bound."""

    count: Count
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Site:
    """A statement in context: its domain, and the numbers of the loops around it."""

    statement: ir.Stmt
    domain: Domain
    path: tuple[int, ...]


def sites(kernel: ir.Kernel) -> Iterator[Site]:
    """Every statement with the domain in which it is reached, in program order."""
    stack = [Site(kernel.body, Domain(()), ())]
    number = 0
    while stack:
        site = stack.pop()
        statement, domain, path = site.statement, site.domain, site.path
        yield site
        if isinstance(statement, ir.Seq):
            stack.extend(Site(inner, domain, path) for inner in reversed(statement.body))
        elif isinstance(statement, ir.For):
            number += 1
            loops = (*domain.loops, (statement.name, statement.extent))
            stack.append(Site(statement.body, Domain(loops, domain.guards), (*path, number)))
        elif isinstance(statement, ir.If):
            stack.append(Site(statement.body, domain.under(statement.guard), path))
        elif isinstance(statement, (ir.Alloc, ir.Mma, ir.Pipe)):
            stack.append(Site(statement.body, domain, path))


def loads(roots: Sequence[ir.Expr], domain: Domain) -> list[tuple[ir.Load, Domain]]:
    """Every load that evaluating `roots` makes, each with the domain in which it is made."""
    found: dict[tuple[ir.Load, Domain], None] = {}
    seen: set[tuple[ir.Expr, Domain]] = set()
    stack = [(root, domain) for root in roots]
    while stack:
        node, where = stack.pop()
        if (node, where) in seen:
            continue
        seen.add((node, where))
        if isinstance(node, ir.Load):
            found[node, where] = None
        children = ir.children(node)
        if isinstance(node, ir.OpExpr) and node.name == "guarded":
            stack.append((node.args[1], where.under(node.args[0])))
            children = (node.args[0], node.args[2])
        stack.extend((child, where) for child in children)
    return list(found)


@lru_cache(maxsize=512)
def size(domain: Domain) -> PointCount:
    """How many iterations a domain has."""
    ranges = domain.ranges
    guards = [simplify(guard, ranges) for guard in conjuncts(domain.guards)]
    loops = [(name, simplify(extent, ranges)) for name, extent in domain.loops]
    if any(isinstance(guard, ir.Const) and not guard.value for guard in guards):
        return PointCount(Polynomial({}))
    guards = [guard for guard in guards if not isinstance(guard, ir.Const)]
    plain = _plain(loops, ranges)
    if not guards and plain is not None:
        return PointCount(plain)
    involved = _involved(loops, guards)
    inside = [(name, extent) for name, extent in loops if name in involved]
    outside = _plain([loop for loop in loops if loop[0] not in involved], ranges)
    bound = _bound(inside, ranges)
    if outside is None:
        return PointCount(_bound(loops, ranges), exact=False)
    digits = _digits(inside, guards)
    if digits is not None:
        return PointCount(outside * digits)
    points = enumerate_points(inside, guards)
    if points is None:
        return PointCount(outside * bound, exact=False)
    return PointCount(outside * len(next(iter(points.values()))))


def _plain(
    loops: Sequence[tuple[str, ir.Expr]], ranges: dict[str, tuple[int, int]]
) -> Count | None:
    """The number of points of unguarded loops whose extents are polynomials and never negative."""
    total: Count = Polynomial({}, 1)
    names = {name for name, _ in loops}
    for name, extent in reversed(loops):
        form = polynomial(extent)
        if form is None:
            return None
        if form.atoms & names:
            simplifier = Simplifier(ranges)
            least, _ = simplifier.interval(simplifier.form(simplifier.run(extent)))
            if least < 0:
                return None
        elif not form.atoms and int(form) < 0:
            form = Polynomial({})
        total = total.summed(name, form)
    return total


def _involved(loops: list[tuple[str, ir.Expr]], guards: list[ir.Expr]) -> set[str]:
    """The loops that a guard mentions or whose extent is no polynomial, and their dependencies."""
    names = {name for name, _ in loops}
    found = set().union(*(free_vars(guard) for guard in guards)) & names
    for name, extent in loops:
        if polynomial(extent) is None or free_vars(extent) & names:
            found.add(name)
    for name, extent in reversed(loops):
        if name in found:
            found |= free_vars(extent) & names
    return found


def _bound(loops: Sequence[tuple[str, ir.Expr]], ranges: dict[str, tuple[int, int]]) -> Count:
    total: Count = Polynomial({}, 1)
    for name, extent in loops:
        form = polynomial(extent)
        if name in ranges:
            total = total * (ranges[name][1] + 1)
        elif form is not None:
            total = total * form
        else:
            total = total * Polynomial.of(f"|{extent!r}|")  # a name for a size we cannot expand
    return total


def _digits(loops: list[tuple[str, ir.Expr]], guards: list[ir.Expr]) -> Count | None:
    """Points of `sum(c*v) < n` where the sum counts 0, 1, 2, … as the loops run: n of them."""
    if len(guards) != 1 or not all(isinstance(extent, ir.Const) for _, extent in loops):
        return None
    guard = guards[0]
    if (
        not isinstance(guard, ir.OpExpr)
        or guard.name != "lt"
        or not isinstance(guard.args[1], ir.Const)
    ):
        return None
    form = affine(guard.args[0])
    extents = {name: int(extent.value) for name, extent in loops if isinstance(extent, ir.Const)}
    if form is None or form.strides.keys() != extents.keys():
        return None
    step = 1
    for name, coefficient in sorted(form.terms, key=lambda item: item[1]):
        if coefficient != step:
            return None
        step *= extents[name]
    below = int(guard.args[1].value) - form.offset
    return Polynomial({}, min(max(below, 0), step))


def enumerate_points(
    loops: Sequence[tuple[str, ir.Expr]], guards: Sequence[ir.Expr]
) -> dict[str, Array] | None:
    """All points of constant loops under guards, or None if they are too many or unknown."""
    points: dict[str, Array] = {"": np.zeros(1, np.int64)}
    for name, extent in loops:
        extents = _values(extent, points)
        if extents is None:
            return None
        counts = np.maximum(extents, 0)
        if int(counts.sum()) > MOST_POINTS:
            return None
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(np.arange(len(counts)), counts)
        points = {other: values[rows] for other, values in points.items()}
        points[name] = np.arange(len(rows)) - starts
    for guard in guards:
        holds = _values(guard, points)
        if holds is None:
            return None
        points = {name: values[holds] for name, values in points.items()}
    return points


def _values(expr: ir.Expr, points: dict[str, Array]) -> Array | None:
    """An expression at every point, or None if it needs memory or unknown sizes."""
    for node in ir.subexpressions(expr):
        known = isinstance(node, (ir.Const, ir.OpExpr)) or (
            isinstance(node, ir.Var) and node.name in points
        )
        if not known:
            return None

    def leaf(node: ir.Expr, operands: list[Array], lanes: Array | None) -> Array:
        assert isinstance(node, ir.Var)
        return points[node.name] if lanes is None else points[node.name][lanes]

    return evaluate([expr], len(points[""]), leaf)[0]


def values_at(exprs: Sequence[ir.Expr], points: dict[str, Array]) -> list[Array] | None:
    """Several expressions at every point."""
    found = [_values(expr, points) for expr in exprs]
    return None if any(values is None for values in found) else [v for v in found if v is not None]


def conjuncts(guards: Iterable[ir.Expr]) -> list[ir.Expr]:
    """A conjunction of guards as a flat list of conditions."""
    found: list[ir.Expr] = []
    stack = list(reversed(list(guards)))
    while stack:
        guard = stack.pop()
        if isinstance(guard, ir.OpExpr) and guard.name == "and" and guard.dtype is dtypes.bool_:
            stack.extend(reversed(guard.args))
        else:
            found.append(guard)
    return found
