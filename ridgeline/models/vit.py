"""ViT: an image as a row of patches, read by a transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from ridgeline import nn
from ridgeline.models.names import Stored
from ridgeline.models.parts import Parts
from ridgeline.models.pretrained import Config, Pretrained, numbered, same
from ridgeline.models.transformer import Block, Pass, initialise
from ridgeline.tensors.public import cat, zeros
from ridgeline.tensors.tensor import Tensor

CLASSIFIER, MODEL = "ViTForImageClassification", "ViTModel"


@dataclass(frozen=True)
class ViTConfig(Config):
    """Settings, with the defaults of the published base model."""

    model_type: ClassVar[str] = "vit"
    prefixes: ClassVar = {CLASSIFIER: "vit.", MODEL: ""}
    fixed: ClassVar = {"pooler_act": "tanh"}

    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    qkv_bias: bool = True
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    id2label: dict[str, str] = field(default_factory=partial(numbered, 2))


class ViT(Pretrained):
    """Images [n, channels, size, size] in; scores of the classes out, or hidden states.

    As `ViTModel` it gives the hidden states and a summary of the first one.
    """

    config_type = ViTConfig
    ignored = r"pooler\."
    config: ViTConfig

    def __init__(self, config: ViTConfig | None = None, **settings: object) -> None:
        config = replace(config or ViTConfig(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
        width, side = config.hidden_size, config.image_size // config.patch_size
        self.patches = nn.Conv2d(config.num_channels, width, config.patch_size, config.patch_size)
        self.summary = nn.Parameter(zeros((1, 1, width)))
        self.positions = nn.Parameter(zeros((1, side * side + 1, width)))
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(width, config.layer_norm_eps)
        classifies = config.architecture == CLASSIFIER
        self.classifier = nn.Linear(width, config.labels) if classifies else None
        self.pooler = None if classifies else nn.Linear(width, width)
        initialise(self, config.initializer_range)
        for parameter in (self.summary, self.positions):
            nn.init.normal_(parameter, 0.0, config.initializer_range)

    def forward(self, images: Tensor) -> Any:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        batch, width = patches.shape[0], patches.shape[2]
        x = cat([self.summary.expand((batch, 1, width)), patches], 1) + self.positions
        x = self.drop(x)
        for block in self.blocks:
            x = block(x, Pass())
        x = self.norm(x)
        if self.classifier is not None:
            return self.classifier(x[:, 0])
        assert self.pooler is not None
        return x, self.pooler(x[:, 0]).tanh()

    def stored(self) -> Iterator[Stored]:
        prefix = self.config.prefix
        yield Stored((f"{prefix}embeddings.cls_token",), ("summary",))
        yield Stored((f"{prefix}embeddings.position_embeddings",), ("positions",))
        yield from same({f"{prefix}embeddings.patch_embeddings.projection": "patches"})
        yield from same({f"{prefix}layernorm": "norm"})
        for number in range(self.config.num_hidden_layers):
            theirs, ours = f"{prefix}encoder.layer.{number}", f"blocks.{number}"
            inner = {
                f"{theirs}.attention.attention.{a}": f"{ours}.attention.{a}"
                for a in ("query", "key", "value")
            }
            yield from same(inner, ("weight", "bias") if self.config.qkv_bias else ("weight",))
            yield from same({
                f"{theirs}.attention.output.dense": f"{ours}.attention.output",
                f"{theirs}.intermediate.dense": f"{ours}.feed_forward.up",
                f"{theirs}.output.dense": f"{ours}.feed_forward.down",
                f"{theirs}.layernorm_before": f"{ours}.attention_norm",
                f"{theirs}.layernorm_after": f"{ours}.feed_forward_norm",
            })  # fmt: skip
        if self.classifier is not None:
            yield from same({"classifier": "classifier"})
        if self.pooler is not None:
            yield from same({f"{prefix}pooler.dense": "pooler"})


def _block(config: ViTConfig) -> Block:
    return Block(Parts(
        config.hidden_size, config.num_hidden_layers, config.num_attention_heads,
        config.intermediate_size, norm="layer", eps=config.layer_norm_eps,
        query_bias=config.qkv_bias, output_bias=True, activation=config.hidden_act, gated=False,
        up_bias=True, dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
    ))  # fmt: skip
