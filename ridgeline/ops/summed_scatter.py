"""Scatter-add in higher precision, so that many updates of one element lose nothing.

Updates arrive in any order and one by one, so a sum of them cannot be cut into blocks. Narrower
floats are summed in double precision and rounded once. If the base is small, a CPU's kernel keeps
the sums of some columns in scratch that a cache holds; a block of a GPU keeps those of a row in
shared memory. Where it is large and updates are few, only as many sums as updates are kept so wide.
Double precision itself is cut in two: the upper parts of all updates of an element are multiples of
one unit, coarse enough to be added exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ridgeline import dtypes
from ridgeline.config import config
from ridgeline.devices import CPU
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops.elementwise import (
    cast,
    constant,
    full_like,
    iota,
    select,
)
from ridgeline.ops.gather import WIDE_ADD, gather, ramps, scatter
from ridgeline.ops.math import minimum
from ridgeline.ops.movement import broadcast, broadcast_scalar, reshape
from ridgeline.ops.reduce import kept_axes

_FEW = 24  # updates that may be added one after the other
_SPARSE = 3  # places for each update, from which on wide sums of all places cost more
_LONG_ROW = 8  # numbers of a place, from which on finding its first update costs little
_MOST = 1 << 40  # updates where their number is known only at run time
_ONE_CUT = 1 << 18  # updates whose lower parts may be added as they are
_MOST_SHARED, _MANY_BLOCKS = 8192, 512  # places that a GPU's block sums up, and rows that fill it
_MOST_IN_SCRATCH = 1024  # places whose sums a kernel keeps for some columns


def wide_scatter(current: Node, inputs: Sequence[Node]) -> Node | None:
    """A scatter that sums floats without loss, and one that multiplies narrow floats in float32;
    None where it is right as it is."""
    dtype, mode = current.dtype, current.attrs.mode
    if dtype.kind != "float":
        return None
    if mode == "prod" and dtype.itemsize < 4:
        base, updates = (cast(operand, dtypes.float32) for operand in inputs[:2])
        made = scatter(base, updates, inputs[2:], current.attrs.axes, mode)
        return cast(made, dtype)
    if mode != "add":
        return None
    sums = _Sums(inputs[0], inputs[1], inputs[2:], current.attrs.axes)
    if sums.count <= _FEW and dtype.itemsize >= 4:
        return None
    if dtype is dtypes.float64:
        return sums.in_parts()
    if sums.is_sparse:
        return sums.by_first_update()
    return (
        sums.in_a_kernel()
        if sums.fit_a_block or sums.have_few_places
        else sums.in_double_precision()
    )


def widened(current: Node, inputs: Sequence[Node]) -> Node | None:
    """A scatter in double precision for one of a kernel that has no scratch for its sums."""
    if current.attrs.mode != WIDE_ADD:
        return None
    sums = _Sums(inputs[0], inputs[1], inputs[2:], current.attrs.axes)
    return None if sums.fit_a_block else sums.in_double_precision()


class _Sums:
    """Updates of the places that indices name along axes of a base."""

    def __init__(
        self, base: Node, updates: Node, indices: Sequence[Node], axes: Sequence[int]
    ) -> None:
        self.base, self.updates, self.indices, self.axes = base, updates, indices, tuple(axes)
        self.rest = kept_axes(len(base.shape), self.axes)
        self.apart = ramps(indices, axes, base)
        joined = [s for d, s in enumerate(indices[0].shape) if d not in self.apart.values()]
        counted = product(joined)
        self.count = counted if isinstance(counted, int) else _MOST

    @property
    def have_few_places(self) -> bool:
        """True where updates that meet choose of so few places that scratch has room for all."""
        elements = product([self.base.shape[a] for a in self.axes if a not in self.apart])
        return isinstance(elements, int) and elements <= _MOST_IN_SCRATCH

    @property
    def fit_a_block(self) -> bool:
        """True on a GPU for many rows, each of which a block sums up in shared memory.

        The threads of a block add in any order.
        """
        if self.base.type.device == CPU or config.deterministic or self.rest:
            return False
        joined = [a for a in self.axes if a not in self.apart]
        sizes = [s for s in self.base.shape if isinstance(s, int)]
        if joined != [len(self.base.shape) - 1] or len(sizes) < len(self.base.shape):
            return False
        return sizes[-1] <= _MOST_SHARED and prod(sizes[:-1]) >= _MANY_BLOCKS

    @property
    def is_sparse(self) -> bool:
        """True where most places have no update, and a place is a row of numbers."""
        elements = product([self.base.shape[a] for a in self.axes])
        row = product([self.base.shape[a] for a in self.rest])
        known = isinstance(elements, int) and isinstance(row, int) and not self.apart
        return known and row >= _LONG_ROW and elements > _SPARSE * self.count

    def in_a_kernel(self) -> Node:
        """Sums that a kernel keeps in float64 by itself."""
        return self._scatter(self.base, self.updates, WIDE_ADD)

    def in_double_precision(self) -> Node:
        """All sums in float64."""
        base, updates = (cast(a, dtypes.float64) for a in (self.base, self.updates))
        return cast(self._scatter(base, updates), self.base.dtype)

    def by_first_update(self) -> Node:
        """Sums in float64 in the place of one update of each, which alone is added to the base."""
        shape = self.indices[0].shape
        flat = iota((self.count,), 0, dtypes.int64, self.base.type.device)
        number = reshape(flat, shape)
        named = tuple(self.base.shape[a] for a in self.axes)
        none = broadcast_scalar(constant(0, dtypes.int64, self.base.type.device), named)
        axes = tuple(range(len(named)))
        leader = gather(scatter(none, number, self.indices, axes, "max"), self.indices, axes)
        row = self.updates.shape[len(shape) :]
        values = cast(reshape(self.updates, (self.count, *row)), dtypes.float64)
        led = reshape(leader, (self.count,))
        total = scatter(full_like(values, 0), values, (led,), (0,), "add")
        leads = broadcast(led.eq(flat), values.shape, (0,))
        once = cast(select(leads, total, full_like(total, 0)), self.base.dtype)
        return self._scatter(self.base, reshape(once, self.updates.shape))

    def in_parts(self) -> Node:
        """Sums of upper parts, which are exact, and of what is left."""
        updates = self.updates
        is_number = abs(updates) < full_like(updates, np.inf)
        size = select(is_number, abs(updates), full_like(updates, 0))
        largest = self._scatter(full_like(self.base, 0), size, "max")
        room = float(4 * self.count)
        top = minimum(gather(largest, self.indices, self.axes), full_like(size, 1e308 / room))
        unit = top * room
        left, sums = updates, list[Node]()
        for _ in range(1 if self.count <= _ONE_CUT else 2):
            upper = select(is_number, left + unit - unit, left)
            sums.append(self._scatter(full_like(self.base, 0), upper))
            left = select(is_number, left - upper, full_like(left, 0))
            unit = unit * (room * 2.0 ** (-52))
        total = self._scatter(full_like(self.base, 0), left)
        for part in reversed(sums):
            total = part + total
        return self.base + total

    def _scatter(self, base: Node, updates: Node, mode: str = "add") -> Node:
        return scatter(base, updates, self.indices, self.axes, mode)
