"""How many distinct elements a set of accesses touches.

An access is an index map over a domain. It falls apart into groups of axes that share no variable,
whose images multiply. Affine groups over boxes are counted in closed form: a sum of strided
variables is brought to levels (step, count), each beyond the reach of those below it. Other groups
are listed if they are small. Several accesses are united as boxes. What depends on values in
memory, or is too large to list, gets an upper bound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ridgeline.index.polynomial import Affine, Polynomial
from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import (
    Count,
    Domain,
    PointCount,
    conjuncts,
    enumerate_points,
    size,
    values_at,
)
from ridgeline.loops.build import affine, free_vars, polynomial, simplify, substitute
from ridgeline.loops.ir import Buffer, Const, Expr, OpExpr, Var

_MOST_CELLS = 1 << 20
_MOST_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True)
class Access:
    """An index into a buffer, over a domain."""

    index: tuple[Expr, ...]
    domain: Domain

    def canonical(self) -> Access:
        """Simplified, and without irrelevant loops; run-time sizes are at least 1."""
        ranges = self.domain.ranges
        index = tuple(simplify(i, ranges) for i in self.index)
        guards = [simplify(guard, ranges) for guard in conjuncts(self.domain.guards)]
        guards = [guard for guard in guards if not _is(guard, True)]
        needed = set().union(*(free_vars(e) for e in (*index, *guards)))
        names = {name for name, _ in self.domain.loops}
        loops: list[tuple[str, Expr]] = []
        for name, extent in reversed(self.domain.loops):
            simple = simplify(extent, ranges)
            runs = isinstance(simple, Const) and simple.value > 0
            if name in needed or not (runs or _is_size(simple, names)):
                needed |= free_vars(simple)
                loops.append((name, simple))
        return Access(index, Domain(tuple(reversed(loops)), tuple(guards)))

    @property
    def extents(self) -> dict[str, int]:
        """The extents that are constant."""
        loops = self.domain.loops
        return {name: int(extent.value) for name, extent in loops if isinstance(extent, Const)}


def image(buffer: Buffer, accesses: Sequence[Access]) -> PointCount:
    """Distinct elements of a buffer that any of the accesses touches."""
    distinct = list(dict.fromkeys(access.canonical() for access in accesses))
    distinct = [access for access in distinct if not _never(access.domain)]
    if not distinct:
        return PointCount(Polynomial({}))
    if len(distinct) == 1:
        count = _product_image(buffer, distinct[0])
        if count is not None:
            return PointCount(count)
    boxes = [_box(access) for access in distinct]
    if all(box is not None for box in boxes):
        united = _union([box for box in boxes if box is not None])
        if united is not None:
            return PointCount(Polynomial({}, united))
    return _listed(buffer, distinct) or _bound(buffer, distinct)


def levels(terms: Iterable[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """The distinct values of sum(c*v), v < E, as levels (step, count); terms are (c, E).

    A value has one digit for each level. None if the terms overlap in a way that levels cannot
    express.
    """
    found: list[tuple[int, int]] = []
    reach = 0  # the largest value of the levels so far
    for step, extent in sorted((abs(c), extent) for c, extent in terms if c and extent > 1):
        if step > reach:
            found.append((step, extent))
        else:
            top, count = found[-1]
            if step % top or step // top > count:
                return None
            found[-1] = (top, count + step // top * (extent - 1))
        reach += step * (extent - 1)
    return found


def _product_image(buffer: Buffer, access: Access) -> Count | None:
    """The image of one access: the product over groups of axes without common variables."""
    total: Count = Polynomial({}, 1)
    for axes, part in _groups(access):
        count = _affine_image(buffer, axes, part) or _symbolic_image(part) or _listed_image(part)
        if count is None:
            return None
        total = total * count
    return total


def _groups(access: Access) -> list[tuple[list[int], Access]]:
    """Axes that share variables, directly or through guards and extents, with their own loops."""
    bound = dict(access.domain.loops)
    sets: list[tuple[set[str], list[int]]] = [
        (set(free_vars(i)) & bound.keys(), [axis]) for axis, i in enumerate(access.index)
    ]
    sets += [(set(free_vars(guard)) & bound.keys(), []) for guard in access.domain.guards]
    sets += [({name} | (free_vars(extent) & bound.keys()), []) for name, extent in bound.items()]
    merged: list[tuple[set[str], list[int]]] = []
    for names, axes in sets:
        touching = [other for other in merged if other[0] & names]
        merged = [other for other in merged if not other[0] & names]
        merged.append((
            names.union(*(other[0] for other in touching)),
            sorted(axes + [axis for other in touching for axis in other[1]]),
        ))  # fmt: skip
    found = []
    for names, axes in merged:
        loops = tuple(loop for loop in access.domain.loops if loop[0] in names)
        guards = tuple(g for g in access.domain.guards if free_vars(g) & names)
        part = Access(tuple(access.index[axis] for axis in axes), Domain(loops, guards))
        found.append((axes, part))
    return found


def _affine_image(buffer: Buffer, axes: list[int], part: Access) -> Count | None:
    """Affine axes over a box of constant size, counted as one flat index."""
    extents = part.extents
    if part.domain.guards or len(extents) != len(part.domain.loops):
        return None
    flat: dict[str, int] = {}
    for axis, i in zip(axes, part.index):
        form = affine(i)
        sizes = [buffer.shape[other] for other in axes if other > axis]
        if form is None or not all(isinstance(s, Const) for s in sizes):
            return None
        stride = prod(int(s.value) for s in sizes if isinstance(s, Const))
        for name, c in form.terms:
            flat[name] = flat.get(name, 0) + c * stride
    if not flat.keys() <= extents.keys():
        return None
    found = levels((c, extents[name]) for name, c in flat.items())
    return None if found is None else Polynomial({}, prod(count for _, count in found))


def _symbolic_image(part: Access) -> Count | None:
    """One axis with a single variable: as many elements as iterations."""
    if part.domain.guards or len(part.index) != 1 or len(part.domain.loops) != 1:
        return None
    ((name, extent),) = part.domain.loops
    form = affine(part.index[0])
    return polynomial(extent) if form is not None and form.strides.keys() == {name} else None


def _listed_image(part: Access) -> Count | None:
    """Any index map over points that can be listed."""
    points = enumerate_points(part.domain.loops, part.domain.guards)
    values = None if points is None else values_at(part.index, points)
    if points is None or values is None:
        return None
    if not values:
        return Polynomial({}, min(len(points[""]), 1))
    return Polynomial({}, len(np.unique(np.stack(values), axis=1).T))


Span = tuple[int, int]  # consecutive numbers: the first, and one past the last


def _box(access: Access) -> tuple[Span, ...] | None:
    """The image as a box of consecutive indices, if it is one."""
    spans: dict[int, Span] = {}
    for axes, part in _groups(access):
        form = affine(part.index[0]) if len(axes) == 1 else None
        span = _span(form, part) if form is not None else None
        if span is None:
            return None
        spans[axes[0]] = span
    return tuple(spans[axis] for axis in range(len(access.index)))


def _span(form: Affine[str], part: Access) -> Span | None:
    """The values of a sum that leaves no gaps, cut off by guards on that same sum."""
    extents = part.extents
    if not form.strides.keys() <= extents.keys() or len(extents) != len(part.domain.loops):
        return None
    found = levels((c, extents[name]) for name, c in form.terms)
    if found is None or len(found) > 1 or (found and found[0][0] != 1):
        return None
    low = int(form.interval(lambda name: (0, extents[name] - 1))[0])
    high = low + (found[0][1] if found else 1)
    for guard in part.domain.guards:
        limits = _limits(guard, form)
        if limits is None:
            return None
        low, high = max(low, limits[0]), min(high, limits[1])
    return low, max(low, high)


def _limits(guard: Expr, form: Affine[str]) -> Span | None:
    """The values of `form` that a guard on the same sum of variables admits."""
    if not isinstance(guard, OpExpr) or guard.name != "lt":
        return None
    left, right = (affine(arg) for arg in guard.args)
    huge = 1 << 63
    if left is not None and right is not None:
        if left.strides == form.strides and not right.terms:
            return -huge, right.offset - left.offset + form.offset
        if right.strides == form.strides and not left.terms:
            return left.offset - right.offset + form.offset + 1, huge
    return None


def _union(boxes: list[tuple[Span, ...]]) -> int | None:
    """The number of points in a union of boxes, by cutting space along all their faces."""
    if not boxes[0]:
        return 1
    cuts = [sorted({face for span in spans for face in span}) for spans in zip(*boxes)]
    if prod(len(faces) for faces in cuts) > _MOST_CELLS:
        return None
    covered = np.zeros([len(faces) for faces in cuts], np.bool_)
    for box in boxes:
        part = (slice(*map(faces.index, span)) for span, faces in zip(box, cuts))
        covered[tuple(part)] = True
    total = covered.astype(object)
    for axis, faces in enumerate(cuts):
        widths = np.array([b - a for a, b in zip(faces, [*faces[1:], faces[-1]])], object)
        shape = [1] * len(cuts)
        shape[axis] = -1
        total = total * widths.reshape(shape)
    return int(total.sum())


def _listed(buffer: Buffer, accesses: list[Access]) -> PointCount | None:
    """Mark every element in turn, if the buffer and the domains are small enough."""
    shape = [int(s.value) for s in buffer.shape if isinstance(s, Const)]
    if len(shape) != len(buffer.shape) or prod(shape) > _MOST_ELEMENTS:
        return None
    marked = np.zeros(prod(shape), np.bool_)
    for access in accesses:
        points = enumerate_points(access.domain.loops, access.domain.guards)
        index = None if points is None else values_at(access.index, points)
        if points is None or index is None:
            return None
        flat = np.zeros(len(points[""]), np.int64)
        for position, extent in zip(index, shape):
            flat = flat * extent + position
        marked[flat] = True
    return PointCount(Polynomial({}, int(marked.sum())))


def _bound(buffer: Buffer, accesses: list[Access]) -> PointCount:
    """An upper bound: the points of each access, axis by axis, and the size of the buffer."""
    whole: Count = Polynomial({}, 1)
    total: Count = Polynomial({})
    extents = [polynomial(s) or Polynomial.of(f"|{s!r}|") for s in buffer.shape]
    for extent in extents:
        whole = whole * extent
    for access in accesses:
        part: Count = Polynomial({}, 1)
        for i, extent in zip(access.index, extents):
            part = part * _least(_reach(i, access.domain), extent)
        total = total + part
    return PointCount(_least(total, whole), exact=False)


def _reach(index: Expr, domain: Domain) -> Count:
    """An upper bound on the values of an index: the points of the loops it depends on."""
    names = free_vars(index)
    loops: list[tuple[str, Expr]] = []
    for name, extent in reversed(domain.loops):
        if name in names:
            names |= free_vars(extent)
            loops.append((name, extent))
    return size(Domain(tuple(reversed(loops)))).count


def _least(a: Count, b: Count) -> Count:
    """The smaller of two numbers; of two incomparable polynomials the second, the buffer's."""
    return a if not a.atoms and not b.atoms and int(a) <= int(b) else b


