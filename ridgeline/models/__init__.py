"""Models to train or to start from."""

from __future__ import annotations

from pathlib import Path

from ridgeline.dtypes import DType
from ridgeline.errors import InputFileError
from ridgeline.models.autoencoder import VAE, DenoisingAutoencoder
from ridgeline.models.bert import BERT, BERTConfig
from ridgeline.models.gan import GAN
from ridgeline.models.gcn import GCN
from ridgeline.models.generation import generate
from ridgeline.models.gpt2 import GPT2, GPT2Config
from ridgeline.models.lenet import lenet5
from ridgeline.models.llama import Llama, LlamaConfig
from ridgeline.models.lstm import LSTMLanguageModel
from ridgeline.models.mlp import mlp
from ridgeline.models.pretrained import Pretrained, read_config
from ridgeline.models.resnet import ResNet, ResNetConfig, resnet18, resnet34, resnet50
from ridgeline.models.unet import UNet
from ridgeline.models.vgg import VGG, vgg
from ridgeline.models.vit import ViT, ViTConfig

_KINDS: dict[str, type[Pretrained]] = {
    kind.config_type.model_type: kind for kind in (GPT2, Llama, BERT, ViT, ResNet)
}


def from_pretrained(folder: str | Path, dtype: DType | None = None) -> Pretrained:
    """The model in a folder with Hugging Face's `config.json` and safetensors weights."""
    name = read_config(Path(folder)).get("model_type")
    if not isinstance(name, str) or name not in _KINDS:
        raise InputFileError(
            f"{folder} holds a model of the unknown type {name!r:.60}",
            help=f"known: {', '.join(_KINDS)}",
        )
    return _KINDS[name].from_pretrained(folder, dtype)


__all__ = [
    "BERT", "GAN", "GCN", "GPT2", "VAE", "VGG", "BERTConfig", "DenoisingAutoencoder", "GPT2Config",
    "LSTMLanguageModel", "Llama", "LlamaConfig", "ResNet", "ResNetConfig", "UNet", "ViT",
    "ViTConfig", "from_pretrained", "generate", "lenet5", "mlp", "resnet18", "resnet34",
    "resnet50", "vgg",
]  # fmt: skip
