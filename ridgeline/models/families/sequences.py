"""Encoders with decoders: texts or sound in, texts out."""

from __future__ import annotations

from typing import Any

from ridgeline.models.families.common import bounded
from ridgeline.models.families.family import Family
from ridgeline.models.names import Table, inside
from ridgeline.models.parts import Relative
from ridgeline.models.settings import CheckedSettings, Field


def _t5_proj(c: CheckedSettings) -> str:
    later = c.text("model_type", "t5") == "mt5"
    return str(c.text("feed_forward_proj", "gated-gelu" if later else "relu"))


def _t5_act(c: CheckedSettings) -> str:
    kind = _t5_proj(c)
    return "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")


def _t5_bias(two_sided: bool) -> Any:
    return lambda c: Relative(
        c.count("relative_attention_num_buckets", 32),
        c.count("relative_attention_max_distance", 128), two_sided,
    )  # fmt: skip


def _t5_scale(c: CheckedSettings) -> float:
    scaled = c.flag("scale_decoder_outputs", c.flag("tie_word_embeddings", True))
    return c.count("d_model") ** -0.5 if scaled else 1.0


def _root(c: CheckedSettings) -> float:
    return float(c.count("d_model")) ** 0.5 if c.flag("scale_embedding", False) else 1.0


T5: dict[str, Any] = {
    "vocabulary": Field("vocab_size"),
    "width": Field("d_model"),
    "layers": lambda c: bounded(c, "num_decoder_layers num_layers"),
    "heads": Field("num_heads"),
    "head_size": Field("d_kv", 64),
    "inner": Field("d_ff"),
    "eps": Field("layer_norm_epsilon", 1e-6),
    "scale": 1.0,
    "activation": _t5_act,
    "gated": lambda c: _t5_proj(c).startswith("gated-"),
    "relative": _t5_bias(two_sided=False),
    "tied": Field("tie_word_embeddings", True),
    "score_scale": _t5_scale,
    "dropout": Field("dropout_rate", 0.1),
}
BART: dict[str, Any] = {
    "vocabulary": Field("vocab_size"),
    "width": Field("d_model"),
    "layers": lambda c: bounded(c, "decoder_layers"),
    "heads": Field("decoder_attention_heads"),
    "inner": Field("decoder_ffn_dim"),
    "context": Field("max_position_embeddings", 1024),
    "norm": "layer",
    "residual": "post",
    "final_norm": False,
    "positions": "learned",
    "position_offset": 2,
    "embedding_norm": True,
    "embedding_scale": _root,
    "query_bias": True,
    "output_bias": True,
    "activation": Field("activation_function", "gelu"),
    "gated": False,
    "up_bias": True,
    "tied": True,
    "head_bias": True,
    "dropout": Field("dropout", 0.1),
    "attention_dropout": Field("attention_dropout", 0.0),
    "spread": Field("init_std", 0.02),
}
BART_ENCODER = {
    "layers": lambda c: bounded(c, "encoder_layers"), "heads": Field("encoder_attention_heads"),
    "inner": Field("encoder_ffn_dim"), "causal": False,
}  # fmt: skip
WHISPER = BART | {
    "residual": "pre", "final_norm": True, "embedding_norm": False, "position_offset": 0,
    "context": Field("max_target_positions", 448), "key_bias": False, "head_bias": False,
}  # fmt: skip


def _t5_block(decodes: bool) -> Table:
    last = 2 if decodes else 1
    table = {f"attention.{n}": f"layer.0.SelfAttention.{n[0]}"
             for n in ("query", "key", "value", "output")}  # fmt: skip
    table |= {name.replace("attention", "cross"): value.replace("0.Self", "1.EncDec")
              for name, value in table.items()}  # fmt: skip
    inner = f"layer.{last}.DenseReluDense"
    return table | {
        "attention_norm": "layer.0.layer_norm", "cross_norm": "layer.1.layer_norm",
        "feed_forward_norm": f"layer.{last}.layer_norm", "feed_forward.gate": f"{inner}.wi_0",
        "feed_forward.up": f"{inner}.wi_1", "feed_forward.down": f"{inner}.wo",
    }  # fmt: skip


