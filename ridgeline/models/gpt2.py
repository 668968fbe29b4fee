"""GPT-2: learned positions, LayerNorm before each part, GELU, the embedding's table as head."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline import nn
from ridgeline.models.language import LanguageModel
from ridgeline.models.pretrained import ModelConfig


@dataclass(frozen=True)
class GPT2Config(ModelConfig):
    """Settings, with the defaults of the smallest published model."""

    model_type: ClassVar[str] = "gpt2"
    prefixes: ClassVar = {"GPT2LMHeadModel": "transformer.", "GPT2Model": ""}
    layers: ClassVar[str] = "n_layer"
    fixed: ClassVar = {
        "add_cross_attention": False, "reorder_and_upcast_attn": False,
        "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
        "tie_word_embeddings": True,
    }  # fmt: skip

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02


CONFIGURATIONS = {
    "small": GPT2Config(),
    "medium": GPT2Config(n_embd=1024, n_layer=24, n_head=16),
    "large": GPT2Config(n_embd=1280, n_layer=36, n_head=20),
    "xl": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
}


class GPT2(LanguageModel):
    """GPT-2, or a model like it of any size."""

    config_type = GPT2Config
    config: GPT2Config

    def __init__(self, config: GPT2Config | None = None, **settings: object) -> None:
        config = replace(config or GPT2Config(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
        into_sum = config.initializer_range / math.sqrt(2 * config.n_layer)
        for block in self.blocks:
            for layer in (block.attention.output, block.feed_forward.down):
                nn.init.normal_(layer.weight, 0.0, into_sum)
