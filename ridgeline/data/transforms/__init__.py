"""Transforms of whole image batches, vectorised in NumPy and deterministic by their stream."""

from ridgeline.data.transforms.base import Compose, Normalize, ToTensor, Transform
from ridgeline.data.transforms.crops import CenterCrop, RandomCrop, RandomResizedCrop, Resize
from ridgeline.data.transforms.geometry import (
    RandomAffine,
    RandomHorizontalFlip,
    RandomVerticalFlip,
)
from ridgeline.data.transforms.values import ColorJitter, GaussianNoise, RandomErasing

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "GaussianNoise", "Normalize", "RandomAffine",
    "RandomCrop", "RandomErasing", "RandomHorizontalFlip", "RandomResizedCrop",
    "RandomVerticalFlip", "Resize", "ToTensor", "Transform",
]  # fmt: skip
