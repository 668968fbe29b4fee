"""Text encoders: BERT, and what each relative has of its own."""

from __future__ import annotations

from typing import Any

from ridgeline.models.families.common import HEADS, HIDDEN, layers
from ridgeline.models.families.family import Family
from ridgeline.models.names import Table, inside
from ridgeline.models.parts import Relative
from ridgeline.models.settings import CheckedSettings, Field

BERT: dict[str, Any] = {
    "vocabulary": Field("vocab_size"),
    "width": Field(HIDDEN),
    "layers": layers,
    "heads": Field(HEADS),
    "inner": Field("intermediate_size"),
    "context": Field("max_position_embeddings", 512),
    "types": Field("type_vocab_size", 2),
    "causal": False,
    "norm": "layer",
    "eps": Field("layer_norm_eps", 1e-12),
    "residual": "post",
    "positions": "learned",
    "query_bias": True,
    "output_bias": True,
    "activation": Field("hidden_act", "gelu"),
    "gated": False,
    "up_bias": True,
    "pooled": "tanh",
    "dropout": Field("hidden_dropout_prob", 0.1),
    "attention_dropout": Field("attention_probs_dropout_prob", 0.1),
    "spread": Field("initializer_range", 0.02),
}
BERT_BLOCK: Table = {
    **{f"attention.{n}": f"attention.self.{n}" for n in ("query", "key", "value")},
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
BERT_STACK = {
    "tokens": "embeddings.word_embeddings", "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings", "norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}  # fmt: skip
COMMON_HEADS: Table = {"classifier": "classifier", "spans/classifier": "qa_outputs"}
ROBERTA_HEADS: Table = {
    **COMMON_HEADS, "transform": "lm_head.dense", "transform_norm": "lm_head.layer_norm",
    "word_bias": "lm_head.bias", "classes/pooler": "classifier.dense",
    "classes/classifier": "classifier.out_proj",
}  # fmt: skip
FIXED: dict[str, tuple[Any, ...]] = {
    "is_decoder": (False,), "add_cross_attention": (False,), "tie_word_embeddings": (True,),
    "position_embedding_type": ("absolute",),
}  # fmt: skip


def encoder(
    stem: str,
    parts: dict[str, Any],
    heads: Table,
    prefix: str,
    block: Table = BERT_BLOCK,
    stack: Table = BERT_STACK,
    blocks: str = "encoder.layer.{}",
    fixed: dict[str, tuple[Any, ...]] = FIXED,
) -> Family:
    """A family of text encoders."""
    names = {**stack, **inside("blocks.{}", blocks, block)}
    return Family("encoder", stem, parts, names, heads, prefix, fixed)


def _padding(c: CheckedSettings) -> int:
    return int(c.get("pad_token_id", "float", 1))


ROBERTA = BERT | {"padding": _padding, "eps": Field("layer_norm_eps", 1e-12)}
ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"

ENCODERS: dict[str, Family] = {
    "bert": encoder(
        "Bert", BERT,
        {**COMMON_HEADS, "transform": "cls.predictions.transform.dense",
         "transform_norm": "cls.predictions.transform.LayerNorm",
         "word_bias": "cls.predictions.bias"},
        "bert.",
    ),
    "ernie": encoder(
        "Ernie", BERT,
        {**COMMON_HEADS, "transform": "cls.predictions.transform.dense",
         "transform_norm": "cls.predictions.transform.LayerNorm",
         "word_bias": "cls.predictions.bias"},
        "ernie.", fixed=FIXED | {"use_task_id": (False,)},
    ),
    "data2vec-text": encoder("Data2VecText", ROBERTA, ROBERTA_HEADS, "data2vec_text."),
    "roberta": encoder("Roberta", ROBERTA, ROBERTA_HEADS, "roberta."),
    "xlm-roberta": encoder("XLMRoberta", ROBERTA, ROBERTA_HEADS, "roberta."),
    "camembert": encoder("Camembert", ROBERTA, ROBERTA_HEADS, "roberta."),
    "distilbert": encoder(
        "DistilBert",
        BERT | {
            "width": Field("dim"), "inner": Field("hidden_dim"), "eps": 1e-12, "types": 0,
            "activation": Field("activation", "gelu"), "pooled": "",
            "summary": "relu", "dropout": Field("dropout", 0.1),
            "attention_dropout": Field("attention_dropout", 0.1),
        },
        {**COMMON_HEADS, "pooler": "pre_classifier", "transform": "vocab_transform",
         "transform_norm": "vocab_layer_norm", "word_bias": "vocab_projector.bias"},
        "distilbert.",
        {"attention.query": "attention.q_lin", "attention.key": "attention.k_lin",
         "attention.value": "attention.v_lin", "attention.output": "attention.out_lin",
         "attention_norm": "sa_layer_norm", "feed_forward.up": "ffn.lin1",
         "feed_forward.down": "ffn.lin2", "feed_forward_norm": "output_layer_norm"},
        blocks="transformer.layer.{}", fixed={"tie_word_embeddings": (True,)},
    ),
    "electra": encoder(
        "Electra",
        BERT | {"embedding_width": Field("embedding_size", None), "pooled": "", "summary": "gelu"},
        {**COMMON_HEADS, "transform": "discriminator_predictions.dense",
         "real or not/classifier": "discriminator_predictions.dense_prediction",
         "words/transform": "generator_predictions.dense",
         "transform_norm": "generator_predictions.LayerNorm", "word_bias": "generator_lm_head.bias",
         "classes/pooler": "classifier.dense", "classes/classifier": "classifier.out_proj"},
        "electra.", stack={**BERT_STACK, "project": "embeddings_project"},
    ),
    "albert": encoder(
        "Albert",
        BERT | {
            "embedding_width": Field("embedding_size", 128), "shared_layers": True,
            "activation": Field("hidden_act", "gelu_new"),
            "dropout": Field("hidden_dropout_prob", 0.0),
            "attention_dropout": Field("attention_probs_dropout_prob", 0.0),
        },
        {**COMMON_HEADS, "transform": "predictions.dense",
         "transform_norm": "predictions.LayerNorm", "word_bias": "predictions.bias"},
        "albert.",
        {},
        {**BERT_STACK, "project": "encoder.embedding_hidden_mapping_in", "pooler": "pooler",
         **{f"blocks.{{}}.attention.{n}": f"{ALBERT_LAYER}.attention.{n}"
            for n in ("query", "key", "value")},
         "blocks.{}.attention.output": f"{ALBERT_LAYER}.attention.dense",
         "blocks.{}.attention_norm": f"{ALBERT_LAYER}.attention.LayerNorm",
         "blocks.{}.feed_forward.up": f"{ALBERT_LAYER}.ffn",
         "blocks.{}.feed_forward.down": f"{ALBERT_LAYER}.ffn_output",
         "blocks.{}.feed_forward_norm": f"{ALBERT_LAYER}.full_layer_layer_norm"},
        fixed=FIXED | {"num_hidden_groups": (1,), "inner_group_num": (1,)},
    ),
    "mpnet": encoder(
        "MPNet",
        BERT | {
            "types": 0, "padding": _padding, "activation": Field("hidden_act", "gelu"),
            "relative": lambda c: Relative(
                c.count("relative_attention_num_buckets", 32), 128, two_sided=True
            ),
        },
        ROBERTA_HEADS, "mpnet.",
        {
            **BERT_BLOCK,
            "attention.query": "attention.attn.q", "attention.key": "attention.attn.k",
            "attention.value": "attention.attn.v", "attention.output": "attention.attn.o",
            "attention_norm": "attention.LayerNorm",
        },
        {**BERT_STACK, "bias": "encoder.relative_attention_bias"},
    ),
}  # fmt: skip
