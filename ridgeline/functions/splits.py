"""Splitting and stacking: pieces of tensors, added axes, and copies of views."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import index as index_of
from typing import Any

from ridgeline.errors import ShapeError
from ridgeline.functions import windows  # noqa: F401  (its rows are copied below)
from ridgeline.functions.concrete import concrete
from ridgeline.functions.index_checks import as_index, flat, listed
from ridgeline.functions.movement import cat, cut, split
from ridgeline.functions.operands import axis_of, step_count
from ridgeline.functions.registry import TABLE, public
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.ops import movement
from ridgeline.record.cells import known


@public(view=True)
def tensor_split(
    input: Node, indices_or_sections: int | Sequence[int] | Node, dim: int = 0
) -> tuple[Node, ...]:
    """Pieces along an axis: so many, as equal as possible, or cut at indices."""
    axis = axis_of(dim, len(input.shape))
    if not input.shape:
        raise ShapeError("tensor_split needs at least one axis")
    total = known(input.shape[axis])
    cuts: Any = indices_or_sections
    if isinstance(cuts, Node):
        if len(cuts.shape) > 1:
            raise ShapeError(f"tensor_split by a tensor needs a vector, got {list(cuts.shape)}")
        cuts = concrete(as_index(cuts, "tensor_split"), "tensor_split", "split by ints").tolist()
    if isinstance(cuts, int):
        if cuts <= 0:
            raise ShapeError(f"tensor_split needs at least one piece, not {cuts}")
        size, longer = divmod(total, cuts)
        edges = [0]
        for piece in range(step_count(cuts, "tensor_split")):
            edges.append(edges[-1] + size + (piece < longer))
    else:
        inner = [slice(index_of(c)).indices(total)[1] for c in cuts]
        edges = [0, *inner, total]
    return tuple(cut(input, axis, min(a, b), max(b - a, 0)) for a, b in pairwise(edges))


def _split_axis(input: Node, by: Any, axis: int, least: int, name: str) -> tuple[Node, ...]:
    if len(input.shape) < least:
        raise ShapeError(f"{name} needs at least {least} axes, got shape {list(input.shape)}")
    if isinstance(by, int) and (by <= 0 or known(input.shape[axis]) % by):
        raise ShapeError(f"{name}: axis {axis} of size {input.shape[axis]} is no multiple of {by}")
    return tensor_split(input, by, axis)


@public(view=True)
def hsplit(input: Node, indices_or_sections: int | Sequence[int]) -> tuple[Node, ...]:
    """Pieces side by side."""
    return _split_axis(input, indices_or_sections, 0 if len(input.shape) == 1 else 1, 1, "hsplit")


@public(view=True)
def vsplit(input: Node, indices_or_sections: int | Sequence[int]) -> tuple[Node, ...]:
    """Pieces one below the other."""
    return _split_axis(input, indices_or_sections, 0, 2, "vsplit")


@public(view=True)
def dsplit(input: Node, indices_or_sections: int | Sequence[int]) -> tuple[Node, ...]:
    """Pieces along the third axis."""
    return _split_axis(input, indices_or_sections, 2, 3, "dsplit")


@public(view=True)
def split_with_sizes(input: Node, split_sizes: Sequence[int], dim: int = 0) -> tuple[Node, ...]:
    """Pieces of the sizes listed."""
    return split(input, split_sizes, dim)


@public(view=True)
def ravel(input: Node) -> Node:
    """All elements in one axis."""
    return flat(input)


def _each(tensors: tuple[Any, ...], shape: Any) -> Any:
    """One tensor, or a tuple of several, reshaped."""
    whole = len(tensors) == 1 and isinstance(tensors[0], Node)
    given = listed(tensors, "atleast")
    results = tuple(movement.reshape(t, shape(t.shape)) for t in given)
    return results[0] if whole else results


@public(method=False, shares=True)
def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least one axis."""
    return _each(tensors, lambda shape: shape or (1,))


@public(method=False, shares=True)
def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two axes; new ones stand in front."""
    return _each(tensors, lambda shape: (1,) * (2 - len(shape)) + shape)


@public(method=False, shares=True)
def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three axes: a vector becomes a row, a matrix gets depth 1."""

    def grown(shape: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(shape) >= 3:
            return shape
        return ((1, 1, 1), (1, *shape, 1), (*shape, 1))[len(shape)]

    return _each(tensors, grown)


@public(method=False)
def column_stack(tensors: Sequence[Node]) -> Node:
    """Tensors side by side, vectors as columns."""
    return cat(
        [t if len(t.shape) > 1 else movement.reshape(t, (product(t.shape), 1)) for t in tensors], 1
    )


@public(method=False)
def dstack(tensors: Sequence[Node]) -> Node:
    """Tensors one behind the other, along the third axis."""
    return cat([atleast_3d(t) for t in tensors], 2)


# torch's names for views that are copied instead
_COPIES = (
    "expand", "diagonal", "narrow", "permute", "split_with_sizes", "unbind", "unfold", "squeeze",
    "unsqueeze", "transpose", "t", "as_strided", "view", "split",
)  # fmt: skip
for _name in _COPIES:
    public(name=f"{_name}_copy", method=False)((TABLE.get(_name) or TABLE[f"Tensor.{_name}"]).body)
for _name in ("chunk", "split"):
    public(name=f"unsafe_{_name}")(TABLE[_name].body)


@public(method=False)
def alias_copy(input: Node) -> Node:
    """The same values in memory of their own."""
    return input
