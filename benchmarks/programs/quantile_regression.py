"""Quantile regression: a loss with a gradient written by hand, and blocks that are recomputed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.programs.switch import (
    F,
    Step,
    checkpoint,
    compiled,
    initialise,
    nn,
    source,
    tensor,
    torch,
)


@dataclass(frozen=True)
class Sizes:
    batch: int = 256
    features: int = 32
    width: int = 256
    blocks: int = 4


DEFAULT, SMALL = Sizes(), Sizes(batch=32, features=8, width=32, blocks=2)
QUANTILES = (0.1, 0.5, 0.9)


class PinballLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, prediction, target, quantiles):
        error = target - prediction
        ctx.save_for_backward(error, quantiles)
        return torch.maximum(quantiles * error, (quantiles - 1) * error).mean()

    @staticmethod
    def backward(ctx, grad_output):
        error, quantiles = ctx.saved_tensors
        slope = torch.where(error > 0, -quantiles, 1 - quantiles)
        return grad_output * slope / error.numel(), None, None


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.inside = nn.Linear(sizes.features, sizes.width)
        self.blocks = nn.ModuleList([Block(sizes.width) for _ in range(sizes.blocks)])
        self.outside = nn.Linear(sizes.width, len(QUANTILES))

    def forward(self, x):
        x = self.inside(x)
        for block in self.blocks:
            x = checkpoint(block, x)
        return self.outside(x)


def make(sizes: Sizes) -> Step:
    numbers = source(1)
    count = 16 * sizes.batch
    given = numbers.standard_normal((count, sizes.features))
    noise = numbers.standard_normal(count) * (0.1 + np.abs(given[:, 1]))
    x, y = tensor(given), tensor(np.sin(given[:, :1]) + noise[:, None])
    quantiles = tensor(QUANTILES)
    model = initialise(Model(sizes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @compiled
    def train(inputs, targets):
        optimizer.zero_grad()
        loss = PinballLoss.apply(model(inputs), targets, quantiles)
        loss.backward()
        optimizer.step()
        return loss

    def step(number: int):
        begin = number * sizes.batch % count
        chosen = slice(begin, begin + sizes.batch)
        return train(x[chosen], y[chosen])

    return step
