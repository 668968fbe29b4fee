"""U-Net: an image to an image of the same size, through ever coarser stages and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ridgeline import nn
from ridgeline.errors import ShapeError
from ridgeline.tensors.public import cat
from ridgeline.tensors.tensor import Tensor


def double_convolution(before: int, after: int) -> nn.Sequential:
    """Two 3×3 convolutions, each normalised and followed by a ReLU."""
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Images [n, channels, h, w] to scores [n, classes, h, w]; h and w divide by 2 per stage."""

    def __init__(
        self,
        channels: int = 3,
        classes: int = 2,
        widths: Sequence[int] = (64, 128, 256, 512, 1024),
    ) -> None:
        super().__init__()
        self.stages = len(widths) - 1
        self.first = double_convolution(channels, widths[0])
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(double_convolution(a, b) for a, b in pairwise(widths))
        back = list(pairwise(reversed(widths)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in back)
        self.merge = nn.ModuleList(double_convolution(2 * b, b) for _, b in back)
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        multiple = 1 << self.stages
        if any(int(size) % multiple for size in images.shape[-2:]):
            raise ShapeError(
                f"U-Net with {self.stages} stages halves images {self.stages} times, which "
                f"{list(images.shape[-2:])} does not allow",
                help=f"pad both sides to multiples of {multiple}",
            )
        fine = [self.first(images)]
        for down in self.down:
            fine.append(down(self.pool(fine[-1])))
        x = fine.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(cat([fine.pop(), up(x)], 1))
        result: Tensor = self.last(x)
        return result
