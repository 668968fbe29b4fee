"""Attention and its gradient in NumPy; everything between operands and results is wide.

Queries come grouped, [..., heads of keys, queries of each, T, E], keys and values [..., 1, S, E].
"""

from __future__ import annotations

import math

import numpy as np

from ridgeline.float_errors import float_errors_ignored
from ridgeline.scalars import Array


def scores(q: Array, k: Array, mask: Array | None, scale: float, causal: bool) -> Array:
    """The scores of all pairs, -inf where one is hidden."""
    found: Array = q @ np.swapaxes(k, -1, -2) * q.dtype.type(scale)
    if causal:
        kept = np.tri(found.shape[-2], found.shape[-1], dtype=bool)
        return np.where(kept, found, -math.inf).astype(q.dtype)
    if mask is None:
        return found
    if mask.dtype == np.bool_:
        return np.where(mask, found, -math.inf).astype(q.dtype)
    return np.asarray(found + mask.astype(q.dtype))


def attention(found: Array, v: Array, own: np.dtype) -> tuple[Array, Array]:
    """The weighted values of scores, and the logarithm of each row's sum; +inf for an empty row."""
    with float_errors_ignored():
        top = found.max(-1, keepdims=True)
        top = np.where(top == -math.inf, 0, top).astype(found.dtype)
        grown = np.exp(found - top)
        total = grown.sum(-1, keepdims=True)
        empty = total == 0
        weights = (grown / np.where(empty, 1, total)).astype(own).astype(found.dtype)
        logarithm = np.where(empty, math.inf, top + np.log(total)).astype(found.dtype)
        return weights @ v, logarithm[..., 0]


def attention_gradient(
    found: Array,
    q: Array,
    k: Array,
    v: Array,
    lse: Array,
    delta: Array,
    ct: Array,
    scale: float,
    own: np.dtype,
) -> tuple[Array, Array, Array]:
    """The gradients by queries, keys and values; those of keys and values summed over groups."""
    with float_errors_ignored():
        weights = np.exp(found - lse[..., None])
        change = weights * (ct @ np.swapaxes(v, -1, -2) - delta[..., None]) * q.dtype.type(scale)
        weights, change = (a.astype(own).astype(q.dtype) for a in (weights, change))
        by_key = (np.swapaxes(change, -1, -2) @ q).sum(-3)
        by_value = (np.swapaxes(weights, -1, -2) @ ct).sum(-3)
        return change @ k, by_key, by_value
