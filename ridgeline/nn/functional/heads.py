"""Attention with several heads as functions of its weights: what `MultiheadAttention` computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError
from ridgeline.nn.functional.choose import choose
from ridgeline.tensors.public import cat, dropout, linear, matmul, pad, softmax
from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Heads:
    """How attention is split into heads, and what is put at the end of its keys and values."""

    number: int
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    dropout: float

    def attended(
        self,
        inputs: Sequence[Tensor],
        weights: Sequence[Any],
        biases: Sequence[Tensor | None],
        padding: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The joined heads [batch, queries, width], and the weights of each."""
        q, k, v = (linear(x, w, b) for x, w, b in zip(inputs, weights, biases))
        added = self._mask(q, k, padding, mask)
        k, v, added = self._extended(k, v, added)
        batch, length, width = q.shape

        def heads(t: Tensor) -> Tensor:
            split = t.reshape((batch, t.shape[1], self.number, width // self.number))
            return split.transpose(1, 2)

        scores = matmul(heads(q) / math.sqrt(width // self.number), heads(k).transpose(-2, -1))
        shares = softmax(scores if added is None else scores + added, -1)
        if self.dropout > 0:
            shares = dropout(shares, self.dropout, True)
        joined = matmul(shares, heads(v)).transpose(1, 2)
        return joined.reshape((batch, length, width)), shares

    def _mask(
        self, q: Tensor, k: Tensor, padding: Tensor | None, attention: Tensor | None
    ) -> Tensor | None:
        """What to add to the scores [batch, heads, queries, keys]; None for nothing."""
        batch, sources = q.shape[0], k.shape[1]
        parts = []
        if attention is not None:
            added = _additive(attention, q)
            if len(added.shape) == 3:
                added = added.reshape((batch, self.number, -1, sources))
            parts.append(added)
        if padding is not None:
            parts.append(_additive(padding, q).reshape((batch, 1, 1, sources)))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _extended(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The learned and the zero key and value put at the end, where there are any."""
        added = 0
        if self.bias_k is not None and self.bias_v is not None:
            shape = (k.shape[0], 1, k.shape[-1])
            k, v = cat([k, self.bias_k.expand(shape)], 1), cat([v, self.bias_v.expand(shape)], 1)
            added += 1
        if self.add_zero_attn:
            k, v = (pad(t, (0, 0, 0, 1)) for t in (k, v))
            added += 1
        return k, v, pad(mask, (0, added)) if mask is not None and added else mask


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A boolean mask, True where something is left out, as what to add to scores."""
    if mask.dtype is not dtypes.bool_:
        return mask.to(dtype=like.dtype)
    return choose(mask, -math.inf, 0.0).to(dtype=like.dtype)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention with several heads over [length, batch, width], and its weights if wanted.

    In a boolean mask True marks what is left out, as torch has it here.

    >>> x, w = rl.ones(3, 1, 4), rl.ones(12, 4)
    >>> out, weights = F.multi_head_attention_forward(
    ...     x, x, x, 4, 2, w, None, None, None, False, 0.0, rl.eye(4), None
    ... )
    >>> out.shape, weights.shape
    (ridgeline.Size([3, 1, 4]), ridgeline.Size([1, 3, 3]))
    """
    if static_k is not None or static_v is not None:
        raise BadValueError("keys and values that are projected already (static_k) are not taken")
    if query.shape[-1] != embed_dim_to_check:
        raise BadValueError(f"queries of {query.shape[-1]} numbers, not {embed_dim_to_check}")
    alone = len(query.shape) == 2
    if alone:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    joint = None if in_proj_weight is None else in_proj_weight.chunk(3)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    heads = Heads(num_heads, bias_k, bias_v, add_zero_attn, dropout_p if training else 0.0)
    result, weights = heads.attended(
        [t.transpose(0, 1) for t in (query, key, value)],
        separate if use_separate_proj_weight or joint is None else joint,
        (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3),
        key_padding_mask,
        attn_mask,
    )
    result = linear(result, out_proj_weight, out_proj_bias).transpose(0, 1)
    weights = weights.mean(1) if average_attn_weights else weights
    if alone:
        result, weights = result.squeeze(1), weights.squeeze(0)
    return result, weights if need_weights else None
