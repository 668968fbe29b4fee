"""torchvision.models: classifiers with torchvision's names, so that its weights load by name.

>>> from ridgeline.vision import models
>>> net = models.resnet18(num_classes=10)
>>> net.layer4[1].conv2.weight.shape
ridgeline.Size([512, 512, 3, 3])
"""

from typing import Any

from ridgeline.module_paths import unknown as _unknown
from ridgeline.vision.models import convnext, mobile, plain, registry, resnet, vit
from ridgeline.vision.models.convnext import ConvNeXt
from ridgeline.vision.models.mobile import EfficientNet, MobileNetV2, MobileNetV3
from ridgeline.vision.models.plain import VGG, AlexNet, SqueezeNet
from ridgeline.vision.models.registry import (
    BUILDERS as _BUILDERS,
    get_model,
    get_model_builder,
    list_models,
)
from ridgeline.vision.models.resnet import ResNet
from ridgeline.vision.models.vit import VisionTransformer

__all__ = [
    "VGG", "AlexNet", "ConvNeXt", "EfficientNet", "MobileNetV2", "MobileNetV3", "ResNet",
    "SqueezeNet", "VisionTransformer", "convnext", "get_model", "get_model_builder", "list_models",
    "mobile", "plain", "registry", "resnet", "vit", *_BUILDERS,
]  # fmt: skip
globals().update(_BUILDERS)
_find = _unknown(__name__)


def __getattr__(name: str) -> Any:
    if name.endswith("_Weights"):
        return registry.Weights(name)
    return _find(name)
