"""Ranks that begin with weights or random streams of their own go on with those of the first."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn
from ridgeline.communicators.calls import CommunicationError
from ridgeline.functions.random import chosen_generator


def weights(model: nn.Module) -> list[np.ndarray]:
    return [dist.full_tensor(p).detach().numpy().copy() for p in model.parameters()]


@pytest.mark.parametrize("axes", [{"dp": 3}, {"tp": 3}], ids=str)
def test_weights_are_those_of_the_first_rank(axes: dict[str, int]) -> None:
    def work() -> tuple[list[np.ndarray], list[np.ndarray]]:
        rl.manual_seed(10 + dist.world().rank)
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        with rl.no_grad():
            net[1].running_mean += dist.world().rank + 0.5
        own = [p.detach().numpy().copy() for p in net.parameters()]
        model = dist.parallelize(net, dist.Mesh(**axes), dist.Plan(zero=3 * ("dp" in axes)))
        buffer = dist.full_tensor(model[1].running_mean).numpy()
        return own, [*weights(model), buffer]

    with rl.config.override(tier="interpreter"):
        found = dist.run(work, ranks=3)
    assert not np.array_equal(found[0][0][0], found[1][0][0])
    for _, taken in found:
        for ours, first in zip(taken, [*found[0][0], np.full(6, 0.5)], strict=True):
            assert np.array_equal(ours, first)


def test_streams_are_that_of_the_first_rank() -> None:
    """Also where a rank has drawn before the mesh was made; dropout is the same on all ranks."""

    def work() -> tuple[Any, float]:
        rl.manual_seed(10 + dist.world().rank)
        rl.rand(5 * dist.world().rank).tolist()
        mesh = dist.Mesh(tp=2)
        state = chosen_generator().get_state()
        model = dist.parallelize(nn.Dropout(0.5), mesh)
        return state, model(rl.ones(40)).sum().item()

    with rl.config.override(tier="interpreter"):
        (first, dropped), (second, again) = dist.run(work, ranks=2)
    assert first == second == (10, 0)
    assert dropped == again


def test_ranks_that_agree_send_no_weights() -> None:
    def work() -> int:
        rl.manual_seed(1)
        net, mesh = nn.Linear(100, 100), dist.Mesh(dp=2)
        dist.parallelize(net, mesh)
        return mesh.world.counters.bytes()

    assert max(dist.run(work, ranks=2)) < 200


@pytest.mark.parametrize(
    ("width", "layers", "message"),
    [
        (5, 2, r"rank 0 has 0.weight: float32\[4, 4\], rank 1 0.weight: float32\[5, 4\]"),
        (4, 3, r"rank 0 has nothing more, rank 1 2.weight: float32\[4, 4\]"),
    ],
)
def test_different_models_are_refused(width: int, layers: int, message: str) -> None:
    def work() -> None:
        second = dist.world().rank == 1
        sizes = [4, width if second else 4, *[4] * ((layers if second else 2) - 1)]
        net = nn.Sequential(*[nn.Linear(a, b) for a, b in pairwise(sizes)])
        dist.parallelize(net, dist.Mesh(dp=2))

    with pytest.raises(CommunicationError, match=message):
        dist.run(work, ranks=2)
