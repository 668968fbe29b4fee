"""Random bits: Philox 4x32-10, counter-based, so that the same key gives the same bits anywhere.

The stream of a key is a sequence of blocks of four 32-bit words. Element i of a draw is word i % 4
of block `offset + i // 4`; a draw of n elements therefore uses ceil(n / 4) blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.node import Attrs, Node, Op, TensorType, leaf, node
from ridgeline.graph.sizes import Size, product
from ridgeline.ops.elementwise import apply, cast, full_like, iota, select
from ridgeline.ops.movement import broadcast_scalar, reshape
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.passes.batch import Batching

_M0, _M1 = 0xD2511F53, 0xCD9E8D57  # multipliers of the two halves
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # what the key grows by in each round
ROUNDS = 10
WORDS = 4
_LOW = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class RandomAttrs(Attrs):
    """The shape of the draw."""

    shape: tuple[Size, ...]


def random_bits(key: Node, offset: Node, shape: tuple[Size, ...]) -> Node:
    """Independent 32-bit words: `key` and `offset` are 0-d uint64 nodes."""
    return node(RANDOM_BITS, (key, offset), RandomAttrs(shape))


def blocks(shape: Sequence[Size]) -> Size:
    """How many blocks of the stream a draw uses."""
    return (product(shape) + (WORDS - 1)) // WORDS


def philox(key: int, counters: Array) -> Array:
    """The words of some blocks, given by their 64-bit numbers: one row of four each."""
    low, high = counters & np.uint64(_LOW), counters >> np.uint64(32)
    nothing = np.zeros_like(low)
    return np.stack(rounds(key, (low, high, nothing, nothing)), axis=-1).astype(np.uint32)


def rounds(key: int, words: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
    """The ten rounds: 32-bit words of counters, held in uint64, to random words."""
    x0, x1, x2, x3 = words
    k0, k1 = key & _LOW, key >> 32
    low = np.uint64(_LOW)
    for _ in range(ROUNDS):
        product0, product1 = x0 * np.uint64(_M0), x2 * np.uint64(_M1)
        x0 = (product1 >> np.uint64(32)) ^ x1 ^ np.uint64(k0)
        x1 = product1 & low
        x2 = (product0 >> np.uint64(32)) ^ x3 ^ np.uint64(k1)
        x3 = product0 & low
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return x0, x1, x2, x3


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    shape: Any = current.attrs.shape
    count = prod(shape)
    start = np.uint64(int(inputs[1]))
    counters = start + np.arange(-(-count // WORDS), dtype=np.uint64)
    words = philox(int(inputs[0]), counters).reshape(-1)[:count]
    return (words.reshape(shape),)


def expand(current: Node, key: Node, offset: Node) -> Node:
    """A draw written out in elementwise ops, for the compiler."""
    shape = current.attrs.shape
    flat = (product(shape),)
    index = iota(flat, 0, dtypes.uint64)
    block = apply("add", apply("shr", index, full_like(index, 2)), broadcast_scalar(offset, flat))
    lane = cast(apply("and", index, full_like(index, 3)), dtypes.uint32)
    keys = broadcast_scalar(key, flat)
    x0, x1 = _halves(block)
    k0, k1 = _halves(keys)
    zero = full_like(x0, 0)
    x2, x3 = zero, zero
    for _ in range(ROUNDS):
        m0, m1 = full_like(x0, _M0), full_like(x0, _M1)
        high0, low0 = apply("mulhi", x0, m0), apply("mul", x0, m0)
        high1, low1 = apply("mulhi", x2, m1), apply("mul", x2, m1)
        x0 = apply("xor", apply("xor", high1, x1), k0)
        x1 = low1
        x2 = apply("xor", apply("xor", high0, x3), k1)
        x3 = low0
        k0 = apply("add", k0, full_like(k0, _W0))
        k1 = apply("add", k1, full_like(k1, _W1))
    result = x3
    for number, word in ((2, x2), (1, x1), (0, x0)):
        result = select(apply("eq", lane, full_like(lane, number)), word, result)
    return reshape(result, shape)


def _halves(words: Node) -> tuple[Node, Node]:
    """The low and the high 32 bits."""
    low = cast(apply("and", words, full_like(words, _LOW)), dtypes.uint32)
    return low, cast(apply("shr", words, full_like(words, 32)), dtypes.uint32)


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """Every element reads its own place of the stream: the draw written out, over the batch."""
    places = [leaf(source.types[0]) for source in current.inputs]
    moving = {place: a for place, a, has in zip(places, inputs, batched) if has}
    given = [p if has else a for p, a, has in zip(places, inputs, batched)]
    ((made, _),) = batching.extended(moving).run([expand(current, *given)])
    return [made]


RANDOM_BITS = Op(
    "random_bits",
    "pointwise",
    lambda types, attrs: (TensorType(attrs.shape, dtypes.uint32, types[0].device),),
    _value,
    batch=_batch,
)
