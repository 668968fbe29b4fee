"""A GAN for images [n, channels, 32, 32] in -1…1: DCGAN's generator, spectral norms against it."""

from __future__ import annotations

from ridgeline import nn
from ridgeline.nn.functional import binary_cross_entropy_with_logits
from ridgeline.nn.utils.parametrizations import spectral_norm
from ridgeline.tensors.public import ones_like, randn, zeros_like
from ridgeline.tensors.tensor import Tensor


class GAN(nn.Module):
    """A generator that makes images of noise, and a discriminator that tells them from real ones.

    Train in turns: `discriminator_loss` moves the discriminator's parameters only, and
    `generator_loss` is meant for an optimizer of the generator's.
    """

    def __init__(self, channels: int = 1, noise: int = 64, width: int = 16) -> None:
        super().__init__()
        self.noise = noise
        self.generator = nn.Sequential(
            nn.Unflatten(1, (noise, 1, 1)),
            *_grown(noise, 4 * width, 1, 0),
            *_grown(4 * width, 2 * width, 2, 1),
            *_grown(2 * width, width, 2, 1),
            nn.ConvTranspose2d(width, channels, 4, 2, 1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            *_shrunk(channels, width),
            *_shrunk(width, 2 * width),
            *_shrunk(2 * width, 4 * width),
            spectral_norm(nn.Conv2d(4 * width, 1, 4)),
            nn.Flatten(0),
        )
        self.generator.apply(_initial)

    def sample(self, count: int) -> Tensor:
        """New images."""
        result: Tensor = self.generator(randn((count, self.noise)))
        return result

    def discriminator_loss(self, real: Tensor) -> Tensor:
        """How badly real images and as many made ones are told apart."""
        made = self.sample(real.shape[0]).detach()
        right, wrong = self.discriminator(real), self.discriminator(made)
        return binary_cross_entropy_with_logits(
            right, ones_like(right)
        ) + binary_cross_entropy_with_logits(wrong, zeros_like(wrong))

    def generator_loss(self, count: int) -> Tensor:
        """How badly made images pass for real ones."""
        scores = self.discriminator(self.sample(count))
        return binary_cross_entropy_with_logits(scores, ones_like(scores))


def _grown(before: int, after: int, stride: int, padding: int) -> list[nn.Module]:
    grow = nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False)
    return [grow, nn.BatchNorm2d(after), nn.ReLU()]


def _shrunk(before: int, after: int) -> list[nn.Module]:
    return [spectral_norm(nn.Conv2d(before, after, 4, 2, 1)), nn.LeakyReLU(0.1)]


def _initial(module: nn.Module) -> None:
    """Narrow normal weights; norms around one."""
    if isinstance(module, nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d) and module.weight is not None:
        nn.init.normal_(module.weight, 1.0, 0.02)
