"""Gather and scatter: elements read from, and written to, the positions in index arrays.

`gather` reads `source` at k index arrays of one shape I along k axes; the result has shape
I + the other axes. `scatter` writes updates of that same shape into a copy of `base`, so the two
are each other's transpose. Everything torch has (gather, take_along_dim, embedding, index_select,
advanced indexing) is one of them with ramps and broadcasts as further index arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ridgeline import dtypes, scalars
from ridgeline.errors import DTypeError, IndexRangeError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.origins import describe, running
from ridgeline.graph.sizes import Size
from ridgeline.ops.complex import conj
from ridgeline.ops.elementwise import IOTA, cast, full_like, iota, select
from ridgeline.ops.movement import permute, spread_all
from ridgeline.ops.reduce import kept_axes
from ridgeline.ops.values import sums
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching

Question: TypeAlias = Callable[[Array, Node], Any]  # about values, of a node for messages
WIDE_ADD = "wide_add"
_FEW = 16  # indices
_NUMPY: dict[str, Any] = {
    "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GatherAttrs(Attrs):
    """The axes of the source that the index arrays point into, in their order."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScatterAttrs(Attrs):
    """The axes that the index arrays point into, and how an update joins what is there.

    `mode` is "set" (the last update wins), "add", "prod", "max" or "min"; for kernels also
    `WIDE_ADD`: floats are added up in double precision, and rounded once.
    """

    axes: tuple[int, ...]
    mode: str


def gather(source: Node, indices: Sequence[Node], axes: Sequence[int]) -> Node:
    """The elements of `source` at the positions in `indices` along `axes`."""
    if not indices:
        return source
    check_known(source, indices, axes)
    return node(GATHER, (source, *indices), GatherAttrs(tuple(axes)))


def scatter(
    base: Node, updates: Node, indices: Sequence[Node], axes: Sequence[int], mode: str = "set"
) -> Node:
    """`base` with `updates` combined in at the positions in `indices` along `axes`."""
    check_known(base, indices, axes)
    return node(SCATTER, (base, updates, *indices), ScatterAttrs(tuple(axes), mode))


def along(index: Node, axis: int) -> tuple[Node, ...]:
    """Index arrays for all axes: `index` itself along one, ramps along the others."""
    return tuple(
        index if a == axis else iota(index.shape, a, dtypes.int64, index.type.device)
        for a in range(len(index.shape))
    )


def gather_along(source: Node, index: Node, axis: int) -> Node:
    """NumPy's take_along_axis: `index` has the source's rank."""
    return gather(source, along(index, axis), range(len(source.shape)))


def scatter_along(base: Node, updates: Node, index: Node, axis: int, mode: str = "set") -> Node:
    """The transpose of `gather_along`."""
    return scatter(base, updates, along(index, axis), range(len(base.shape)), mode)


def ramps(indices: Sequence[Node], axes: Sequence[int], base: Node) -> dict[int, int]:
    """Target axes that are indexed by one update axis itself, over all of their length."""
    found: dict[int, int] = {}
    for axis, index in zip(axes, indices):
        ramp = index.op is IOTA and index.attrs.axis not in found.values()
        if ramp and index.shape[index.attrs.axis] == base.shape[axis]:
            found[axis] = index.attrs.axis
    return found


def on_host(index: Node) -> bool:
    """True if values can be read without waiting for a device."""
    return index.buffer is not None and index.types[0].device == "cpu"


def asked(node: Node, question: Question) -> Any:
    """The answer to a question about values that the host has, or its error; None if it has not.

    Whoever wants to know whether a call would record the same again repeats the question.
    """
    if not on_host(node):
        return None
    answer = question(node.buffer.array(node.dtype, node.shape), node)
    if running.looks is not None:
        running.looks.append((node, question, answer))
    return answer


def in_range(size: Size, axis: int, negative: bool, values: Array, made: Node) -> bool:
    """`check_range` as a question."""
    return check_range(values, size, axis, made, negative)


def check_known(target: Node, indices: Sequence[Node], axes: Sequence[int]) -> None:
    """Indices whose values the host has already are checked at once, on the user's own line."""
    for index, axis in zip(indices, axes):
        asked(index, partial(in_range, target.shape[axis], axis, False))


def check_range(index: Array, size: Size, axis: int, made: Node, negative: bool = False) -> bool:
    """Raise for an index outside an axis; True where none counts from the end."""
    if not index.size or not isinstance(size, int):
        return not negative or not index.size
    if index.size <= _FEW:  # NumPy takes longer for each of these than to look at them all
        values: list[int] = index.ravel().tolist()
        low, high = min(values), max(values)
    else:
        low, high = int(index.min()), int(index.max())
    if (low >= (-size if negative else 0)) and high < size:
        return low >= 0
    line = describe(made)
    raise IndexRangeError(
        f"index {high if high >= size else low} is outside axis {axis} of size {size}",
        note=f"recorded at {line}" if line else "",
        help=f"indices run from {-size if negative else 0} to {size - 1}"
        if size
        else ("the axis has no elements"),
    )


