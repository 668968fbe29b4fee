"""Models of images, and of images beside texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.models.families.common import HEADS, HIDDEN, layers
from ridgeline.models.families.family import Family
from ridgeline.models.names import Table, inside, joint
from ridgeline.models.parts import Image
from ridgeline.models.settings import CheckedSettings, Field


def image(size: int = 224, patch: int = 16, **more: Any) -> Callable[[CheckedSettings], Image]:
    """How an image becomes a row, with a family's defaults."""

    def read(c: CheckedSettings) -> Image:
        return Image(
            c.count("image_size", size), c.count("patch_size", patch),
            c.count("num_channels", 3), **more,
        )  # fmt: skip

    return read


VIT: dict[str, Any] = {
    "width": Field(HIDDEN, 768),
    "layers": layers,
    "heads": Field(HEADS, 12),
    "inner": Field("intermediate_size", 3072),
    "image": image(),
    "norm": "layer",
    "eps": Field("layer_norm_eps", 1e-12),
    "causal": False,
    "query_bias": Field("qkv_bias", True),
    "output_bias": True,
    "activation": Field("hidden_act", "gelu"),
    "gated": False,
    "up_bias": True,
    "dropout": Field("hidden_dropout_prob", 0.0),
    "attention_dropout": Field("attention_probs_dropout_prob attention_dropout", 0.0),
    "spread": Field("initializer_range", 0.02),
}
VIT_BLOCK: Table = {
    **{f"attention.{n}": f"attention.attention.{n}" for n in ("query", "key", "value")},
    "attention.output": "attention.output.dense", "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense", "attention_norm": "layernorm_before",
    "feed_forward_norm": "layernorm_after",
}  # fmt: skip
VIT_NAMES: Table = {
    "summary": "embeddings.cls_token", "distilled": "embeddings.distillation_token",
    "positions": "embeddings.position_embeddings", "norm": "layernorm",
    "patches": "embeddings.patch_embeddings.projection", "pooler": "pooler.dense",
    **inside("blocks.{}", "encoder.layer.{}", VIT_BLOCK),
}  # fmt: skip
VIT_HEADS: Table = {
    "classifier": "classifier", "taught classes/classifier": "cls_classifier",
    "distilled_classifier": "distillation_classifier",
}  # fmt: skip
CLIP_BLOCK: Table = {
    **{f"attention.{a}": f"self_attn.{b}_proj"
       for a, b in zip(("query", "key", "value", "output"), ("q", "k", "v", "out"))},
    "attention_norm": "layer_norm1", "feed_forward_norm": "layer_norm2",
    "feed_forward.up": "mlp.fc1", "feed_forward.down": "mlp.fc2",
}  # fmt: skip
POOLED = "pooler.attention"
CLIP_VISION: Table = {
    "summary": "embeddings.class_embedding", "positions": "embeddings.position_embedding.weight",
    "patches": "embeddings.patch_embedding", "norm_before": "pre_layrnorm",
    "norm": "post_layernorm", **inside("blocks.{}", "encoder.layers.{}", CLIP_BLOCK),
    "pooler.probe": "head.probe", "pooler.norm": "head.layernorm",
    **{key: value for end in ("weight", "bias") for key, value in joint(
        f"head.attention.in_proj_{end}", *(f"{POOLED}.{n}.{end}" for n in ("query", "key", "value"))
    ).items()},
    f"{POOLED}.output": "head.attention.out_proj", "pooler.feed_forward.up": "head.mlp.fc1",
    "pooler.feed_forward.down": "head.mlp.fc2",
}  # fmt: skip
CLIP_TEXT: Table = {
    "tokens": "embeddings.token_embedding", "positions": "embeddings.position_embedding",
    "norm": "final_layer_norm", "pooler": "head",
    **inside("blocks.{}", "encoder.layers.{}", CLIP_BLOCK),
}  # fmt: skip
CLIP = VIT | {
    "layers": lambda c: layers(c, 12), "eps": Field("layer_norm_eps", 1e-5), "query_bias": True,
    "activation": Field("hidden_act", "quick_gelu"), "dropout": 0.0,
    "projected": Field("projection_dim", 512), "spread": 0.02,
    "image": image(patch=32, bias=False, flat=True, norm_before=True, pooling="norm"),
}  # fmt: skip
CLIP_TEXTS = {name: part for name, part in CLIP.items() if name != "image"} | {
    "vocabulary": Field("vocab_size", 49408), "width": Field(HIDDEN, 512),
    "heads": Field(HEADS, 8), "inner": Field("intermediate_size", 2048),
    "context": Field("max_position_embeddings", 77), "causal": True,
}  # fmt: skip
SIGLIP = CLIP | {
    "eps": Field("layer_norm_eps", 1e-6), "activation": Field("hidden_act", "gelu_pytorch_tanh"),
    "image": image(summary=False, flat=True, pooling="probe"), "projected": None,
}  # fmt: skip
SIGLIP_TEXTS = {name: part for name, part in SIGLIP.items() if name != "image"} | {
    "vocabulary": Field("vocab_size", 32000), "context": Field("max_position_embeddings", 64),
    "projected": Field("projection_size", None),
}  # fmt: skip
TOWERS: Table = {
    **inside("vision", "vision_model", CLIP_VISION), **inside("text", "text_model", CLIP_TEXT),
    "vision_projection": "visual_projection", "text_projection": "text_projection",
    "scale": "logit_scale", "bias": "logit_bias",
}  # fmt: skip
VISION_HEAD: Table = {"projection": "visual_projection"}
TEXT_HEAD: Table = {"projection": "text_projection"}
DINO = VIT | {
    "image": image(patch=14, pooling="first"), "layer_scale": True,
    "inner": lambda c: int(c.count(HIDDEN) * c.real("mlp_ratio", 4)),
    "eps": Field("layer_norm_eps", 1e-6),
}  # fmt: skip