def _t5_names(c: CheckedSettings) -> Table:
    table: dict[str, Any] = {"tokens": "shared"}
    for stack in ("encoder", "decoder"):
        inner = f"{stack}.block"
        table |= {
            **inside(f"{stack}.blocks.{{}}", f"{inner}.{{}}", _t5_block(stack == "decoder")),
            f"{stack}.norm": f"{stack}.final_layer_norm",
            f"{stack}.bias": f"{inner}.0.layer.0.SelfAttention.relative_attention_bias",
        }
    if not _t5_proj(c).startswith("gated-"):
        return {name: value.replace("wi_1", "wi") for name, value in table.items()}
    return table


BART_BLOCK: Table = {
    **{f"{ours}.{a}": f"{theirs}.{b}_proj"
       for ours, theirs in (("attention", "self_attn"), ("cross", "encoder_attn"))
       for a, b in zip(("query", "key", "value", "output"), ("q", "k", "v", "out"))},
    "attention_norm": "self_attn_layer_norm", "cross_norm": "encoder_attn_layer_norm",
    "feed_forward_norm": "final_layer_norm", "feed_forward.up": "fc1", "feed_forward.down": "fc2",
}  # fmt: skip


def _bart_names(tokens: str = "shared") -> Table:
    table: dict[str, Any] = {"tokens": tokens}
    for stack in ("encoder", "decoder"):
        table |= {
            **inside(f"{stack}.blocks.{{}}", f"{stack}.layers.{{}}", BART_BLOCK),
            f"{stack}.norm": f"{stack}.layer_norm",
            f"{stack}.positions": f"{stack}.embed_positions",
            f"{stack}.embedding_norm": f"{stack}.layernorm_embedding",
            f"{stack}.frames": f"{stack}.conv1", f"{stack}.joined": f"{stack}.conv2",
        }  # fmt: skip
    return table


HEADS: Table = {"head": "lm_head", "word_bias": "final_logits_bias"}
SINUSOIDAL: dict[str, Any] = {
    "positions": "sinusoidal", "position_offset": 0, "embedding_norm": False,
    "context": lambda c: bounded(c, "max_position_embeddings", 1024),
}  # fmt: skip

T5_ENCODER = {
    "layers": lambda c: bounded(c, "num_layers"), "relative": _t5_bias(two_sided=True),
    "causal": False,
}  # fmt: skip

SEQUENCES: dict[str, Family] = {
    "t5": Family("encoder-decoder", "T5", T5, _t5_names, HEADS, "", encoder=T5_ENCODER),
    "mt5": Family(
        "encoder-decoder", "MT5", T5 | {"score_scale": 1.0}, _t5_names, HEADS, "",
        encoder=T5_ENCODER,
    ),
    "bart": Family(
        "encoder-decoder", "Bart", BART, _bart_names(), HEADS, encoder=BART_ENCODER,
    ),
    "mbart": Family(
        "encoder-decoder", "MBart", BART | {"residual": "pre", "final_norm": True}, _bart_names(),
        HEADS, encoder=BART_ENCODER,
    ),
    "marian": Family(
        "encoder-decoder", "Marian",
        BART | SINUSOIDAL | {"activation": Field("activation_function", "swish")},
        _bart_names(), HEADS, encoder=BART_ENCODER,
        fixed={"share_encoder_decoder_embeddings": (True,)},
    ),
    "pegasus": Family(
        "encoder-decoder", "Pegasus",
        BART | SINUSOIDAL | {"residual": "pre", "final_norm": True}, _bart_names(), HEADS,
        encoder=BART_ENCODER,
    ),
    "whisper": Family(
        "encoder-decoder", "Whisper", WHISPER, _bart_names("decoder.embed_tokens"),
        {"head": "proj_out"},
        encoder=BART_ENCODER | {
            "mel_bins": Field("num_mel_bins"), "context": Field("max_source_positions", 1500),
        },
    ),
}  # fmt: skip
