"""Burgers' equation by a network: derivatives of its output in the loss, minimised by L-BFGS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.programs.switch import Step, compiled, initialise, nn, source, tensor, torch


@dataclass(frozen=True)
class Sizes:
    points: int = 2000
    known: int = 100
    width: int = 20
    layers: int = 8


DEFAULT, SMALL = Sizes(), Sizes(points=32, known=16, width=8, layers=2)
NU = 0.01 / math.pi
ITERATIONS = 5  # of L-BFGS in a step


class Network(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        widths = [2, *[sizes.width] * sizes.layers]
        layers = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes.width, 1))

    def forward(self, x, t):
        return self.layers(torch.cat([x, t], dim=1))


def gradient(u, x):
    return torch.autograd.grad(
        u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True
    )[0]


def make(sizes: Sizes) -> Step:
    numbers = source(1)
    x_f = tensor(numbers.uniform(-1, 1, (sizes.points, 1))).requires_grad_()
    t_f = tensor(numbers.uniform(0, 1, (sizes.points, 1))).requires_grad_()
    begin = numbers.uniform(-1, 1, (sizes.known, 1))
    x_u, t_u, u = tensor(begin), tensor(np.zeros_like(begin)), tensor(-np.sin(np.pi * begin))
    dnn = initialise(Network(sizes))
    optimizer = torch.optim.LBFGS(
        dnn.parameters(), lr=0.1, max_iter=ITERATIONS, history_size=10,
        tolerance_grad=0.0, tolerance_change=0.0,
    )  # fmt: skip

    def net_f(x, t):
        u = dnn(x, t)
        u_t, u_x = gradient(u, t), gradient(u, x)
        u_xx = gradient(u_x, x)
        return u_t + u * u_x - NU * u_xx

    @compiled
    def loss_func():
        optimizer.zero_grad()
        loss_u = torch.mean((u - dnn(x_u, t_u)) ** 2)
        loss_f = torch.mean(net_f(x_f, t_f) ** 2)
        loss = loss_u + loss_f
        loss.backward()
        return loss

    return lambda number: optimizer.step(loss_func)
