"""Philox 4x32-10, a counter-based generator: a key and a block's number give four 32-bit words.

The constants are those of its authors; whoever writes the rounds down in another form (loop
expressions, CUDA C++) takes them from here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57  # of the two halves
GROWTH = 0x9E3779B9, 0xBB67AE85  # what the halves of the key grow by in each round
ROUNDS = 10
WORDS = 4
LOW = 0xFFFFFFFF


def blocks(key: Array, counters: Array) -> Array:
    """The words of some blocks, given by their 64-bit numbers: four each, along a last axis."""
    low, high = counters & np.uint64(LOW), counters >> np.uint64(32)
    nothing = np.zeros_like(low)
    return np.stack(rounds(key, (low, high, nothing, nothing)), axis=-1).astype(np.uint32)


def rounds(
    key: Array, words: tuple[Array, Array, Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """The ten rounds: 32-bit words of counters, held in uint64, to random words."""
    low, half = np.uint64(LOW), np.uint64(32)
    x0, x1, x2, x3 = words
    k0, k1 = key & low, key >> half
    for _ in range(ROUNDS):
        product0, product1 = (x * np.uint64(m) for x, m in zip((x0, x2), MULTIPLIERS))
        x0, x1 = (product1 >> half) ^ x1 ^ k0, product1 & low
        x2, x3 = (product0 >> half) ^ x3 ^ k1, product0 & low
        k0, k1 = ((k + np.uint64(w)) & low for k, w in zip((k0, k1), GROWTH))
    return x0, x1, x2, x3


def word(key: Array, counter: Array, word_index: Array) -> Array:
    """One word of each block, all in uint64: the first to the fourth, by the place modulo four."""
    key, counter, word_index = np.broadcast_arrays(key, counter, word_index)
    found = blocks(key, counter).astype(np.uint64)
    at = (word_index % np.uint64(WORDS)).astype(np.int64)
    return np.asarray(np.take_along_axis(found, at[..., None], axis=-1)[..., 0])
