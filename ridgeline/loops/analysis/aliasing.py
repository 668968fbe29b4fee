"""Alias analysis: which results of a kernel may overwrite something it reads.

A store may overwrite what a load reads if the load comes first, element by element. That is so
where both are reached by the same index, the loops and guards around the store are around the load
too, the load stands no later in the program, and every element is stored once: then an iteration of
the store's loops belongs to an element, and in it the load has run before the store. Iterations of
concurrent loops touch only what is their own.

Where all that is read of an operand is copied to the same place of the result, as a scatter begins,
the result may lie in its place whatever is stored afterwards: the copies change nothing then, and
code generators leave them out (`copies_itself`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf

from ridgeline.index.polynomial import Polynomial
from ridgeline.loops import ir
from ridgeline.loops.analysis.domains import Domain, conjuncts, loads, sites, size
from ridgeline.loops.build import affine, map_buffers
from ridgeline.loops.ir import Buffer, Const, Expr, Kernel, Load, Reduce, Stmt, Store, Var


@dataclass(frozen=True, slots=True)
class _Touch:
    """A load or a store: of which view, at which index, in which iterations, and its position."""

    buffer: Buffer
    index: tuple[Expr, ...]
    domain: Domain
    position: int
    path: tuple[int, ...]


def in_place(kernel: Kernel, pairs: Mapping[int, int]) -> tuple[Kernel, dict[int, int]]:
    """The pairs of slots (written, read) that may share memory, and the kernel in which they do.

    There the parameters of such a pair are views of one slot, so that code generators keep loads
    and stores in order. The kernel is also right if the two do not share memory.
    """
    touches = _touches(kernel) if pairs else _Touches()
    found = {written: read for written, read in pairs.items() if touches.may_share(written, read)}

    def shared(buffer: Buffer) -> Buffer:
        return replace(buffer, slot=found[buffer.slot]) if buffer.slot in found else buffer

    if not found:
        return kernel, found
    params = tuple(map(shared, kernel.params))
    return replace(kernel, params=params, body=map_buffers(kernel.body, shared)), found


def read_too_late(kernel: Kernel) -> Buffer | None:
    """A parameter that is read after another view of the same memory may have changed it."""
    names: dict[int, set[str]] = {}
    for buffer in kernel.params:
        names.setdefault(buffer.slot, set()).add(buffer.name)
    if all(len(views) == 1 for views in names.values()):
        return None
    touches = _touches(kernel)
    for slot, stores in touches.stores.items():
        if len(names.get(slot, ())) < 2:  # scratch is nobody else's memory
            continue
        for load in touches.loads.get(slot, ()):
            others = [s for s in stores if s.buffer.name != load.buffer.name]
            before = any(_precedes(load, s) for s in others)
            if others and not before and not all(_stands_before(load, s) for s in others):
                return load.buffer
    return None


@dataclass(slots=True)
class _Touches:
    """The loads and stores of a kernel, by slot."""

    loads: dict[int, list[_Touch]] = field(default_factory=dict)
    stores: dict[int, list[_Touch]] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)  # written before all that goes in is known
    copies: Counter[tuple[int, int]] = field(default_factory=Counter)  # written, read

    def may_share(self, written: int, read: int) -> bool:
        """Whether a slot may be written over one that is read."""
        if written in self.loads:
            return False
        copied = self.copies[written, read]
        if copied and copied == len(self.loads[read]):
            return True
        if written in self.joined:
            return False
        stores = self.stores.get(written, [])
        return _each_once(stores) and all(
            any(_precedes(r, s) for s in stores) or all(_stands_before(r, s) for s in stores)
            for r in self.loads.get(read, ())
        )


def _touches(kernel: Kernel) -> _Touches:
    found = _Touches()
    for position, site in enumerate(sites(kernel)):
        statement, path = site.statement, site.path
        for load, where in loads(ir.expressions(statement), site.domain):
            touch = _Touch(load.buffer, load.index, where, position, path)
            found.loads.setdefault(load.buffer.slot, []).append(touch)
        if isinstance(statement, Reduce):
            found.joined.update(buffer.slot for buffer in statement.buffers)
        if isinstance(statement, Store):
            touch = _Touch(statement.buffer, statement.index, site.domain, position, path)
            found.stores.setdefault(statement.buffer.slot, []).append(touch)
            source = _copied(statement)
            if source is not None:
                found.copies[statement.buffer.slot, source.slot] += 1
    return found


def _copied(store: Store) -> Buffer | None:
    """What a store copies to the same index of another buffer."""
    value = store.value
    if not isinstance(value, Load) or value.index != store.index:
        return None
    alike = value.buffer.shape == store.buffer.shape and value.dtype is store.buffer.dtype
    return value.buffer if alike and value.buffer.slot >= 0 else None


def copies_itself(statement: Stmt) -> tuple[Buffer, Buffer] | None:
    """The two views of one slot, if a statement only copies one to the other.

    If they share memory, nothing has to be done.
    """
    stores = [s for s in ir.statements(statement) if isinstance(s, (Store, Reduce))]
    only = stores[0] if len(stores) == 1 else None
    source = _copied(only) if isinstance(only, Store) else None
    if not isinstance(only, Store) or source is None or source.slot != only.buffer.slot:
        return None
    return (only.buffer, source) if source.name != only.buffer.name else None


def _each_once(stores: list[_Touch]) -> bool:
    """True if no element is stored twice: all are stored, in as many stores as elements."""
    if not stores:
        return False
    if any(not isinstance(s, Const) for s in stores[0].buffer.shape):
        return len(stores) == 1 and _one_to_one(stores[0])
    elements = 1
    for extent in stores[0].buffer.shape:
        assert isinstance(extent, Const)
        elements *= int(extent.value)
    counts = [size(store.domain) for store in stores]
    total = sum((count.count for count in counts), Polynomial({}))
    return all(count.exact for count in counts) and total == elements


def _one_to_one(store: _Touch) -> bool:
    """True if the indices are mixed-radix numbers with the loops as digits, each loop used once."""
    left = {name: extent for name, extent in store.domain.loops if extent != ir.index(1)}
    for index in store.index:
        form = affine(index)
        if form is None:
            return False
        own = {name: left.pop(name) for name in form.strides.keys() & left.keys()}
        extents = {n: int(e.value) if isinstance(e, Const) else inf for n, e in own.items()}
        if own.keys() != form.strides.keys() or not form.tells_apart(extents):
            return False
    return not left


def _alike(read: _Touch, store: _Touch) -> bool:
    return read.buffer.shape == store.buffer.shape and read.buffer.dtype is store.buffer.dtype


def _stands_before(read: _Touch, store: _Touch) -> bool:
    """True if loops of the read's own end before those of the store begin."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(read.path, store.path)))
    if not _alike(read, store) or read.position > store.position:
        return False
    if shared in (0, len(store.path)):
        return False
    return all(
        extent == ir.index(1)
        or any(r == s == Var.make(name) for r, s in zip(read.index, store.index))
        for name, extent in store.domain.loops[:shared]
    )


def _precedes(read: _Touch, store: _Touch) -> bool:
    """True if whatever the load reads is stored by this store, and not earlier."""
    if not _alike(read, store) or read.index != store.index or read.position > store.position:
        return False
    around = dict(read.domain.loops)
    if any(around.get(name) != extent for name, extent in store.domain.loops):
        return False
    return set(conjuncts(store.domain.guards)) <= set(conjuncts(read.domain.guards))
