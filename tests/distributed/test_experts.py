"""Mixtures of experts: against loops in NumPy, and over meshes against one process."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn, optim
from ridgeline.communicators.current import current_rank
from ridgeline.errors import BadValueError, ShapeError

WIDTH, INNER, EXPERTS = 6, 5, 4
X = np.random.default_rng(0).standard_normal((3, 5, WIDTH))


def layer(capacity: float | None = None, top_k: int = 2, experts: int = EXPERTS) -> Any:
    rl.manual_seed(2)
    return nn.MixtureOfExperts(WIDTH, INNER, experts, top_k, capacity=capacity).double()


def by_hand(module: Any, x: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Token after token, choice after choice; and how many rows each expert computes."""
    parts = {name: value.detach().numpy() for name, value in module.named_parameters()}
    tokens = x.reshape(-1, WIDTH)
    scores = tokens @ parts["router.weight"].T
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    found, used = np.zeros_like(tokens), [0] * module.experts
    full = math.inf
    if module.capacity is not None:
        full = math.ceil(module.capacity * len(tokens) * module.top_k / module.experts)
    for row, token in enumerate(tokens):
        best = np.argsort(-shares[row], kind="stable")[: module.top_k]
        for expert in best:
            if used[expert] >= full:
                continue
            used[expert] += 1
            gate, up = (parts[name][expert] @ token for name in ("gates", "ups"))
            made = parts["downs"][expert] @ (gate / (1 + np.exp(-gate)) * up)
            found[row] += made * shares[row, expert] / shares[row, best].sum()
    return found.reshape(x.shape), used


@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
@pytest.mark.parametrize("capacity", [None, 0.7])
def test_one_process(capacity: float | None, mode: str) -> None:
    module = layer(capacity)
    with rl.eager() if mode == "eager" else nullcontext():
        found = (rl.jit(module) if mode == "jit" else module)(rl.tensor(X))
    np.testing.assert_allclose(found.detach().numpy(), by_hand(module, X)[0], rtol=1e-12)


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
def test_gradients_are_those_of_differences(tier: str) -> None:
    with rl.config.override(tier=tier):
        module = layer()
        x = rl.tensor(X[:1], requires_grad=True)
        assert rl.autograd.gradcheck(module, (x,))
        module(x).square().sum().backward()
        step, gradient = 1e-6, module.gates.grad.numpy().copy()
        for place in [(0, 0, 0), (1, 2, 3), (3, 4, 5)]:
            changed = []
            for sign in (1, -1):
                with rl.no_grad():
                    module.gates[place] += sign * step
                    changed.append(module(x).square().sum().item())
                    module.gates[place] -= sign * step
            slope = (changed[0] - changed[1]) / (2 * step)
            assert abs(gradient[place] - slope) < 1e-6


def test_even_choices_have_the_smallest_balancing_loss() -> None:
    module = layer()
    module.balancing = True
    assert module(rl.tensor(X))[1].item() > 1
    with rl.no_grad():
        module.router.weight.zero_()
    assert abs(module(rl.tensor(X))[1].item() - 1) < 1e-12


class Net(nn.Module):
    """A layer before the experts and one behind them."""

    def __init__(self, capacity: float | None, experts: int) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.mixture = nn.MixtureOfExperts(WIDTH, INNER, experts, capacity=capacity, balancing=True)

    def forward(self, x: rl.Tensor) -> Any:
        return self.mixture(rl.tanh(self.first(x)))


def train(axes: dict[str, int], mode: str, capacity: float | None, experts: int, batch: int) -> Any:
    """Losses, gradients and parameters after three steps."""
    rl.manual_seed(0)
    model: Any = Net(capacity, experts).double()
    if axes:
        model = dist.parallelize(model, dist.Mesh(**axes))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x = rl.tensor(np.random.default_rng(batch).standard_normal((batch, 4, WIDTH)))

    def step(x: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        found, balance = model(x)
        loss = found.square().mean() + 0.01 * balance
        loss.backward()
        optimizer.step()
        return loss

    found = {}
    run = rl.jit(step) if mode == "jit" else step
    with rl.eager() if mode == "eager" else nullcontext():
        for number in range(3):
            found[f"loss {number}"] = np.array(run(x).item())
        for path, parameter in model.named_parameters():
            found[path] = dist.full_tensor(parameter).detach().numpy()
            found[f"gradient of {path}"] = dist.full_tensor(parameter.grad).numpy()
    return found


@pytest.mark.parametrize(
    ("axes", "mode", "capacity", "experts", "batch"),
    [
        ({"ep": 2}, "plain", None, 4, 4),
        ({"ep": 2}, "eager", 0.8, 4, 4),
        ({"ep": 2}, "jit", 0.8, 4, 4),
        ({"ep": 4}, "jit", None, 4, 4),
        ({"dp": 2, "ep": 2}, "plain", 0.8, 4, 4),
        ({"dp": 2, "ep": 2}, "jit", None, 4, 4),
        ({"dp": 2}, "plain", None, 4, 4),
        ({"ep": 2}, "plain", 0.8, 3, 5),  # neither experts nor samples come out even
        ({"ep": 3}, "jit", None, 2, 2),  # a rank without experts, and without samples
        ({"ep": 2, "tp": 2}, "jit", None, 4, 4),
        ({"cp": 2, "ep": 2}, "plain", 0.8, 4, 4),
    ],
    ids=str,
)
def test_over_a_mesh(
    axes: dict[str, int], mode: str, capacity: float | None, experts: int, batch: int
) -> None:
    tier = "compiled" if axes == {"ep": 2} and mode == "jit" else "interpreter"
    with rl.config.override(tier=tier):
        expected = train({}, "plain", capacity, experts, batch)
        ranks = math.prod(axes.values())
        for found in dist.run(train, axes, mode, capacity, experts, batch, ranks=ranks):
            for name, value in expected.items():
                error = np.abs(found[name] - value).max() / np.abs(value).max()
                assert error < 1e-9, f"{name} is off by {error}"


def test_ranks_compute_the_rows_of_their_own_experts() -> None:
    used = by_hand(layer(), X)[1]

    def work() -> tuple[int, int]:
        model = dist.parallelize(layer(), dist.Mesh(ep=2))
        model(rl.tensor(X)).sum().item()
        rank = current_rank()
        return rank.grouped_flops, rank.world.counters.bytes("ep", "all_to_all")

    with rl.config.override(tier="interpreter"):
        found = dist.run(work, ranks=2)
    each = 2 * 3 * WIDTH * INNER  # three products of a row
    assert [flops for flops, _ in found] == [sum(used[:2]) * each, sum(used[2:]) * each]
    # rows that a rank has of 15 tokens, or is sent, whichever are more: there and back
    assert all(nbytes <= 2 * (sum(used) * WIDTH * 8) + EXPERTS * 8 for _, nbytes in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts": 0}, "experts is 0"),
        ({"top_k": 5}, "top_k is 5, expected 1 to 4"),
        ({"capacity": 0.0}, "capacity is 0.0"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        nn.MixtureOfExperts(**{"width": 6, "inner": 5, "experts": 4, **settings})
    with pytest.raises(ShapeError, match="experts of width 6"):
        layer()(rl.ones(2, 7, dtype=rl.float64))
