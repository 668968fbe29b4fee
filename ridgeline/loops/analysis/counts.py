"""Exact work and traffic of a kernel, counted from its IR.

`useful` counts operations, `moved_bytes` every access as the schedule makes it, and
`compulsory_bytes` each element that has to cross the memory boundary once. Numbers are polynomials
in the kernel's sizes, plain integers where there are none; `exact` is False where a number is only
an upper bound (an opaque gather, a guard that could not be settled). The interpreter's counters
are the definition: see `counters.py` for what counts as an operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import Count, Domain, loads, sites, size
from ridgeline.loops.analysis.footprint import Access, covers, image
from ridgeline.loops.build import map_buffers, map_expressions, substitute, substitution
from ridgeline.loops.interpreter.counters import operations, values_of
from ridgeline.loops.ir import Buffer, Expr, Kernel, Reduce, Store, Var
from ridgeline.scalars import CostClass

_FLOAT_CLASSES: dict[CostClass, int] = {"add": 1, "mul": 1, "fma": 2, "div": 1, "sfu": 1, "cmp": 1}


@dataclass(frozen=True, slots=True)
class Counts:
    """Operations by class."""

    operations: Mapping[CostClass, Count]
    exact: bool = True

    @property
    def flops(self) -> Count:
        """add + mul + 2*fma + div + sfu + cmp on floats; each exp or division counts as one."""
        total: Count = Polynomial({})
        for cost, weight in _FLOAT_CLASSES.items():
            total = total + self.operations.get(cost, Polynomial({})) * weight
        return total


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written, by the name of a buffer or of a scope."""

    read: Mapping[str, Count]
    written: Mapping[str, Count]
    exact: bool = True

    @property
    def total(self) -> Count:
        """The sum."""
        return sum((*self.read.values(), *self.written.values()), Polynomial({}))

    def __int__(self) -> int:
        """The total; only if it depends on no size."""
        return int(self.total)


def bound_to(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The kernel with its run-time sizes fixed."""
    if not sizes:
        return kernel
    known: dict[Expr, Expr] = {Var.make(name): ir.index(value) for name, value in sizes.items()}

    def fixed(buffer: Buffer) -> Buffer:
        shape = tuple(substitute(s, known) for s in buffer.shape)
        return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, buffer.slot)

    body = map_expressions(kernel.body, substitution(known))
    params = tuple(map(fixed, kernel.params))
    names = tuple(name for name in kernel.sizes if name not in sizes)
    return Kernel(kernel.name, params, names, map_buffers(body, fixed))


def useful(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> Counts:
    """Operations of a kernel by class, see `Counts.flops`."""
    totals: defaultdict[CostClass, Count] = defaultdict(lambda: Polynomial({}))
    exact = True
    for site in sites(bound_to(kernel, sizes or {})):
        if isinstance(site.statement, (Store, Reduce)):
            times = size(site.domain)
            exact &= times.exact
            for cost, count in operations(values_of(site.statement)).items():
                totals[cost] = totals[cost] + times.count * count
    return Counts({cost: total for cost, total in totals.items() if total != 0}, exact)


def moved_bytes(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> Traffic:
    """Bytes that loads and stores move, by the scope of the buffer."""
    read: defaultdict[str, Count] = defaultdict(lambda: Polynomial({}))
    written: defaultdict[str, Count] = defaultdict(lambda: Polynomial({}))
    exact = True
    for touch in _touches(bound_to(kernel, sizes or {})):
        times = size(touch.domain)
        exact &= times.exact
        side, scope = written if touch.writes else read, touch.buffer.scope
        side[scope] = side[scope] + times.count * touch.buffer.dtype.itemsize
    return Traffic(dict(read), dict(written), exact)


def compulsory_bytes(kernel: Kernel, sizes: Mapping[str, int] | None = None) -> Traffic:
    """Bytes of the parameters that must be read or written once, by buffer.

    An element is read if its first access is a read, and written if it is ever written.
    """
    kernel = bound_to(kernel, sizes or {})
    touches = _touches(kernel)
    slots = [param.slot for param in kernel.params]
    exact = len(set(slots)) == len(slots)  # views of one slot are counted separately
    read: dict[str, Count] = {}
    written: dict[str, Count] = {}
    for param in kernel.params:
        mine = [touch for touch in touches if touch.buffer == param]
        stores = [touch for touch in mine if touch.writes]
        fresh = [t for t in mine if not t.writes and not any(_covered(t, s) for s in stores)]
        exact &= all(_comes_first(t, s) for t in fresh for s in stores)
        for side, accesses in ((read, fresh), (written, stores)):
            if accesses:
                touched = image(param, [Access(a.index, a.domain) for a in accesses])
                exact &= touched.exact
                side[param.name] = touched.count * param.dtype.itemsize
    return Traffic(read, written, exact)


@dataclass(frozen=True, slots=True)
class _Touch:
    """A load or a store of one statement; `position` numbers statements in program order."""

    buffer: Buffer
    index: tuple[Expr, ...]
    domain: Domain
    writes: bool
    position: int
    path: tuple[int, ...]

    def shared(self, other: _Touch) -> list[str]:
        """Names of the loops around both."""
        pairs = zip(self.path, other.path, self.domain.loops)
        return [name for mine, theirs, (name, _) in pairs if mine == theirs]


def _touches(kernel: Kernel) -> list[_Touch]:
    """Every load and store in program order; a reduction is both."""
    found: list[_Touch] = []
    for position, site in enumerate(sites(kernel)):
        statement, domain, path = site.statement, site.domain, site.path
        writes: tuple[Buffer, ...] = ()
        roots = ir.expressions(statement)
        index: tuple[Expr, ...] = ()
        if isinstance(statement, (Store, Reduce)):
            stored = isinstance(statement, Store)
            writes = (statement.buffer,) if isinstance(statement, Store) else statement.buffers
            index = statement.index
            roots = (*index, *values_of(statement))
            if not stored:
                found += [_Touch(b, index, domain, False, position, path) for b in writes]
        for load, where in loads(roots, domain):
            found.append(_Touch(load.buffer, load.index, where, False, position, path))
        found += [_Touch(b, index, domain, True, position, path) for b in writes]
    return found


def _covered(read: _Touch, store: _Touch) -> bool:
    """True if everything that is read was stored before, by one earlier statement."""
    if store.position >= read.position:
        return False
    earlier, later = Access(store.index, store.domain), Access(read.index, read.domain)
    return covers(earlier, later, read.shared(store))


def _comes_first(read: _Touch, store: _Touch) -> bool:
    """True if no element is stored before it is read."""
    if store.position < read.position:
        return False
    return store.index == read.index if read.shared(store) else store.position > read.position
