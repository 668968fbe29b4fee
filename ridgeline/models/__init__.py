"""Models to train or to start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.errors import InputFileError
from ridgeline.interop.model_folders import folder_of
from ridgeline.models.autoencoder import VAE, DenoisingAutoencoder
from ridgeline.models.bert import BERT, BERTConfig
from ridgeline.models.convnext import ConvNeXt
from ridgeline.models.encoder import TextEncoder
from ridgeline.models.families import FAMILIES
from ridgeline.models.gan import GAN
from ridgeline.models.gcn import GCN
from ridgeline.models.generation import generate
from ridgeline.models.gpt2 import GPT2, GPT2Config
from ridgeline.models.language import LanguageModel
from ridgeline.models.lenet import lenet5
from ridgeline.models.llama import Llama, LlamaConfig
from ridgeline.models.lstm import LSTMLanguageModel
from ridgeline.models.mamba import Mamba
from ridgeline.models.mlp import mlp
from ridgeline.models.pretrained import Pretrained, read_config
from ridgeline.models.resnet import ResNet, ResNetConfig, resnet18, resnet34, resnet50
from ridgeline.models.sequences import EncoderDecoder
from ridgeline.models.speech import SpeechModel
from ridgeline.models.swin import Swin
from ridgeline.models.unet import UNet
from ridgeline.models.vgg import VGG, vgg
from ridgeline.models.vision import TextTower, TwoTowers, VisionModel
from ridgeline.models.vit import ViT, ViTConfig

_TYPED: dict[str, type[Pretrained]] = {
    kind.config_type.model_type: kind for kind in (GPT2, Llama, BERT, ViT, ResNet)
}
_SKELETONS: dict[str, type[Pretrained]] = {
    "language": LanguageModel, "encoder": TextEncoder, "vision": VisionModel,
    "text tower": TextTower, "two towers": TwoTowers,
    "encoder-decoder": EncoderDecoder, "convnext": ConvNeXt, "swin": Swin, "speech": SpeechModel,
    "mamba": Mamba,
}  # fmt: skip


def from_pretrained(folder: str | Path, dtype: DType | None = None) -> Pretrained:
    """The model in a folder with Hugging Face's `config.json` and weights.

    The name of a model that Hugging Face's tools downloaded before, `"Qwen/Qwen2.5-0.5B"`, means
    the folder where they keep it; nothing is fetched. The families and what is supported of each
    are listed in `docs/families.md`.

    >>> model = rl.models.from_pretrained("Qwen2.5-0.5B")
    >>> scores = model(tokens, mask)  # [batch, length, vocabulary]; the mask is optional
    >>> rl.models.generate(model, tokens, 20)
    """
    path = folder_of(folder, "from_pretrained")
    return _kind(read_config(path), str(path)).from_pretrained(path, dtype)


def _kind(values: Mapping[str, Any], where: str) -> type[Pretrained]:
    """The class for settings: one of its own, or the skeleton of its family."""
    name, named = values.get("model_type"), values.get("architectures")
    known = {**dict.fromkeys(FAMILIES), **_TYPED}
    if not isinstance(name, str) or name not in known:
        raise InputFileError(
            f"{where} holds a model of the unknown type {name!r:.60}",
            help=f"known: {', '.join(sorted(known))}",
        )
    typed = _TYPED.get(name)
    first = named[0] if isinstance(named, list) and named else ""
    if typed is not None and (name not in FAMILIES or not isinstance(first, str) or not first):
        return typed
    if typed is not None and first in typed.config_type.prefixes:
        return typed
    return _SKELETONS[FAMILIES[name].skeleton]


__all__ = [
    "BERT", "GAN", "GCN", "GPT2", "VAE", "VGG", "BERTConfig", "DenoisingAutoencoder", "GPT2Config",
    "LSTMLanguageModel", "Llama", "LlamaConfig", "ResNet", "ResNetConfig", "UNet", "ViT",
    "ViTConfig", "from_pretrained", "generate", "lenet5", "mlp", "resnet18", "resnet34",
    "resnet50", "vgg",
]  # fmt: skip
