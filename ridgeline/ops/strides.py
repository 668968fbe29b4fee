"""Views of memory as an offset and strides, which hand-written kernels read without a copy.

`strided` looks below permutes, slices, broadcasts and reshapes for the memory that holds a value,
as far down as every element still lies at an offset plus a multiple of a stride for each axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops.elementwise import STOP_GRADIENT
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE, SLICE

VIEWS = (RESHAPE, STOP_GRADIENT, PERMUTE, SLICE, BROADCAST)


@dataclass(frozen=True, slots=True)
class View:
    """A value inside the memory of another: offset and strides in elements."""

    base: Node
    offset: int
    strides: tuple[int, ...]


def strided(node: Node, is_memory: Callable[[Node], bool]) -> View:
    """A value as a strided view of the lowest possible value; of itself at worst.

    Values for which `is_memory` holds are in memory; nothing is looked for below them.
    """
    chain = [node]
    while chain[-1].op in VIEWS and not is_memory(chain[-1]) and _known(chain[-1].inputs[0]):
        chain.append(chain[-1].inputs[0])
    while True:
        found = _through(chain)
        if found is not None:
            return found
        chain.pop()


def in_order(node: Node, is_memory: Callable[[Node], bool]) -> View:
    """A value as a view of memory that holds it contiguously from its start, else itself."""
    view, whole = strided(node, is_memory), itself(node)
    same = [a == b for a, b, n in zip(view.strides, whole.strides, _sizes(node)) if n != 1]
    return view if view.offset == 0 and all(same) else whole


def itself(node: Node) -> View:
    """A value of known shape as a view of its own contiguous memory."""
    return View(node, 0, dense(_sizes(node)))


def dense(shape: Sequence[Size]) -> tuple[int, ...]:
    """The strides of contiguous memory of known shape."""
    sizes = [size for size in shape if isinstance(size, int)]
    assert len(sizes) == len(shape), "sizes are numbers"
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    return tuple(strides)


def _known(node: Node) -> bool:
    return len(node.types) == 1 and all(isinstance(size, int) for size in node.shape)


def _sizes(node: Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.shape if isinstance(size, int))


def _through(chain: Sequence[Node]) -> View | None:
    """The first of a chain as a view of the last; None if a reshape in it needs divisions."""
    base = chain[-1]
    offset, strides = 0, dense(_sizes(base))
    for node in reversed(chain[:-1]):
        source, attrs = _sizes(node.inputs[0]), node.attrs
        if node.op is PERMUTE:
            strides = tuple(strides[axis] for axis in attrs.order)
        elif node.op is SLICE:
            offset += sum(start * stride for start, stride in zip(attrs.starts, strides))
            strides = tuple(step * stride for step, stride in zip(attrs.steps, strides))
        elif node.op is BROADCAST:
            along = {to: axis for axis, to in enumerate(attrs.axes)}
            strides = tuple(
                strides[along[to]] if to in along and source[along[to]] == size else 0
                for to, size in enumerate(_sizes(node))
            )
        elif node.op is RESHAPE:
            reshaped = _reshaped(source, strides, _sizes(node))
            if reshaped is None:
                return None
            strides = reshaped
    return View(base, offset, strides)


def _reshaped(
    old: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """The strides under another shape, if axes that merge are dense."""
    found = [0] * len(new)
    for old_run, new_run in axis_runs(old, new):
        real = [axis for axis in old_run if old[axis] != 1]
        for outer, inner in pairwise(real):
            if strides[outer] != strides[inner] * old[inner]:
                return None
        stride = strides[real[-1]] if real else 0
        for axis in reversed(new_run):
            found[axis] = stride
            stride *= new[axis]
    return tuple(found)


def axis_runs(old: Sequence[Size], new: Sequence[Size]) -> list[tuple[list[int], list[int]]]:
    """Pairs of axis runs with equal products, as short as possible."""
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [i], [j]
        if i >= len(old) or j >= len(new):  # only axes of size 1 remain
            runs.append((list(range(i, len(old))), list(range(j, len(new)))))
            break
        a, b = old[i], new[j]
        i, j = i + 1, j + 1
        while a != b:
            grow_left = j >= len(new) or (i < len(old) and _smaller(a, b))
            if grow_left and i < len(old):
                a, left, i = a * old[i], [*left, i], i + 1
            elif j < len(new):
                b, right, j = b * new[j], [*right, j], j + 1
            else:
                break
        runs.append((left, right))
    return runs


def _smaller(a: Size, b: Size) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return isinstance(a, int)
