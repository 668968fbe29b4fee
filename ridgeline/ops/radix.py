"""The parts of sorts in kernels: keys, ranks, and the passes of a radix sort.

`sort_key` maps values to unsigned integers of the same order, equal where values compare equal, so
that every sort is a sort of integers. Short rows are sorted by counting for each element those
before it (`rank`); long ones digit by digit, from the lowest to the highest (`radix_pass`), which
takes time proportional to their length. Both are stable. Where only a few elements are wanted,
`smallest` finds them first: the digits of the last of them, one after another, and then all that
come before it. On a CPU it looks at blocks of a long row before it looks at elements, on a GPU it
goes by tiles (`tiled_selection.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU
from ridgeline.dtypes import DType
from ridgeline.graph.node import PROJ, Attrs, Node, Op, TensorType, node, proj
from ridgeline.graph.sizes import Size, bounds
from ridgeline.ops.batching import leading
from ridgeline.ops.elementwise import IOTA, cast, constant, full_like, iota, select
from ridgeline.ops.gather import gather_along
from ridgeline.ops.movement import broadcast, broadcast_scalar, pad, permute, reshape, slice_
from ridgeline.ops.reduce import reduce
from ridgeline.ops.sort import SORT
from ridgeline.scalars import Array

SHORT_ROW = 256  # below, comparing all pairs in vector lanes is quicker than moving elements
_BLOCKED, _LEAST_BLOCK = 512, 4  # elements of a row, and of a block that stands for some
_FEW = 4  # a part of a row this many times smaller than it is worth finding before sorting
_PASSES = ("radix_pass", "tiled_pass")  # ops by which an order becomes another
MOST_OF_TILE = 1024  # elements that are wanted of a tile
TILE_SMALLEST_NAME = "tile_smallest"  # the op by which a part of an order is left
_LONG_ROW = 8192  # above, fewer passes pay for more counters, on a CPU: the threads of a GPU
# write what belongs together side by side only where there are few digits
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
    count = attrs.count or 0
    if few and (source.type.device == CPU or selects_by_tiles(keys, count)):
        chosen, indices = _smallest(keys, count)
        among = _sorting_order(chosen, low)
        order = gather_along(indices, cast(among, dtypes.int64), last)
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


def _smallest(keys: Node, count: int) -> tuple[Node, Node]:
    """The smallest keys of rows and where they stand, in their order.

    On a CPU, blocks of a row stand for it first, each by its smallest key: what is wanted lies in
    as many blocks as elements are wanted, those with the smallest of these keys.
    """
    length, rank = keys.shape[-1], len(keys.shape)
    block = _block(length, count) if keys.type.device == CPU and isinstance(length, int) else 0
    if not block or not isinstance(length, int):
        return _select(keys, count)
    blocks, missing = -(-length // block), -length % block
    most = constant((1 << keys.dtype.bits) - 1, keys.dtype, keys.type.device)
    none = (0,) * rank
    filled = pad(keys, none, (*none[1:], missing), value=most.attrs.value) if missing else keys
    parted = reshape(filled, (*keys.shape[:-1], blocks, block))
    _, indices = _select(reduce(parted, "min", (rank,)), count)
    wide = (*keys.shape[:-1], count, block)
    within = iota(wide, rank, dtypes.int32, keys.type.device)
    begin = broadcast(indices * block, wide, tuple(range(rank)))
    members = reshape(begin + within, (*keys.shape[:-1], count * block))
    there = members < length
    inside = select(there, members, full_like(members, 0))
    taken = gather_along(keys, cast(inside, dtypes.int64), rank - 1)
    chosen, among = _select(select(there, taken, broadcast_scalar(most, taken.shape)), count)
    return chosen, gather_along(inside, cast(among, dtypes.int64), rank - 1)


def _block(length: int, count: int) -> int:
    """Elements of a block, such that blocks and the elements of those chosen are about as many."""
    size = 1 << max(isqrt(length // count).bit_length() - 1, 0)
    return size if size >= _LEAST_BLOCK and length >= _BLOCKED else 0


def _select(keys: Node, count: int) -> tuple[Node, Node]:
    """The same by one op; where rows are short, by ranks, twice: of keys, and of indices."""
    length, last = keys.shape[-1], len(keys.shape) - 1
    if bounds(length)[1] > SHORT_ROW:
        both = node(SMALLEST, (keys,), CountAttrs(count))
        return proj(both, 0), proj(both, 1)
    zeros, ones = (0,) * (last + 1), (1,) * (last + 1)
    first = slice_(node(RANK, (keys,)), zeros, (*keys.shape[:-1], count), ones)
    order = node(RANK, (cast(first, dtypes.uint32),))
    indices = gather_along(first, cast(order, dtypes.int64), last)
    return gather_along(keys, cast(indices, dtypes.int64), last), indices


def selects_by_tiles(keys: Node, count: int) -> bool:
    """True for rows of which the threads of a GPU find some elements before one sorts them."""
    return isinstance(keys.shape[-1], int) and count <= MOST_OF_TILE


def _sorting_order(keys: Node, low: int) -> Node:
    """The permutation that sorts rows of keys whose lowest bits are all alike."""
    longest = bounds(keys.shape[-1])[1]
    if longest <= SHORT_ROW:
        return node(RANK, (keys,))
    total = keys.dtype.bits
    digit = 11 if total > 16 and longest > _LONG_ROW and keys.type.device == CPU else 8
    order = iota(keys.shape, len(keys.shape) - 1, dtypes.int32, keys.type.device)
    for shift in range(low, total, digit):
        both = node(RADIX, (keys, order), DigitAttrs(shift, min(digit, total - shift)))
        keys, order = proj(both, 0), proj(both, 1)
    return order


def source_length(index: Node) -> Size | None:
    """The length of the rows from which sorted or chosen elements came, None for other nodes."""
    while index.op is PROJ and index.inputs[0].op.name == TILE_SMALLEST_NAME:
        index = index.inputs[0].inputs[1]
        if index.op is IOTA:
            return index.shape[-1]
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
