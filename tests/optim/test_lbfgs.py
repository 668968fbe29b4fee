"""L-BFGS: torch's trajectory without a line search, and convergence with one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ridgeline import nn, optim
from ridgeline.data.dataset import as_array
from ridgeline.optim.optimizer import OptimizerError
from ridgeline.tensors.tensor import tensor

MATRIX = np.diag([1.0, 3.0, 10.0]).astype(np.float32)
START = np.array([1.0, -2.0, 0.5], np.float32)


def quadratic(weight: Any, matrix: Any) -> Any:
    return 0.5 * (weight * (matrix @ weight)).sum() + (weight**4).sum()


def run(lib: Any, settings: dict[str, Any], steps: int) -> list[Any]:
    ours = lib is optim
    make = tensor if ours else torch.tensor
    weight = (nn if ours else torch.nn).Parameter(make(START.copy()))
    rule = lib.LBFGS([weight], **settings)

    def closure() -> Any:
        rule.zero_grad()
        loss = quadratic(weight, make(MATRIX))
        loss.backward()
        return loss

    seen = []
    for _ in range(steps):
        rule.step(closure)
        seen.append(as_array(weight) if ours else weight.detach().numpy().copy())
    return seen


def test_follows_torch_without_a_line_search() -> None:
    settings = {"lr": 0.3, "max_iter": 4, "history_size": 3}
    for mine, theirs in zip(run(optim, settings, 3), run(torch.optim, settings, 3)):
        assert np.allclose(mine, theirs, atol=1e-4)


def test_converges_with_strong_wolfe() -> None:
    end = run(optim, {"line_search_fn": "strong_wolfe"}, 3)[-1]
    assert np.max(np.abs(end)) < 1e-3


def test_rosenbrock() -> None:
    point = nn.Parameter(tensor([-1.5, 2.0]))
    rule = optim.LBFGS([point], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Any:
        rule.zero_grad()
        loss = (1 - point[0]) ** 2 + 100 * (point[1] - point[0] ** 2) ** 2
        loss.backward()
        return loss

    rule.step(closure)
    assert np.allclose(as_array(point), 1.0, atol=1e-2)


def test_mistakes_are_named() -> None:
    weight = nn.Parameter(tensor([1.0]))
    with pytest.raises(OptimizerError, match="needs a closure"):
        optim.LBFGS([weight]).step()
    with pytest.raises(OptimizerError, match="one group"):
        optim.LBFGS([{"params": [weight]}, {"params": [nn.Parameter(tensor([1.0]))]}])
    with pytest.raises(OptimizerError, match="line_search_fn"):
        optim.LBFGS([weight], line_search_fn="guess")
