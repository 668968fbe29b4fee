"""A multilayer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ridgeline import nn


def mlp(
    sizes: Sequence[int], activation: Callable[[], nn.Module] = nn.ReLU, dropout: float = 0.0
) -> nn.Sequential:
    """Linear layers from sizes[0] to sizes[-1], with an activation after all but the last."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(before, after))
        if number < len(sizes) - 2:
            layers.append(activation())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
