"""Movement ops: they rename indices and compute nothing.

reshape, permute, broadcast, slice, pad and concat. The compiler turns all of them but concat into
index arithmetic, so a view costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.errors import AxisError, DTypeError, ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, hashed_once, node
from ridgeline.graph.sizes import Size, product
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class ReshapeAttrs(Attrs):
    """The new shape, with as many elements as the old one."""

    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class PermuteAttrs(Attrs):
    """Output axis i is input axis `order[i]`."""

    order: tuple[int, ...]


@hashed_once
@dataclass(frozen=True, slots=True)
class BroadcastAttrs(Attrs):
    """Input axis i lies along output axis `axes[i]`; it has that size, or size 1."""

    shape: tuple[Size, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceAttrs(Attrs):
    """Along axis d, output index i reads input index `starts[d] + i * steps[d]`."""

    starts: tuple[Size, ...]
    sizes: tuple[Size, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PadAttrs(Attrs):
    """Elements of `value` put before, after and between the elements along each axis."""

    low: tuple[Size, ...]
    high: tuple[Size, ...]
    interior: tuple[int, ...]
    value: float
    sign: float = field(init=False, repr=False)  # 0.0 == -0.0, and yet they are two values

    def __post_init__(self) -> None:
        object.__setattr__(self, "sign", math.copysign(1.0, self.value))


@dataclass(frozen=True, slots=True)
class ConcatAttrs(Attrs):
    """The axis along which the inputs follow one another."""

    axis: int


def reshape(a: Node, shape: tuple[Size, ...]) -> Node:
    """The same elements in row-major order under another shape."""
    same = len(a.shape) == len(shape) and a.shape == shape
    return a if same else node(RESHAPE, (a,), ReshapeAttrs(shape))


def permute(a: Node, order: tuple[int, ...]) -> Node:
    """Axes in another order."""
    identity = order == tuple(range(len(order)))
    return a if identity else node(PERMUTE, (a,), PermuteAttrs(order))


def broadcast(a: Node, shape: tuple[Size, ...], axes: tuple[int, ...]) -> Node:
    """Repeat along new axes and along axes of size 1."""
    if axes == tuple(range(len(shape))) and a.shape == shape:
        return a
    return node(BROADCAST, (a,), _broadcast_attrs(shape, axes))


def broadcast_scalar(a: Node, shape: tuple[Size, ...]) -> Node:
    """Repeat a zero-dimensional node over a shape."""
    return node(BROADCAST, (a,), _broadcast_attrs(shape, ())) if shape else a


# made so often that even making the attributes would count
_broadcast_attrs = lru_cache(maxsize=4096)(BroadcastAttrs)


def broadcast_to(a: Node, shape: tuple[Size, ...]) -> Node:
    """NumPy's broadcasting: axes are aligned from the right."""
    shift = len(shape) - len(a.shape)
    return broadcast(a, shape, tuple(range(shift, len(shape))))


def broadcast_shapes(*shapes: tuple[Size, ...]) -> tuple[Size, ...]:
    """The common shape, by torch's rules: axes align from the right, size 1 stretches."""
    first = shapes[0]
    if all(len(shape) == len(first) and shape == first for shape in shapes[1:]):
        return first
    rank = max(map(len, shapes))
    result: list[Size] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == result[axis]:
                continue
            if result[axis] != 1:
                raise _misfit(shapes, axis - rank, result[axis], size)
            result[axis] = size
    return tuple(result)


def _misfit(shapes: Sequence[tuple[Size, ...]], axis: int, left: Size, right: Size) -> ShapeError:
    listed = " and ".join(str(list(shape)) for shape in shapes)
    return ShapeError(
        f"shapes {listed} cannot be broadcast together: axis {axis} is {left} in one and {right} "
        "in the other",
        help="sizes must be equal, or one of them 1; unsqueeze() adds an axis of size 1",
    )


def stretch(node: Node, shape: tuple[Size, ...]) -> Node:
    """A node repeated to a shape that it broadcasts to."""
    own = node.types[0].shape
    if len(own) == len(shape) and own == shape:
        return node
    return broadcast_to(node, shape) if own else broadcast_scalar(node, shape)


def slice_(
    a: Node, starts: tuple[Size, ...], sizes: tuple[Size, ...], steps: tuple[int, ...]
) -> Node:
    """A regular sub-grid; steps may be negative."""
    whole = sizes == a.shape and not any(starts) and all(s == 1 for s in steps)
    return a if whole else node(SLICE, (a,), SliceAttrs(starts, sizes, steps))


def pad(
    a: Node,
    low: tuple[Size, ...],
    high: tuple[Size, ...],
    interior: tuple[int, ...] | None = None,
    value: float = 0.0,
) -> Node:
    """Put `value` around and between the elements."""
    between = interior or (0,) * len(low)
    if not any(low) and not any(high) and not any(between):
        return a
    return node(PAD, (a,), PadAttrs(low, high, between, value))


def concat(parts: Sequence[Node], axis: int) -> Node:
    """Join along an existing axis."""
    return parts[0] if len(parts) == 1 else node(CONCAT, parts, ConcatAttrs(axis))