VISION: dict[str, Family] = {
    "vit": Family("vision", "ViT", VIT, VIT_NAMES, VIT_HEADS, "vit.", {"pooler_act": ("tanh",)}),
    "deit": Family(
        "vision", "DeiT", VIT | {"image": image(distilled=True)}, VIT_NAMES, VIT_HEADS, "deit.",
        {"pooler_act": ("tanh",)},
    ),
    "dinov2": Family(
        "vision", "Dinov2", DINO,
        {**VIT_NAMES, **inside("blocks.{}", "encoder.layer.{}", {
            "attention_norm": "norm1", "feed_forward_norm": "norm2", "feed_forward.up": "mlp.fc1",
            "feed_forward.down": "mlp.fc2", "attention_scale": "layer_scale1.lambda1",
            "feed_forward_scale": "layer_scale2.lambda1",
        })},
        VIT_HEADS, "dinov2.", {"use_swiglu_ffn": (False,)},
    ),
    "clip_vision_model": Family(
        "vision", "CLIP", CLIP, CLIP_VISION, VISION_HEAD, "vision_model.", group="vision_config"
    ),
    "clip_text_model": Family(
        "text tower", "CLIP", CLIP_TEXTS, CLIP_TEXT, TEXT_HEAD, "text_model.", group="text_config"
    ),
    "clip": Family("two towers", "CLIP", CLIP, TOWERS, prefix="", group="vision_config"),
    "siglip_vision_model": Family(
        "vision", "Siglip", SIGLIP, CLIP_VISION, {}, "vision_model.",
        {"vision_use_head": (True,)}, group="vision_config",
    ),
    "siglip_text_model": Family(
        "text tower", "Siglip", SIGLIP_TEXTS, CLIP_TEXT, {}, "text_model.", group="text_config"
    ),
    "siglip": Family("two towers", "Siglip", SIGLIP, TOWERS, prefix="", group="vision_config"),
}  # fmt: skip
