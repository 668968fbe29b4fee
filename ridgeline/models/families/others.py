"""Models with parts of their own: state spaces, convolutions, windows, speech."""

from __future__ import annotations

from typing import Any

from ridgeline.models.families.common import HEADS, HIDDEN, layers
from ridgeline.models.families.family import Family
from ridgeline.models.families.vision import VIT_BLOCK
from ridgeline.models.names import Table, inside
from ridgeline.models.settings import CheckedSettings, Field


def _depth(c: CheckedSettings) -> int:
    return int(sum(c.get("depths", "Sequence[int]", [3, 3, 9, 3])))


CONVNEXT: dict[str, Any] = {
    "width": 1, "heads": 1, "inner": 4, "layers": _depth, "eps": Field("layer_norm_eps", 1e-12),
    "activation": Field("hidden_act", "gelu"),
}  # fmt: skip
CONVNEXT_NAMES: Table = {
    "patches": "embeddings.patch_embeddings", "patches_norm": "embeddings.layernorm",
    "norm": "layernorm",
    **inside("stages.{}", "encoder.stages.{}", {
        "norm": "downsampling_layer.0", "halved": "downsampling_layer.1",
        **inside("blocks.{}", "layers.{}", {
            "near": "dwconv", "norm": "layernorm", "up": "pwconv1", "down": "pwconv2",
            "scale": "layer_scale_parameter", "response": "grn",
        }),
    }),
}  # fmt: skip
SWIN_NAMES: Table = {
    "patches": "embeddings.patch_embeddings.projection", "patches_norm": "embeddings.norm",
    "norm": "layernorm",
    **inside("stages.{}", "encoder.layers.{}", {
        "merging.norm": "downsample.norm", "merging.joined": "downsample.reduction",
        **inside("blocks.{}", "blocks.{}", {
            **VIT_BLOCK,
            **{f"attention.{n}": f"attention.self.{n}" for n in ("query", "key", "value")},
            "attention.table": "attention.self.relative_position_bias_table",
        }),
    }),
}  # fmt: skip
SPEECH: dict[str, Any] = {
    "width": Field(HIDDEN, 768),
    "layers": lambda c: layers(c, 12),
    "heads": Field(HEADS, 12),
    "inner": Field("intermediate_size", 3072),
    "norm": "layer",
    "eps": Field("layer_norm_eps", 1e-5),
    "residual": lambda c: "pre" if c.flag("do_stable_layer_norm", False) else "post",
    "causal": False,
    "query_bias": True,
    "output_bias": True,
    "activation": Field("hidden_act", "gelu"),
    "gated": False,
    "up_bias": True,
    "dropout": Field("hidden_dropout", 0.1),
    "attention_dropout": Field("attention_dropout", 0.1),
    "spread": Field("initializer_range", 0.02),
}
SPEECH_NAMES: Table = {
    "hearing.{}.conv": "feature_extractor.conv_layers.{}.conv",
    "hearing.{}.group": "feature_extractor.conv_layers.{}.layer_norm",
    "hearing.{}.layer": "feature_extractor.conv_layers.{}.layer_norm",
    "heard_norm": "feature_projection.layer_norm", "project": "feature_projection.projection",
    "positions.bias": "encoder.pos_conv_embed.conv.bias",
    "positions.length": "encoder.pos_conv_embed.conv.parametrizations.weight.original0",
    "positions.direction": "encoder.pos_conv_embed.conv.parametrizations.weight.original1",
    "norm": "encoder.layer_norm",
    **inside("blocks.{}", "encoder.layers.{}", {
        **{f"attention.{a}": f"attention.{b}_proj"
           for a, b in zip(("query", "key", "value", "output"), ("q", "k", "v", "out"))},
        "attention_norm": "layer_norm", "feed_forward_norm": "final_layer_norm",
        "feed_forward.up": "feed_forward.intermediate_dense",
        "feed_forward.down": "feed_forward.output_dense",
    }),
}  # fmt: skip
SPEECH_HEADS: Table = {"head": "lm_head", "transform": "projector", "classifier": "classifier"}
SPEECH_FIXED: dict[str, tuple[Any, ...]] = {
    "add_adapter": (False,), "use_weighted_layer_sum": (False,), "adapter_attn_dim": (None,),
    "conv_pos_batch_norm": (False,),
}  # fmt: skip

OTHERS: dict[str, Family] = {
    "convnext": Family(
        "convnext", "ConvNext", CONVNEXT, CONVNEXT_NAMES, {"classifier": "classifier"}, "convnext."
    ),
    "convnextv2": Family(
        "convnext", "ConvNextV2", CONVNEXT, CONVNEXT_NAMES, {"classifier": "classifier"},
        "convnextv2.",
    ),
    "swin": Family(
        "swin", "Swin",
        {
            "width": Field("embed_dim", 96), "layers": _depth, "heads": 1, "inner": 1,
            "norm": "layer", "eps": Field("layer_norm_eps", 1e-5), "causal": False,
            "query_bias": Field("qkv_bias", True), "output_bias": True, "gated": False,
            "up_bias": True, "activation": Field("hidden_act", "gelu"),
            "dropout": Field("hidden_dropout_prob", 0.0),
            "spread": Field("initializer_range", 0.02),
        },
        SWIN_NAMES, {"classifier": "classifier"}, "swin.", {"use_absolute_embeddings": (False,)},
    ),
    "wav2vec2": Family(
        "speech", "Wav2Vec2", SPEECH, SPEECH_NAMES, SPEECH_HEADS, "wav2vec2.", SPEECH_FIXED
    ),
    "hubert": Family(
        "speech", "Hubert", SPEECH, SPEECH_NAMES, SPEECH_HEADS, "hubert.", SPEECH_FIXED
    ),
    "mamba": Family(
        "mamba", "Mamba",
        {
            "vocabulary": Field("vocab_size"), "width": Field(HIDDEN), "layers": layers,
            "heads": 1, "inner": Field(
                "intermediate_size", lambda c: int(c.real("expand", 2) * c.count(HIDDEN))
            ),
            "eps": Field("layer_norm_epsilon", 1e-5), "activation": Field("hidden_act", "silu"),
            "tied": Field("tie_word_embeddings", True), "spread": Field("initializer_range", 0.1),
        },
        {"tokens": "embeddings", "norm": "norm_f", **inside("blocks.{}", "layers.{}", {
            "norm": "norm", "mixer.into": "mixer.in_proj", "mixer.out": "mixer.out_proj",
            "mixer.near": "mixer.conv1d", "mixer.chosen": "mixer.x_proj",
            "mixer.pace": "mixer.dt_proj", "mixer.decay": "mixer.A_log", "mixer.direct": "mixer.D",
        })},
        {"head": "lm_head"}, "backbone.",
    ),
}  # fmt: skip
