"""Models to train or to start from."""

from ridgeline.models.lenet import lenet5
from ridgeline.models.mlp import mlp
from ridgeline.models.resnet import ResNet, resnet18, resnet34, resnet50

__all__ = ["ResNet", "lenet5", "mlp", "resnet18", "resnet34", "resnet50"]
