"""BERT: every token sees every other, LayerNorm after each part, GELU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from ridgeline.models.encoder import TextEncoder
from ridgeline.models.pretrained import ModelConfig, numbered

MODEL, MASKED, CLASSIFIER = "BertModel", "BertForMaskedLM", "BertForSequenceClassification"


@dataclass(frozen=True)
class BERTConfig(ModelConfig):
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


class BERT(TextEncoder):
    """BERT in one of three forms, by the architecture in its settings.

    `BertModel` gives hidden states and a summary of the first one, `BertForMaskedLM` scores of
    every word at every place, `BertForSequenceClassification` scores of the classes.
    """

    config_type = BERTConfig
    config: BERTConfig

    def __init__(self, config: BERTConfig | None = None, **settings: object) -> None:
        config = replace(config or BERTConfig(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
