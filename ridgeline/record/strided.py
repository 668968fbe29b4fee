"""Views that movement ops cannot express: windows along an axis, and arbitrary strides.

As a step of a view (`cells.py`) each is a gather at places that follow from a few numbers. Writing
through it is a scatter, and refused where several of its elements are one in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import Attrs, Node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops import movement
from ridgeline.ops.elementwise import add, constant, full_like, iota, mul
from ridgeline.ops.gather import gather, scatter
from ridgeline.scalars import Array

Sizes = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class SlidingWindows(Attrs):
    """`count` windows of `size` elements, `step` apart, along an axis; they become the last one."""

    axis: int
    size: int
    step: int
    count: int

    @property
    def overlaps(self) -> bool:
        """True where an element is in several windows."""
        return self.size > self.step and self.count > 1

    def read(self, value: Node) -> Node:
        """The windows of a value."""
        picked = gather(value, (self._indices(value.type.device),), (self.axis,))
        rank = len(picked.shape)
        return movement.permute(
            picked, (*range(2, self.axis + 2), 0, *range(self.axis + 2, rank), 1)
        )

    def written(self, under: Node, value: Node) -> Node:
        """`under` with its windows replaced."""
        last = len(value.shape) - 1
        rest = (a for a in range(last) if a != self.axis)
        turned = movement.permute(value, (self.axis, last, *rest))
        return scatter(under, turned, (self._indices(under.type.device),), (self.axis,))

    def shape(self, shape: Sizes) -> Sizes:
        """The shape that windows of a value have."""
        return (*shape[: self.axis], self.count, *shape[self.axis + 1 :], self.size)

    def strides(self, strides: Sizes) -> Sizes:
        """The strides of the windows, from those of the value."""
        along = strides[self.axis]
        return (*strides[: self.axis], along * self.step, *strides[self.axis + 1 :], along)

    def shown(self, array: Array) -> Array:
        """The windows of an array, in its memory."""
        shape = self.shape(array.shape)
        return _strided(array, shape, self.strides(array.strides))

    def _indices(self, device: str) -> Node:
        return _flat_indices((self.count, self.size), (self.step, 1), 0, device)


@dataclass(frozen=True, slots=True)
class Strided(Attrs):
    """Sizes and strides over the elements of a value in row-major order, from an offset on."""

    sizes: tuple[int, ...]
    by: tuple[int, ...]
    offset: int

    @property
    def overlaps(self) -> bool:
        """True if an element is seen twice; if no rule decides quickly, they are counted."""
        reach = 0
        for by, size in sorted((by, size) for by, size in zip(self.by, self.sizes) if size > 1):
            if by <= reach:
                return self._counted()
            reach += by * (size - 1)
        return False

    def _counted(self) -> bool:
        seen = np.full(self.sizes, self.offset, np.int64)
        for axis, by in enumerate(self.by):
            line = [1] * len(self.sizes)
            line[axis] = self.sizes[axis]
            seen = seen + (np.arange(self.sizes[axis]) * by).reshape(line)
        return len(np.unique(seen)) < seen.size

    def read(self, value: Node) -> Node:
        """The elements of a value at these places."""
        return gather(_line(value), (self._indices(value.type.device),), (0,))

    def written(self, under: Node, value: Node) -> Node:
        """`under` with these elements replaced."""
        made = scatter(_line(under), value, (self._indices(under.type.device),), (0,))
        return movement.reshape(made, under.shape)

    def shape(self, shape: Sizes) -> Sizes:
        """The shape of the view, whatever that of the value."""
        return self.sizes

    def strides(self, strides: Sizes) -> Sizes:
        """The strides of the view; the value under it lies densely."""
        return self.by

    def shown(self, array: Array) -> Array:
        """The elements of a dense array, in its memory."""
        apart = [by * array.itemsize for by in self.by]
        return _strided(array.reshape(-1)[self.offset :], self.sizes, apart)

    def _indices(self, device: str) -> Node:
        return _flat_indices(self.sizes, self.by, self.offset, device)


def _flat_indices(sizes: tuple[int, ...], by: Sequence[int], offset: int, device: str) -> Node:
    """`offset` plus the sum of each index times its stride."""
    found = movement.broadcast_scalar(constant(offset, dtypes.int64, device), sizes)
    for axis, stride in enumerate(by):
        ramp = iota(sizes, axis, dtypes.int64, device)
        found = add(found, mul(ramp, full_like(ramp, stride)))
    return found


def _line(value: Node) -> Node:
    return movement.reshape(value, (product(value.shape),))


def _strided(array: Array, shape: Sequence[Size], strides: Sequence[Size]) -> Array:
    """Memory seen with other strides; as bytes on the way, for NumPy does not know every type."""
    plain = array.view(f"V{array.itemsize}")
    sizes, apart = [int(s) for s in shape], [int(s) for s in strides]
    return np.lib.stride_tricks.as_strided(plain, sizes, apart).view(array.dtype)