def covers(earlier: Access, later: Access, shared: Collection[str]) -> bool:
    """True if `earlier` has surely touched every element that `later` touches, before it does.

    The loops named in `shared` surround both; within one iteration of those, `earlier` runs first
    and is complete.
    """
    fixed: dict[Expr, Expr] = {Var.make(name): ir.index(0) for name in shared}
    outer, boxes = [], []
    for access in (earlier, replace(later, domain=Domain(later.domain.loops))):
        forms = [affine(i) for i in access.index]
        if any(form is None for form in forms):
            return False
        outer.append([{n: c for n, c in f.terms if n in shared} for f in forms if f])
        local = tuple(substitute(i, fixed) for i in access.index)
        loops = tuple(loop for loop in access.domain.loops if loop[0] not in shared)
        boxes.append(_box(Access(local, Domain(loops, access.domain.guards)).canonical()))
    if outer[0] != outer[1] or boxes[0] is None or boxes[1] is None:
        return False
    return all(a[0] <= b[0] and b[1] <= a[1] for a, b in zip(*(box for box in boxes if box)))


def _is_size(extent: Expr, loops: Collection[str]) -> bool:
    """An extent that depends on run-time sizes alone."""
    form = polynomial(extent)
    return form is not None and bool(form.atoms) and not form.atoms & set(loops)


def _is(expr: Expr, value: bool) -> bool:
    return isinstance(expr, Const) and expr.value is value


def _never(domain: Domain) -> bool:
    return any(_is(guard, False) for guard in domain.guards) or any(
        isinstance(extent, Const) and extent.value <= 0 for _, extent in domain.loops
    )
