"""Attention with several heads, with torch's parameters and masks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError
from ridgeline.module_paths import unknown as _unknown
from ridgeline.nn import init
from ridgeline.nn.functional.heads import Heads
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.tensors.tensor import Tensor

__path__: list[str] = []  # `flex_attention` is beside it: see module_paths.py


class MultiheadAttention(Module):
    """Queries, keys and values projected, attended head by head, and projected back."""

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise BadValueError(
                f"embed_dim {embed_dim} must be a multiple of num_heads {num_heads}"
            )
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        joint = self.kdim == embed_dim and self.vdim == embed_dim
        shapes = {
            "q_proj_weight": None if joint else (embed_dim, embed_dim),
            "k_proj_weight": None if joint else (embed_dim, self.kdim),
            "v_proj_weight": None if joint else (embed_dim, self.vdim),
            "in_proj_weight": (3 * embed_dim, embed_dim) if joint else None,
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        for name, shape in shapes.items():
            made = None if shape is None else empty_parameter(shape, dtype, device)
            self.register_parameter(name, made)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            extra = empty_parameter((1, 1, embed_dim), dtype, device) if add_bias_kv else None
            self.register_parameter(name, extra)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Projections by Glorot's uniform distribution, biases of zero."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the attention weights if wanted.

        In a boolean mask True marks what is left out, as torch has it here.
        """
        alone = len(query.shape) == 2
        axis = 0 if self.batch_first else 1
        if alone:
            query, key, value = (t.unsqueeze(axis) for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        if not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        result, weights = self._heads().attended(
            (query, key, value), *self._projections(), key_padding_mask, attn_mask
        )
        result = self.out_proj(result)
        if not self.batch_first:
            result = result.transpose(0, 1)
        if not need_weights:
            return (result.squeeze(axis) if alone else result), None
        weights = weights.mean(1) if average_attn_weights else weights
        if alone:
            return result.squeeze(axis), weights.squeeze(0)
        return result, weights

    def _heads(self) -> Heads:
        chance = self.dropout if self.training else 0.0
        return Heads(self.num_heads, self.bias_k, self.bias_v, self.add_zero_attn, chance)

    def _projections(self) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return weights, (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)


class SDPBackend(Enum):
    """torch's ways to compute attention; here the compiler chooses."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


def sdpa_kernel(backends: Any, set_priority: bool = False) -> AbstractContextManager[None]:
    """A block in which torch chooses between ways to compute attention; the values are the same."""
    chosen = backends if isinstance(backends, list | tuple) else [backends]
    if not chosen or not all(isinstance(way, SDPBackend) for way in chosen):
        raise BadValueError(f"sdpa_kernel needs one SDPBackend or more, not {backends!r:.40}")
    return nullcontext()


__getattr__ = _unknown(__name__)