def _picked_shape(
    target: TensorType, indices: Sequence[TensorType], axes: tuple[int, ...], what: str
) -> tuple[Size, ...]:
    """The shape of what the indices name: theirs, then the axes they leave."""
    if len(indices) != len(axes) or not axes:
        raise ShapeError(f"{what} needs one index array per axis")
    for index in indices:
        if index.dtype is not dtypes.int64:
            raise DTypeError(f"{what} needs int64 indices, got {index.dtype.name}")
        if index.shape != indices[0].shape:
            shapes = " and ".join(str(list(i.shape)) for i in indices)
            raise ShapeError(f"{what} needs index arrays of one shape, got {shapes}")
    rest = tuple(target.shape[a] for a in kept_axes(len(target.shape), axes))
    return indices[0].shape + rest


def _infer_gather(types: Sequence[TensorType], attrs: GatherAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    shape = _picked_shape(source, types[1:], attrs.axes, "gather")
    return (TensorType(shape, source.dtype, source.device),)


def _infer_scatter(types: Sequence[TensorType], attrs: ScatterAttrs) -> tuple[TensorType, ...]:
    base, updates = types[0], types[1]
    shape = _picked_shape(base, types[2:], attrs.axes, "scatter")
    if updates.shape != shape:
        raise ShapeError(f"scatter needs updates of shape {list(shape)}, got {list(updates.shape)}")
    if updates.dtype is not base.dtype:
        raise DTypeError(f"cannot scatter {updates.dtype.name} into {base.dtype.name}")
    if attrs.mode in ("max", "min") and base.dtype.is_complex:
        raise DTypeError(f"{attrs.mode} is not defined for {base.dtype.name}")
    return (base,)


def _rows(array: Array, axes: tuple[int, ...]) -> Array:
    """The array with the indexed axes in front."""
    return np.transpose(array, (*axes, *kept_axes(array.ndim, axes)))


def _gather_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    source, indices = inputs[0], inputs[1:]
    for axis, index in zip(current.attrs.axes, indices):
        check_range(index, source.shape[axis], axis, current)
    return (np.asarray(_rows(source, current.attrs.axes)[tuple(indices)]),)


def _scatter_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    base, updates, indices = inputs[0], inputs[1], tuple(inputs[2:])
    attrs = current.attrs
    for axis, index in zip(attrs.axes, indices):
        check_range(index, base.shape[axis], axis, current)
    if attrs.mode in ("add", WIDE_ADD):
        with float_errors_ignored():
            added = sums.scattered(_rows(base, attrs.axes), updates, indices)
            back = np.argsort((*attrs.axes, *kept_axes(base.ndim, attrs.axes)))
            return (scalars.cast(np.transpose(added, back), current.dtype),)
    narrow = current.dtype.kind == "float" and current.dtype.itemsize < 4
    result = base.astype(np.float32) if narrow else base.copy()
    rows = _rows(result, attrs.axes)
    if attrs.mode == "set":
        rows[indices] = updates
    else:
        with float_errors_ignored():
            joining = updates.astype(result.dtype)
            _NUMPY[attrs.mode].at(rows, indices, joining)
    return (scalars.cast(result, current.dtype),)


def _zeros_like(a: Node) -> Node:
    return full_like(a, 0)


def _gather_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, source, indices = cotangents[0], current.inputs[0], current.inputs[1:]
    nothing: list[Node | None] = [None] * len(indices)
    if ct is None:
        return [None, *nothing]
    return [scatter(_zeros_like(source), ct, indices, current.attrs.axes, "add"), *nothing]


def _gather_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    tangent = tangents[0]
    return [None if tangent is None else gather(tangent, current.inputs[1:], current.attrs.axes)]


def _scatter_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, indices, attrs = cotangents[0], current.inputs[2:], current.attrs
    nothing: list[Node | None] = [None] * len(indices)
    if ct is None:
        return [None, None, *nothing]
    if attrs.mode == "set":
        cleared = scatter(ct, _zeros_like(current.inputs[1]), indices, attrs.axes)
        return [cleared, gather(ct, indices, attrs.axes), *nothing]
    if attrs.mode == "add":
        return [ct, gather(ct, indices, attrs.axes), *nothing]
    by_base, by_updates = _weights(current)
    spread = gather(ct, indices, attrs.axes)
    return [ct * conj(by_base), spread * conj(by_updates), *nothing]


def _scatter_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    base, updates, indices, attrs = *current.inputs[:2], current.inputs[2:], current.attrs
    if tangents[0] is None and tangents[1] is None:
        return [None]
    by_base = _zeros_like(base) if tangents[0] is None else tangents[0]
    by_updates = _zeros_like(updates) if tangents[1] is None else tangents[1]
    if attrs.mode not in ("set", "add"):
        base_weight, updates_weight = _weights(current)
        by_base, by_updates = by_base * base_weight, by_updates * updates_weight
        return [scatter(by_base, by_updates, indices, attrs.axes, "add")]
    return [scatter(by_base, by_updates, indices, attrs.axes, attrs.mode)]


def _weights(current: Node) -> tuple[Node, Node]:
    """The derivatives of a product or an extreme by what was there and by the updates."""
    return _factors(current) if current.attrs.mode == "prod" else _shares(current)


def _shares(current: Node) -> tuple[Node, Node]:
    """1/n at each of the n elements equal to the extreme, 0 elsewhere."""
    base, updates, indices, axes = *current.inputs[:2], current.inputs[2:], current.attrs.axes
    dtype = current.dtype
    own = cast(base.eq(current), dtype)
    other = cast(updates.eq(gather(current, indices, axes)), dtype)
    count = scatter(own, other, indices, axes, "add")
    nobody = count.eq(0)
    safe = select(nobody, full_like(count, 1), count)
    return own / safe, other / gather(safe, indices, axes)


def _factors(current: Node) -> tuple[Node, Node]:
    """The product of the other factors, right also where factors are zero."""
    base, updates, indices, axes = *current.inputs[:2], current.inputs[2:], current.attrs.axes
    base_zero = base.eq(_zeros_like(base))
    updates_zero = updates.eq(_zeros_like(updates))
    base_filled = select(base_zero, full_like(base, 1), base)
    updates_filled = select(updates_zero, full_like(updates, 1), updates)
    product = scatter(base_filled, updates_filled, indices, axes, "prod")
    dtype = current.dtype
    zeros = scatter(cast(base_zero, dtype), cast(updates_zero, dtype), indices, axes, "add")
    return (
        _without(base_zero, base_filled, product, zeros),
        _without(
            updates_zero, updates_filled, gather(product, indices, axes),
            gather(zeros, indices, axes),
        ),
    )  # fmt: skip


def _without(is_zero: Node, factor: Node, product: Node, zeros: Node) -> Node:
    """The product without one factor, given the product of all that are not zero."""
    none = zeros.eq(0)
    only_this = is_zero & zeros.eq(1)
    at_zero = select(only_this, product, full_like(product, 0))
    return select(none, product / factor, at_zero)


def _moved(a: Node, start: int, end: int) -> Node:
    """Move one axis."""
    order = list(range(len(a.shape)))
    order.insert(end, order.pop(start))
    return permute(a, tuple(order))


def _batch_indices(indices: Sequence[Node]) -> tuple[Node, ...]:
    """Index arrays with a batch axis, and a ramp in front that keeps the elements apart."""
    first = indices[0]
    return (iota(first.shape, 0, dtypes.int64, first.type.device), *indices)


def _gather_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    source, axes = inputs[0], current.attrs.axes
    later = tuple(axis + 1 for axis in axes)
    if not any(batched[1:]):
        rank = len(inputs[1].shape)
        return [_moved(gather(source, inputs[1:], later), rank, 0)]
    indices = spread_all(inputs[1:], batched[1:], batching)
    if not batched[0]:
        return [gather(source, indices, axes)]
    return [gather(source, _batch_indices(indices), (0, *later))]


def _scatter_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    base, updates = spread_all(inputs[:2], batched[:2], batching)
    mode, later = current.attrs.mode, tuple(axis + 1 for axis in current.attrs.axes)
    if not any(batched[2:]):
        rank = len(inputs[2].shape)
        return [scatter(base, _moved(updates, 0, rank), inputs[2:], later, mode)]
    indices = spread_all(inputs[2:], batched[2:], batching)
    return [scatter(base, updates, _batch_indices(indices), (0, *later), mode)]


GATHER = Op(
    "gather", "gather", _infer_gather, _gather_value, _gather_vjp, _gather_jvp, _gather_batch,
    linear=((0,),), by_parts=True,
)  # fmt: skip
SCATTER = Op(
    "scatter",
    "own_loops",
    _infer_scatter,
    _scatter_value,
    _scatter_vjp,
    _scatter_jvp,
    _scatter_batch,
    linear=((0, 1),),
    linear_if=lambda attrs: attrs.mode in ("set", "add"),
    by_parts=True,
)
