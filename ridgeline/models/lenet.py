"""LeNet-5 for 32×32 images, in the form with ReLU and 3×3 windows."""

from __future__ import annotations

from ridgeline import nn


def lenet5(classes: int = 10) -> nn.Sequential:
    """Two convolutions with pooling, then three linear layers: 81,194 parameters for 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(576, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
