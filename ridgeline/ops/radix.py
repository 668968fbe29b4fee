"""What a sort is made of in kernels: keys, ranks, and the passes of a radix sort.

`sort_key` maps values to unsigned integers of the same order, equal where values compare equal, so
that every sort is a sort of integers. Short rows are sorted by counting for each element those
before it (`rank`); long ones digit by digit, from the lowest to the highest (`radix_pass`), which
takes time proportional to their length. Both are stable. Where only a few elements are wanted,
`smallest` finds them first: the digits of the last of them, one after another, and then all that
come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.graph.node import PROJ, Attrs, Node, Op, TensorType, node, proj
from ridgeline.graph.sizes import Size, bounds
from ridgeline.ops.batching import leading
from ridgeline.ops.elementwise import cast, iota
from ridgeline.ops.gather import gather_along
from ridgeline.ops.movement import permute, slice_
from ridgeline.ops.sort import SORT
from ridgeline.scalars import Array

SHORT_ROW = 256  # below, comparing all pairs in vector lanes is quicker than moving elements
_FEW = 4  # a part of a row this many times smaller than it is worth finding before sorting
_PASSES = ("radix_pass", "tiled_pass")  # ops by which an order becomes another
_LONG_ROW = 8192  # above, fewer passes pay for more counters
_ZERO_BITS = {dtypes.float16: 13, dtypes.bfloat16: 16}  # that every value has as a float32
_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


@dataclass(frozen=True, slots=True)
class KeyAttrs(Attrs):
    """Whether the largest value has the smallest key."""

    descending: bool


@dataclass(frozen=True, slots=True)
class DigitAttrs(Attrs):
    """Which bits of the keys a pass sorts by."""

    shift: int
    bits: int


@dataclass(frozen=True, slots=True)
class CountAttrs(Attrs):
    """How many elements are wanted."""

    count: int


def key_type(dtype: DType) -> DType:
    """The unsigned type of a value's width; half-precision floats are sorted as float32."""
    return _UNSIGNED[4 if dtype.kind == "float" and dtype.itemsize == 2 else dtype.itemsize]


def _key_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    (array,) = inputs
    source, unsigned = current.inputs[0].dtype, current.dtype
    if source.kind == "float" and source.itemsize < 4:
        array = array.astype(np.float32)
    top = np.array(1 << (unsigned.bits - 1), unsigned.numpy)
    if source.kind == "float":
        zeros = np.where(array == 0, np.zeros((), array.dtype), array)  # one key for both zeros
        bits = np.ascontiguousarray(zeros).view(unsigned.numpy)
        keys = np.where((bits & top) != 0, ~bits, bits | top)
        keys = np.where(array != array, ~np.zeros((), unsigned.numpy), keys)  # NaN comes last
    elif source.kind == "int":
        keys = np.ascontiguousarray(array).view(unsigned.numpy) ^ top
    else:
        keys = array.astype(unsigned.numpy)
    return (np.asarray(~keys if current.attrs.descending else keys, unsigned.numpy),)


def _rank_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (np.argsort(inputs[0], axis=-1, kind="stable").astype(np.int32),)


