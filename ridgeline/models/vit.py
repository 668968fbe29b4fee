"""ViT: an image as a row of patches, read by a transformer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from ridgeline.models.pretrained import ModelConfig, numbered
from ridgeline.models.vision import VisionModel

CLASSIFIER, MODEL = "ViTForImageClassification", "ViTModel"


@dataclass(frozen=True)
class ViTConfig(ModelConfig):
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


class ViT(VisionModel):
    """Images [n, channels, size, size] in; scores of the classes out, or hidden states.

    As `ViTModel` it gives the hidden states and a summary of the first one.
    """

    config_type = ViTConfig
    config: ViTConfig

    def __init__(self, config: ViTConfig | None = None, **settings: object) -> None:
        config = replace(config or ViTConfig(), **settings)  # type: ignore[arg-type]
        super().__init__(config)
