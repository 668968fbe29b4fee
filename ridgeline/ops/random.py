"""Random bits: Philox 4x32-10, counter-based, so that equal keys give equal bits anywhere.

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
from ridgeline.ops.elementwise import apply, cast, full_like, iota
from ridgeline.ops.movement import broadcast_scalar, reshape
from ridgeline.scalars import Array
from ridgeline.values import philox
from ridgeline.values.philox import WORDS

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class RandomAttrs(Attrs):
    """The shape of the draw, and which word an element is given.

    It is the element's own, or the first (0) or the second (1) of the two words that belong to it
    and to its neighbour.
    """

    shape: tuple[Size, ...]
    of_two: int | None = None


def random_bits(
    key: Node, offset: Node, shape: tuple[Size, ...], of_two: int | None = None
) -> Node:
    """Independent 32-bit words: `key` and `offset` are 0-d uint64 nodes."""
    return node(RANDOM_BITS, (key, offset), RandomAttrs(shape, of_two))


def blocks(shape: Sequence[Size]) -> Size:
    """How many blocks of the stream a draw uses."""
    return (product(shape) + (WORDS - 1)) // WORDS


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    shape: Any = current.attrs.shape
    count = prod(shape)
    start = np.uint64(int(inputs[1]))
    counters = start + np.arange(-(-count // WORDS), dtype=np.uint64)
    words = philox.blocks(inputs[0], counters).reshape(-1)
    if current.attrs.of_two is not None:
        words = np.repeat(words[current.attrs.of_two :: 2], 2)
    return (words[:count].reshape(shape),)


def expand(current: Node, key: Node, offset: Node) -> Node:
    """A draw written out in elementwise ops, for the compiler."""
    shape = current.attrs.shape
    flat = (product(shape),)
    index = iota(flat, 0, dtypes.int64)
    four = full_like(index, WORDS)
    block, word_index = (cast(apply(n, index, four), dtypes.uint64) for n in ("floordiv", "mod"))
    if current.attrs.of_two == 0:
        word_index = word_index & WORDS - 2
    elif current.attrs.of_two == 1:
        word_index = word_index | 1
    keys, start = (broadcast_scalar(word, flat) for word in (key, offset))
    words = apply("philox", keys, block + start, word_index)
    return reshape(cast(words, dtypes.uint32), shape)


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """Every element reads its own place of the stream: the draw written out, over the batch."""
    stand_ins = [leaf(source.types[0]) for source in current.inputs]
    moving = {inner: a for inner, a, has in zip(stand_ins, inputs, batched) if has}
    given = [p if has else a for p, a, has in zip(stand_ins, inputs, batched)]
    ((made, _),) = batching.extended(moving).run([expand(current, *given)])
    return [made]


RANDOM_BITS = Op(
    "random_bits",
    "pointwise",
    lambda types, attrs: (TensorType(attrs.shape, dtypes.uint32, types[0].device),),
    _value,
    batch=_batch,
)