def radix_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Keys and order after a pass."""
    keys, order = inputs
    attrs = current.attrs
    digits = (keys >> keys.dtype.type(attrs.shift)) & keys.dtype.type((1 << attrs.bits) - 1)
    sorted_by = np.argsort(digits, axis=-1, kind="stable")
    return np.take_along_axis(keys, sorted_by, -1), np.take_along_axis(order, sorted_by, -1)


def _smallest_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    (keys,) = inputs
    order = np.argsort(keys, axis=-1, kind="stable")[..., : current.attrs.count]
    chosen = np.sort(order, axis=-1)
    return np.take_along_axis(keys, chosen, -1), chosen.astype(np.int32)


def _infer_smallest(types: Sequence[TensorType], attrs: CountAttrs) -> tuple[TensorType, ...]:
    shape = (*types[0].shape[:-1], attrs.count)
    device = types[0].device
    return TensorType(shape, types[0].dtype, device), TensorType(shape, dtypes.int32, device)


SORT_KEY = Op(
    "sort_key",
    "pointwise",
    lambda types, attrs: (TensorType(types[0].shape, key_type(types[0].dtype), types[0].device),),
    _key_value,
    batch=leading,
)
RANK = Op(
    "rank",
    "own_loops",
    lambda types, attrs: (TensorType(types[0].shape, dtypes.int32, types[0].device),),
    _rank_value,
    batch=leading,
)
RADIX = Op("radix_pass", "own_loops", lambda types, attrs: tuple(types), radix_value, batch=leading)
SMALLEST = Op("smallest", "own_loops", _infer_smallest, _smallest_value, batch=leading)


def expand(current: Node, source: Node) -> tuple[Node, Node]:
    """A sort written out in keys, ranks or radix passes, and a gather."""
    attrs = current.attrs
    axis, last = attrs.axis, len(source.shape) - 1
    turn = (*(a for a in range(last + 1) if a != axis), axis)
    rows = permute(source, turn) if axis != last else source
    if source.dtype.kind == "float" and source.dtype.itemsize == 1:
        rows = cast(rows, dtypes.float16)  # which holds every 8-bit float
    keys = node(SORT_KEY, (rows,), KeyAttrs(attrs.descending))
    low = _ZERO_BITS.get(source.dtype, 0)
    length = bounds(rows.shape[-1])[0]
    few = attrs.count is not None and 0 < _FEW * attrs.count <= length and length > SHORT_ROW
    if few and source.type.device == CPU:  # the threads of a GPU sort a row before one finds them
        both = node(SMALLEST, (keys,), CountAttrs(attrs.count or 0))
        among = _sorting_order(proj(both, 0), low)
        order = gather_along(proj(both, 1), cast(among, dtypes.int64), last)
    else:
        order = _sorting_order(keys, low)
        if attrs.count is not None:
            sizes = (*rows.shape[:-1], attrs.count)
            order = slice_(order, (0,) * (last + 1), sizes, (1,) * (last + 1))
    order = cast(order, dtypes.int64)
    if axis != last:
        back = tuple(turn.index(a) for a in range(last + 1))
        order = permute(order, back)
    return gather_along(source, order, axis), order


def _sorting_order(keys: Node, low: int) -> Node:
    """The permutation that sorts rows of keys whose lowest bits are all alike."""
    longest = bounds(keys.shape[-1])[1]
    if longest <= SHORT_ROW:
        return node(RANK, (keys,))
    total = keys.dtype.bits
    digit = 11 if total > 16 and longest > _LONG_ROW else 8
    order = iota(keys.shape, len(keys.shape) - 1, dtypes.int32, keys.type.device)
    for shift in range(low, total, digit):
        both = node(RADIX, (keys, order), DigitAttrs(shift, min(digit, total - shift)))
        keys, order = proj(both, 0), proj(both, 1)
    return order


def source_length(index: Node) -> Size | None:
    """The length of the rows from which sorted or chosen elements came, None for other nodes."""
    if index.op is PROJ and index.inputs[0].op is SMALLEST and index.attrs.output == 1:
        return index.inputs[0].inputs[0].shape[-1]
    return index.shape[-1] if _is_permutation(index) else None


def _is_permutation(index: Node) -> bool:
    while index.op is PROJ and index.inputs[0].op.name in _PASSES and index.attrs.output == 1:
        index = index.inputs[0].inputs[1]
        if index.op is not PROJ:
            return True
    return index.op is RANK


def sorts(current: Node) -> bool:
    """True for a sort that kernels can do: all but those of rows beyond 32-bit places."""
    return current.op is SORT and bounds(current.inputs[0].shape[current.attrs.axis])[1] < 1 << 31