def _infer_reshape(types: Sequence[TensorType], attrs: ReshapeAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if product(source.shape) != product(attrs.shape):
        raise ShapeError(
            f"cannot view shape {list(source.shape)} ({product(source.shape)} elements) "
            f"as {list(attrs.shape)} ({product(attrs.shape)} elements)"
        )
    return (TensorType(attrs.shape, source.dtype, source.device),)


def _infer_permute(types: Sequence[TensorType], attrs: PermuteAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if sorted(attrs.order) != list(range(len(source.shape))):
        raise AxisError(f"{list(attrs.order)} is not an order of {len(source.shape)} axes")
    shape = tuple(source.shape[axis] for axis in attrs.order)
    return (TensorType(shape, source.dtype, source.device),)


def _infer_broadcast(types: Sequence[TensorType], attrs: BroadcastAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    if not attrs.axes:
        return _repeated(attrs, source.dtype, source.device)
    for size, axis in zip(source.shape, attrs.axes):
        if not 0 <= axis < len(attrs.shape) or size not in (1, attrs.shape[axis]):
            raise ShapeError(f"cannot broadcast {list(source.shape)} to {list(attrs.shape)}")
    return (TensorType(attrs.shape, source.dtype, source.device),)


@lru_cache(maxsize=1024)
def _repeated(attrs: BroadcastAttrs, dtype: DType, device: str) -> tuple[TensorType, ...]:
    # one object for all numbers that are repeated alike
    return (TensorType(attrs.shape, dtype, device),)


def _infer_slice(types: Sequence[TensorType], attrs: SliceAttrs) -> tuple[TensorType, ...]:
    return (TensorType(attrs.sizes, types[0].dtype, types[0].device),)


def _infer_pad(types: Sequence[TensorType], attrs: PadAttrs) -> tuple[TensorType, ...]:
    source = types[0]
    shape = tuple(
        low + high + size + (_gaps(size) * between if between else 0)
        for size, low, high, between in zip(source.shape, attrs.low, attrs.high, attrs.interior)
    )
    return (TensorType(shape, source.dtype, source.device),)


def _gaps(size: Size) -> Size:
    return max(size - 1, 0) if isinstance(size, int) else size - 1


def _infer_concat(types: Sequence[TensorType], attrs: ConcatAttrs) -> tuple[TensorType, ...]:
    first, axis = types[0], attrs.axis
    for other in types[1:]:
        if other.dtype is not first.dtype:
            raise DTypeError(f"cannot join {first.dtype.name} and {other.dtype.name}")
        if _without(other.shape, axis) != _without(first.shape, axis):
            raise ShapeError(
                f"cannot join shapes {list(first.shape)} and {list(other.shape)} along axis {axis}"
            )
    total: Size = sum((t.shape[axis] for t in types[1:]), first.shape[axis])
    shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
    return (TensorType(shape, first.dtype, first.device),)


def _without(shape: tuple[Size, ...], axis: int) -> tuple[Size, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _broadcast_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs, source = current.attrs, inputs[0]
    if not source.ndim:  # what `np.broadcast_to` gives, in a tenth of its time
        repeated = np.ndarray(attrs.shape, source.dtype, source, 0, (0,) * len(attrs.shape))
        repeated.flags.writeable = False
        return (repeated,)
    lengths = [1] * len(attrs.shape)
    for size, axis in zip(source.shape, attrs.axes):
        lengths[axis] = size
    in_order = np.transpose(source, np.argsort(attrs.axes)) if attrs.axes else source
    return (np.broadcast_to(in_order.reshape(lengths), attrs.shape),)


def _slice_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs = current.attrs
    picks = []
    for start, size, step in zip(attrs.starts, attrs.sizes, attrs.steps):
        end = start + size * step
        picks.append(slice(start, end if end >= 0 else None, step) if size else slice(0, 0))
    return (inputs[0][tuple(picks)],)


def _pad_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Elements are laid out with all margins; then what margins below zero cut off goes."""
    attrs, source = current.attrs, inputs[0]
    spread = [size + max(size - 1, 0) * gap for size, gap in zip(source.shape, attrs.interior)]
    before, after = ([max(width, 0) for width in side] for side in (attrs.low, attrs.high))
    result = np.full(list(map(sum, zip(before, spread, after))), attrs.value, source.dtype)
    result[tuple(slice(b, b + s, gap + 1) for b, s, gap in zip(before, spread, attrs.interior))] = (
        source
    )
    kept = [(max(-low, 0), size) for low, size in zip(attrs.low, current.shape)]
    return (result[tuple(slice(start, start + size) for start, size in kept)],)


def _along(current: Node, source: Node) -> Node:
    """The movement of `current`, applied to another operand."""
    return node(current.op, (source,), current.attrs)


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    return [None if tangents[0] is None else _along(current, tangents[0])]


def _pad_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    attrs = current.attrs
    tangent = tangents[0]
    return [None if tangent is None else pad(tangent, attrs.low, attrs.high, attrs.interior)]


def _reshape_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else reshape(ct, current.inputs[0].shape)]


def _permute_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, order = cotangents[0], current.attrs.order
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    return [None if ct is None else permute(ct, inverse)]


def _broadcast_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs, source = cotangents[0], current.attrs, current.inputs[0]
    if ct is None:
        return [None]
    kept = [axis for size, axis in zip(source.shape, attrs.axes) if size == attrs.shape[axis]]
    summed = ct.sum(tuple(a for a in range(len(attrs.shape)) if a not in kept))
    # the axes that remain stand in output order; put them in the input's order
    order = tuple(sorted(kept).index(axis) for axis in kept)
    return [reshape(permute(summed, order), source.shape)]


def _slice_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs, source = cotangents[0], current.attrs, current.inputs[0]
    if ct is None:
        return [None]
    starts: list[Size] = []
    flips: list[int] = []
    for start, size, step in zip(attrs.starts, attrs.sizes, attrs.steps):
        starts.append(start if step > 0 else start + (size - 1) * step)
        flips.append(1 if step > 0 else -1)
    origin = tuple(0 if f > 0 else s - 1 for f, s in zip(flips, attrs.sizes))
    upright = slice_(ct, origin, attrs.sizes, tuple(flips))
    steps = tuple(abs(s) for s in attrs.steps)
    high: list[Any] = [
        full - (first + (size - 1) * step + 1) if size else full
        for full, first, size, step in zip(source.shape, starts, attrs.sizes, steps)
    ]
    low = tuple(first if size else 0 for first, size in zip(starts, attrs.sizes))
    return [pad(upright, low, tuple(high), tuple(s - 1 for s in steps))]


def _pad_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs, source = cotangents[0], current.attrs, current.inputs[0]
    if ct is None:
        return [None]
    return [slice_(ct, attrs.low, source.shape, tuple(b + 1 for b in attrs.interior))]


def _concat_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, axis = cotangents[0], current.attrs.axis
    parts: list[Node | None] = []
    start: Size = 0
    for source in current.inputs:
        rank = len(source.shape)
        starts = tuple(start if a == axis else 0 for a in range(rank))
        parts.append(None if ct is None else slice_(ct, starts, source.shape, (1,) * rank))
        start = start + source.shape[axis]
    return parts


def _concat_jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    if all(t is None for t in tangents):
        return [None]
    filled = [i.full_like(0) if t is None else t for t, i in zip(tangents, current.inputs)]
    return [concat(filled, current.attrs.axis)]


def spread(a: Node, size: Size) -> Node:
    """The same value for every element of the batch."""
    axes: Sequence[int] = range(len(a.shape))
    source = a
    if a.op is BROADCAST:  # one broadcast instead of two, so that literals stay easy to see
        source, axes = a.inputs[0], a.attrs.axes
    return broadcast(source, (size, *a.shape), tuple(axis + 1 for axis in axes))


def spread_all(
    inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> tuple[Node, ...]:
    """All inputs with the new axis."""
    return tuple(a if has else spread(a, batching.size) for a, has in zip(inputs, batched))


def _later(axes: Sequence[int]) -> tuple[int, ...]:
    """Axes behind one more leading axis."""
    return tuple(axis + 1 for axis in axes)


def _reshape_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    return [reshape(inputs[0], (batching.size, *current.shape))]


def _permute_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    return [permute(inputs[0], (0, *_later(current.attrs.order)))]


def _broadcast_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    return [broadcast(inputs[0], (batching.size, *current.shape), (0, *_later(current.attrs.axes)))]


def _slice_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    attrs = current.attrs
    sizes = (batching.size, *attrs.sizes)
    return [slice_(inputs[0], (0, *attrs.starts), sizes, (1, *attrs.steps))]


def _pad_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    attrs = current.attrs
    low, high, between = (0, *attrs.low), (0, *attrs.high), (0, *attrs.interior)
    return [pad(inputs[0], low, high, between, attrs.value)]


def _concat_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    return [concat(spread_all(inputs, batched, batching), current.attrs.axis + 1)]


RESHAPE = Op(
    "reshape", "movement", _infer_reshape,
    lambda current, inputs: (inputs[0].reshape(current.attrs.shape),), _reshape_vjp, _jvp,
    _reshape_batch, by_parts=True,
)  # fmt: skip
PERMUTE = Op(
    "permute", "movement", _infer_permute,
    lambda current, inputs: (np.transpose(inputs[0], current.attrs.order),), _permute_vjp, _jvp,
    _permute_batch, by_parts=True,
)  # fmt: skip
BROADCAST = Op(
    "broadcast", "movement", _infer_broadcast, _broadcast_value, _broadcast_vjp, _jvp,
    _broadcast_batch, by_parts=True,
)  # fmt: skip
SLICE = Op(
    "slice", "movement", _infer_slice, _slice_value, _slice_vjp, _jvp, _slice_batch, by_parts=True
)
PAD = Op("pad", "movement", _infer_pad, _pad_value, _pad_vjp, _pad_jvp, _pad_batch)
CONCAT = Op(
    "concat", "movement", _infer_concat,
    lambda current, inputs: (np.concatenate(inputs, current.attrs.axis),), _concat_vjp, _concat_jvp,
    _concat_batch, by_parts=True,
)  # fmt: skip
