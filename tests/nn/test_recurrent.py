"""Recurrent layers as one scan: the graph and the code do not grow with the sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import nn
from ridgeline.graph.node import topological
from ridgeline.record.values import read


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_the_graph_does_not_grow_with_the_length(kind: type[nn.Module]) -> None:
    layer = kind(3, 4, num_layers=2, bidirectional=True)

    def size(length: int) -> int:
        y, _ = layer(rl.zeros(length, 2, 3))
        return len(topological([read(y.sum())]))

    assert size(2) == size(200)


def test_a_training_step_has_as_many_kernels_for_any_length() -> None:
    layer = nn.LSTM(3, 4)

    @rl.jit
    def step(x: rl.Tensor) -> rl.Tensor:
        layer.zero_grad()
        loss = layer(x)[0].square().mean()
        loss.backward()
        return loss

    counts = []
    for length in (3, 300):
        step(rl.zeros(length, 2, 3))
        counts.append(sum(1 for _ in step.program.layout.symbols()))
    assert counts[0] == counts[1]


def test_a_long_sequence_trains_like_torch() -> None:
    theirs = torch.nn.GRU(3, 5)
    ours = nn.GRU(3, 5)
    ours.load_state_dict({k: rl.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((150, 2, 3)).astype(np.float32)
    step = rl.jit(lambda x: ours(x)[0].square().sum().backward())
    step(rl.tensor(x))
    theirs(torch.tensor(x))[0].square().sum().backward()
    for name, parameter in theirs.named_parameters():
        got = dict(ours.named_parameters())[name].grad
        np.testing.assert_allclose(got.numpy(), parameter.grad.numpy(), rtol=2e-4, atol=2e-4)
