"""Attention over nodes: which operands the op takes, and the op itself."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.functions.registry import public
from ridgeline.graph.node import Node, TensorType
from ridgeline.ops import attention as ops
from ridgeline.ops.elementwise import cast
from ridgeline.ops.movement import reshape


def taken(query: Node, key: Node, value: Node, mask: Node | None, shared: bool) -> bool:
    """True for operands that the op takes; with `shared`, heads of queries may share keys."""
    q, k, v = query.type, key.type, value.type
    if not ops.fits(q, k, v) or not (shared or q.shape[-3] == k.shape[-3]):
        return False
    return mask is None or ops.mask_fits(_mask_type(mask, q), q, k)


@public(method=False, name="_attention")
def attention(
    query: Node, key: Node, value: Node, attn_mask: Node | None, scale: float, is_causal: bool
) -> Node:
    """softmax(q kᵀ * scale + mask) v, for operands that `taken` allows."""
    mask = None
    if attn_mask is not None:
        kind = _mask_type(attn_mask, query.type)
        mask = cast(reshape(attn_mask, kind.shape), kind.dtype)
    return ops.attention(query, key, value, mask, scale, is_causal)[0]


def _mask_type(mask: Node, q: TensorType) -> TensorType:
    """A mask with all axes of the scores; a narrow one is widened unless it is as operands are."""
    narrow = mask.dtype.is_floating_point and mask.dtype.itemsize < 4
    dtype = dtypes.float32 if narrow and mask.dtype is not q.dtype else mask.dtype
    missing = len(q.shape) - len(mask.shape)
    return TensorType((*(1,) * missing, *mask.shape), dtype, q.device)
