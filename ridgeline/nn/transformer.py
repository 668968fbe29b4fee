"""Transformer layers and stacks, with torch's parameters, defaults and masks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from ridgeline import dtypes
from ridgeline.errors import BadValueError
from ridgeline.nn import functional, init
from ridgeline.nn.attention import MultiheadAttention
from ridgeline.nn.containers import ModuleList
from ridgeline.nn.dropout import Dropout
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.nn.normalization import LayerNorm
from ridgeline.record.modes import called
from ridgeline.tensors.public import full, triu
from ridgeline.tensors.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise BadValueError(f"activation is 'relu', 'gelu' or a function, not {activation!r}")
    function: Callable[[Tensor], Tensor] = getattr(functional, activation)
    return function


class _Layer(Module):
    """What encoder and decoder layers share: all parts, and how they are added."""

    attentions: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        self.norm_first, self.activation = norm_first, _activation(activation)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        for name in reversed(self.attentions):
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
            _put_first(self, name, attention)
        parts = range(1, len(self.attentions) + 2)
        for number in parts:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            setattr(self, f"norm{number}", norm)
        for number in parts:
            setattr(self, f"dropout{number}", Dropout(dropout))

    def _feed_forward(self, x: Tensor) -> Tensor:
        widened: Tensor = self.dropout(called(self.activation)(self.linear1(x)))
        narrowed: Tensor = self.linear2(widened)
        return narrowed

    def _added(
        self, x: Tensor, norm: Module, drop: Module, part: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """A part with its residual connection, normalised before or after."""
        if self.norm_first:
            before: Tensor = x + drop(part(norm(x)))
            return before
        after: Tensor = norm(x + drop(part(x)))
        return after


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward part."""

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            result: Tensor = self.self_attn(
                x, x, x, src_key_padding_mask, need_weights=False, attn_mask=src_mask
            )[0]
            return result

        x = self._added(src, self.norm1, self.dropout1, attend)
        return self._added(x, self.norm2, self.dropout2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's memory, and a feed-forward part."""

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            result: Tensor = self.self_attn(
                x, x, x, tgt_key_padding_mask, need_weights=False, attn_mask=tgt_mask
            )[0]
            return result

        def look(x: Tensor) -> Tensor:
            result: Tensor = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, need_weights=False,
                attn_mask=memory_mask,
            )[0]  # fmt: skip
            return result

        x = self._added(tgt, self.norm1, self.dropout1, attend)
        x = self._added(x, self.norm2, self.dropout2, look)
        return self._added(x, self.norm3, self.dropout3, self._feed_forward)


def _put_first(layer: Module, name: str, child: Module) -> None:
    """Register a child before the others, where torch's state_dict has it."""
    others = dict(layer._modules)
    layer.add_module(name, child)
    for other in others:
        layer._modules[other] = layer._modules.pop(other)


class _Stack(Module):
    """Copies of a layer, one after the other, and a last norm."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm


class TransformerEncoder(_Stack):
    """A stack of encoder layers."""

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """A stack of decoder layers."""

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        settings: tuple[Any, ...] = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, device, dtype,
        )  # fmt: skip

        def last() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings), num_encoder_layers, last()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings), num_decoder_layers, last()
        )
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        result: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )
        return result

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """A mask to add to scores: -inf above the diagonal."""
        return triu(full((sz, sz), float("-inf")), 1)
