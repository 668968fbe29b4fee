"""Attention: the op, and the composition for what the op does not take."""

from __future__ import annotations

import math

from ridgeline import dtypes
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.attention import taken
from ridgeline.nn.functional.choose import choose
from ridgeline.nn.functional.precision import widened
from ridgeline.record.values import read
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.public import arange, einsum, matmul, softmax
from ridgeline.tensors.tensor import Tensor, narrow_gradient


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q kᵀ * scale + mask) v over the last two axes.

    A boolean mask keeps where it is True, a floating one is added; a row that keeps nothing gives
    zeros. With `enable_gqa`, several query heads share each key head. Operands of 16 bits are
    multiplied as they are and summed in float32; between the products all is float32.
    """
    if is_causal and attn_mask is not None:
        raise BadValueError("attention takes a mask or is_causal=True, not both")
    factor = 1 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale)
    mask = None if attn_mask is None else read(attn_mask)
    if not dropout_p and taken(read(query), read(key), read(value), mask, enable_gqa):
        found: Tensor = FUNCTIONS["_attention"](query, key, value, attn_mask, factor, is_causal)
        return found
    if enable_gqa:
        key, value = (_shared_heads(t, query) for t in (key, value))
    own = query.dtype
    narrow = own.is_floating_point and own.itemsize < 4
    query, key, value = widened(query), widened(key), widened(value)
    scores = einsum("...qd,...kd->...qk", query, key)  # so that gradients lie as the keys do
    scores = (narrow_gradient(scores, own) if narrow else scores) * factor
    if is_causal:
        rows, columns = arange(query.shape[-2]), arange(key.shape[-2])
        attn_mask = rows.unsqueeze(-1) >= columns
    if attn_mask is None:
        weights = softmax(scores, -1)
    elif attn_mask.dtype is dtypes.bool_:
        weights = softmax(choose(attn_mask, scores, -math.inf), -1)
        if not is_causal:  # a causal row always keeps its first column
            weights = choose(attn_mask.any(-1, keepdim=True), weights, 0.0)
    else:
        weights = softmax(scores + widened(attn_mask), -1)
    if dropout_p > 0:
        weights = FUNCTIONS["dropout"](weights, dropout_p, True)
    if narrow:
        weights = widened(weights.to(own))
    return matmul(weights, value).to(own)


def _shared_heads(shared: Tensor, query: Tensor) -> Tensor:
    """Keys or values repeated so that every query head has one."""
    heads, own = int(query.shape[-3]), int(shared.shape[-3])
    if heads % own:
        raise ShapeError(f"{heads} query heads cannot share {own} key heads evenly")
    if heads == own:
        return shared
    lead, tail = tuple(shared.shape[:-3]), tuple(shared.shape[-2:])
    wide = shared.unsqueeze(-3).expand((*lead, own, heads // own, *tail))
    return wide.reshape((*lead, heads, *tail))
