"""GPT-2: learned positions, LayerNorm before each part, GELU, the embedding's table as head."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline import nn
from ridgeline.models.language import LanguageModel
from ridgeline.models.pretrained import Config, Stored, same
from ridgeline.models.transformer import Attention, Block, FeedForward, activation, initialise
from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True)
class GPT2Config(Config):
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
    ignored = r"\.attn\.(masked_)?bias$"  # the causal mask, which old files hold
    config: GPT2Config

    def __init__(self, config: GPT2Config | None = None, **settings: object) -> None:
        config = replace(config or GPT2Config(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
        width, self.context = config.n_embd, config.n_positions
        self.tokens = nn.Embedding(config.vocab_size, width)
        self.positions = nn.Embedding(config.n_positions, width)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(width, config.layer_norm_epsilon)
        self.head = None
        initialise(self, config.initializer_range)
        into_sum = config.initializer_range / math.sqrt(2 * config.n_layer)
        for block in self.blocks:
            for layer in (block.attention.output, block.feed_forward.down):
                nn.init.normal_(layer.weight, 0.0, into_sum)

    def embedded(self, tokens: Tensor, places: Tensor) -> Tensor:
        result: Tensor = self.drop(self.tokens(tokens) + self.positions(places))
        return result

    def stored(self) -> Iterator[Stored]:
        prefix = self.config.prefix
        for theirs, ours in (("wte", "tokens"), ("wpe", "positions")):
            yield from same({prefix + theirs: ours}, ("weight",))
        yield from same({f"{prefix}ln_f": "norm"})
        for number in range(self.config.n_layer):
            theirs, ours = f"{prefix}h.{number}", f"blocks.{number}"
            yield from same(
                {f"{theirs}.ln_1": f"{ours}.attention_norm",
                 f"{theirs}.ln_2": f"{ours}.feed_forward_norm"}
            )  # fmt: skip
            yield from _products(f"{theirs}.attn.c_attn", ours, "query", "key", "value")
            yield from _products(f"{theirs}.attn.c_proj", ours, "output")
            for name, layer in (("c_fc", "up"), ("c_proj", "down")):
                for ending in ("weight", "bias"):
                    inner = (f"{ours}.feed_forward.{layer}.{ending}",)
                    yield Stored(f"{theirs}.mlp.{name}.{ending}", inner, ending == "weight")


def _products(theirs: str, ours: str, *layers: str) -> Iterator[Stored]:
    """Linear layers of attention that files hold side by side, weights transposed."""
    for ending in ("weight", "bias"):
        members = tuple(f"{ours}.attention.{layer}.{ending}" for layer in layers)
        yield Stored(f"{theirs}.{ending}", members, ending == "weight")


def _block(config: GPT2Config) -> Block:
    width, eps = config.n_embd, config.layer_norm_epsilon
    return Block(
        Attention(width, config.n_head, dropout=config.attn_pdrop),
        FeedForward(width, config.n_inner or 4 * width, activation(config.activation_function)),
        lambda: nn.LayerNorm(width, eps),
        dropout=config.resid_pdrop,
    )
