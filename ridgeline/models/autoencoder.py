"""Autoencoders: a denoising one and a variational one, over vectors of any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ridgeline import nn
from ridgeline.models.mlp import mlp
from ridgeline.nn.functional import binary_cross_entropy_with_logits, mse_loss
from ridgeline.tensors.public import randn_like
from ridgeline.tensors.tensor import Tensor


class DenoisingAutoencoder(nn.Module):
    """Learns to give back clean inputs from noisy ones, through a narrow code."""

    def __init__(self, sizes: Sequence[int] = (784, 256, 64), noise: float = 0.3) -> None:
        super().__init__()
        self.noise = noise
        self.encoder, self.decoder = mlp(sizes), mlp(tuple(reversed(sizes)))

    def forward(self, x: Tensor) -> Tensor:
        """The reconstruction; while training, of an input with noise added."""
        if self.training and self.noise > 0:
            x = x + self.noise * randn_like(x)
        result: Tensor = self.decoder(self.encoder(x))
        return result

    def loss(self, x: Tensor) -> Tensor:
        """The mean square by which the reconstruction misses the clean input."""
        return mse_loss(self(x), x)


class Encoded(NamedTuple):
    """What a variational autoencoder makes of an input."""

    reconstruction: Tensor  # before the sigmoid
    mean: Tensor
    log_variance: Tensor


class VAE(nn.Module):
    """A variational autoencoder of inputs in 0…1: codes are drawn from a normal distribution."""

    def __init__(self, sizes: Sequence[int] = (784, 400), code: int = 20) -> None:
        super().__init__()
        self.code = code
        self.encoder = nn.Sequential(mlp(sizes), nn.ReLU())
        self.mean, self.log_variance = (nn.Linear(sizes[-1], code) for _ in range(2))
        self.decoder = mlp((code, *reversed(sizes)))

    def forward(self, x: Tensor) -> Encoded:
        inner = self.encoder(x)
        mean, log_variance = self.mean(inner), self.log_variance(inner)
        code = mean
        if self.training:  # drawn so that gradients reach the mean and the variance
            code = mean + (0.5 * log_variance).exp() * randn_like(mean)
        return Encoded(self.decoder(code), mean, log_variance)

    def loss(self, x: Tensor) -> Tensor:
        """The negative evidence lower bound, per input."""
        found: Encoded = self(x)
        error = binary_cross_entropy_with_logits(found.reconstruction, x, reduction="sum")
        spread = found.mean**2 + found.log_variance.exp() - 1 - found.log_variance
        result: Tensor = (error + 0.5 * spread.sum()) / x.shape[0]
        return result

    def decode(self, code: Tensor) -> Tensor:
        """Inputs in 0…1 for codes [n, code]; normal codes give new examples."""
        result: Tensor = self.decoder(code).sigmoid()
        return result
