"""BERT: every token sees every other, LayerNorm after each part, GELU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from ridgeline import nn
from ridgeline.models.feed_forward import activation
from ridgeline.models.names import Stored
from ridgeline.models.parts import Parts
from ridgeline.models.pretrained import Config, Pretrained, numbered, same
from ridgeline.models.transformer import Block, Pass, initialise, seen
from ridgeline.nn.functional import linear
from ridgeline.tensors.public import arange, zeros, zeros_like
from ridgeline.tensors.tensor import Tensor

MODEL, MASKED, CLASSIFIER = "BertModel", "BertForMaskedLM", "BertForSequenceClassification"


@dataclass(frozen=True)
class BERTConfig(Config):
    """Settings, with the defaults of the published base model."""

    model_type: ClassVar[str] = "bert"
    prefixes: ClassVar = {MODEL: "", MASKED: "bert.", CLASSIFIER: "bert."}
    fixed: ClassVar = {
        "is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }  # fmt: skip

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    id2label: dict[str, str] = field(default_factory=partial(numbered, 2))


class BERT(Pretrained):
    """BERT in one of three forms, by the architecture in its settings.

    `BertModel` gives hidden states and a summary of the first one, `BertForMaskedLM` scores of
    every word at every place, `BertForSequenceClassification` scores of the classes.
    """

    config_type = BERTConfig
    ignored = r"position_ids$|^cls\.(seq_relationship|predictions\.decoder)\.|pooler\."
    config: BERTConfig

    def __init__(self, config: BERTConfig | None = None, **settings: object) -> None:
        config = replace(config or BERTConfig(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
        width, form = config.hidden_size, config.architecture
        self.tokens = nn.Embedding(config.vocab_size, width)
        self.positions = nn.Embedding(config.max_position_embeddings, width)
        self.types = nn.Embedding(config.type_vocab_size, width)
        self.norm = nn.LayerNorm(width, config.layer_norm_eps)
        self.drop = nn.Dropout(config.hidden_dropout_prob)
        self.blocks = nn.ModuleList(_block(config) for _ in range(config.num_hidden_layers))
        self.pooler = None if form == MASKED else nn.Linear(width, width)
        self.classifier = nn.Linear(width, config.labels) if form == CLASSIFIER else None
        self.transform = nn.Linear(width, width) if form == MASKED else None
        if form == MASKED:
            self.transform_norm = nn.LayerNorm(width, config.layer_norm_eps)
            self.word_bias = nn.Parameter(zeros((config.vocab_size,)))
        self.activation = activation(config.hidden_act)
        initialise(self, config.initializer_range)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, types: Any = None) -> Any:
        """`mask` [batch, length] is nonzero at tokens that count; `types` tells two texts apart."""
        places = arange(tokens.shape[1])
        kinds = zeros_like(tokens) if types is None else types
        x = self.tokens(tokens) + self.types(kinds) + self.positions(places)
        x = self.drop(self.norm(x))
        what = Pass(mask=None if mask is None else seen(mask[:, None, None, :] != 0))
        for block in self.blocks:
            x = block(x, what)
        if self.transform is not None:
            x = self.transform_norm(self.activation(self.transform(x)))
            return linear(x, self.tokens.weight, self.word_bias)
        assert self.pooler is not None
        pooled = self.pooler(x[:, 0]).tanh()
        return (x, pooled) if self.classifier is None else self.classifier(self.drop(pooled))

    def stored(self) -> Iterator[Stored]:
        prefix = self.config.prefix
        tables = {"word": "tokens", "position": "positions", "token_type": "types"}
        yield from same(
            {f"{prefix}embeddings.{a}_embeddings": b for a, b in tables.items()}, ("weight",)
        )
        yield from same({f"{prefix}embeddings.LayerNorm": "norm"})
        for number in range(self.config.num_hidden_layers):
            theirs, ours = f"{prefix}encoder.layer.{number}", f"blocks.{number}"
            yield from same(
                {f"{theirs}.attention.self.{a}": f"{ours}.attention.{a}"
                 for a in ("query", "key", "value")}
                | {
                    f"{theirs}.attention.output.dense": f"{ours}.attention.output",
                    f"{theirs}.attention.output.LayerNorm": f"{ours}.attention_norm",
                    f"{theirs}.intermediate.dense": f"{ours}.feed_forward.up",
                    f"{theirs}.output.dense": f"{ours}.feed_forward.down",
                    f"{theirs}.output.LayerNorm": f"{ours}.feed_forward_norm",
                }
            )  # fmt: skip
        if self.pooler is not None:
            yield from same({f"{prefix}pooler.dense": "pooler"})
        if self.classifier is not None:
            yield from same({"classifier": "classifier"})
        if self.transform is not None:
            head = "cls.predictions.transform"
            yield from same({f"{head}.dense": "transform", f"{head}.LayerNorm": "transform_norm"})
            yield Stored(("cls.predictions.bias",), ("word_bias",))


def _block(config: BERTConfig) -> Block:
    return Block(Parts(
        config.hidden_size, config.num_hidden_layers, config.num_attention_heads,
        config.intermediate_size, norm="layer", eps=config.layer_norm_eps, residual="post",
        query_bias=True, output_bias=True, activation=config.hidden_act, gated=False, up_bias=True,
        dropout=config.hidden_dropout_prob, attention_dropout=config.attention_probs_dropout_prob,
    ))  # fmt: skip
