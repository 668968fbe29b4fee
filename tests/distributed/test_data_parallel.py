"""DistributedDataParallel, SyncBatchNorm and DistributedSampler: ranks with samples of their own.

The truth is one process that is given the samples of all.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import data, distributed as dist, nn, optim
from ridgeline.errors import GradientError, RidgelineError
from ridgeline.nn import functional as F
from ridgeline.nn.parallel import DistributedDataParallel

RANKS, SAMPLES = 3, 12
_random = np.random.default_rng(0)
X = _random.standard_normal((SAMPLES, 2, 4, 4))
Y = _random.integers(0, 3, SAMPLES)


def network() -> nn.Module:
    """With batch norm, a frozen layer, and weights that are used twice."""
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3),
    )  # fmt: skip
    net[4].weight.requires_grad_(False)
    return net.double()


def train(mode: str, grouped: bool) -> list[np.ndarray]:
    """Losses, norms, weights and statistics of steps of two passes each, the first unjoined."""
    if grouped:
        dist.init_process_group()
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
    rl.manual_seed(3 + rank)  # the first rank's weights count
    net, model = network(), None
    if grouped:
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        model = DistributedDataParallel(net)
    optimizer = optim.AdamW((model or net).parameters(), lr=1e-2)
    x, y = rl.tensor(X[rank::ranks]), rl.tensor(Y[rank::ranks])

    def once(x: rl.Tensor) -> rl.Tensor:
        loss = F.cross_entropy((model or net)(x), y) / 2
        loss.backward()
        return loss

    def update() -> rl.Tensor:
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()
        optimizer.zero_grad()
        return norm

    if mode == "jit":
        once, update = rl.jit(once), rl.jit(update)
    found = []
    with rl.eager() if mode == "eager" else nullcontext():
        for _ in range(3):
            with model.no_sync() if model is not None else nullcontext():
                losses = once(x).item()
            losses += once(x * 1.1).item()
            mean = dist.world().all_reduce(np.array(losses), "mean") if grouped else losses
            found += [np.array(mean), np.array(update().item())]
    return found + [v.detach().numpy().copy() for v in net.state_dict().values()]


@pytest.mark.parametrize("tier", ["interpreter", "compiled"])
@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
def test_ranks_come_to_what_one_process_does(mode: str, tier: str) -> None:
    with rl.config.override(tier=tier):
        expected = train("plain", False)
        for found in dist.run(train, mode, True, ranks=RANKS):
            for ours, one in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, one, rtol=0, atol=1e-11 * (np.abs(one).max() + 1))


class Branches(nn.Module):
    """Two layers, of which a pass may leave one out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 1), nn.Linear(3, 1)
        self.c = nn.Linear(3, 1)

    def forward(self, x: rl.Tensor, which: str) -> Any:
        return getattr(self, which)(x).sum()


def test_parameters_that_some_ranks_leave_out() -> None:
    def work(unused: bool) -> list[Any]:
        dist.init_process_group()
        model = DistributedDataParallel(Branches(), find_unused_parameters=unused)
        model(rl.ones(2, 3) * (dist.get_rank() + 1), "ab"[dist.get_rank()]).backward()
        return [None if p.grad is None else p.grad.tolist() for p in model.module.parameters()]

    for found in dist.run(work, True, ranks=2):
        # sums over two samples, of the one rank that has them, over two ranks
        assert found == [[[1.0] * 3], [1.0], [[2.0] * 3], [1.0], None, None]
    with pytest.raises(GradientError, match=r"does not depend on (a|b).bias"):
        dist.run(work, False, ranks=2)


def test_evaluating_on_one_rank_alone() -> None:
    """Nothing is sent: statistics are those of the first rank since the last backward pass."""

    def work() -> tuple[float, list[float]]:
        dist.init_process_group()
        rl.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).double())
        x = rl.tensor(np.random.default_rng(dist.get_rank()).standard_normal((5, 2)))
        model(x).sum().backward()
        model.eval()
        value = model(rl.ones(1, 2, dtype=rl.float64)).item() if dist.get_rank() == 1 else 0.0
        return value, model.module[0].running_mean.tolist()

    (_, first), (value, second) = dist.run(work, ranks=2)
    assert first == second and value != 0.0
    own = np.random.default_rng(0).standard_normal((5, 2))
    np.testing.assert_allclose(first, 0.1 * own.mean(0), rtol=1e-12)


def test_a_copy_belongs_to_its_rank_alone() -> None:
    def work() -> list[float]:
        dist.init_process_group()
        model = DistributedDataParallel(nn.Linear(2, 1, bias=False))
        kept = copy.deepcopy(model)
        kept(rl.ones(1, 2) * dist.get_rank()).sum().backward()
        return kept.module.weight.grad.flatten().tolist()

    assert dist.run(work, ranks=2) == [[0.0, 0.0], [1.0, 1.0]]


def test_a_group_has_to_be_formed() -> None:
    with pytest.raises(RidgelineError, match="DistributedDataParallel needs a process group"):
        DistributedDataParallel(nn.Linear(2, 1))


def test_a_group_of_some_ranks() -> None:
    def work() -> float:
        dist.init_process_group()
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        rank = dist.get_rank()
        net = nn.Linear(1, 1, bias=False)
        model = DistributedDataParallel(net, process_group=pairs[rank // 2])
        model(rl.full((1, 1), float(rank))).sum().backward()
        return float(net.weight.grad.item())

    assert dist.run(work, ranks=4) == [0.5, 0.5, 2.5, 2.5]


@pytest.mark.parametrize("count", [10, 2])
def test_samples_are_shared_out_over_the_group(count: int) -> None:
    def work() -> list[int]:
        dist.init_process_group()
        return list(data.DistributedSampler(range(count), shuffle=False))

    found = dist.run(work, ranks=3)
    torch = pytest.importorskip("torch")
    theirs = torch.utils.data.DistributedSampler
    assert found == [list(theirs(range(count), 3, r, shuffle=False)) for r in range(3)]


def test_batches_of_uneven_length() -> None:
    """Statistics count every sample once, also where a rank has fewer, or none."""
    x = np.random.default_rng(0).standard_normal((5, 3))
    torch = pytest.importorskip("torch")
    theirs = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    given = torch.tensor(x, requires_grad=True)
    expected = theirs(given)
    expected.square().mul(torch.arange(1.0, 4.0)).sum().backward()

    def work() -> tuple[np.ndarray, ...]:
        dist.init_process_group()
        norm = nn.SyncBatchNorm(3).double()
        begin = [0, 3, 5, 5][dist.get_rank() : dist.get_rank() + 2]
        own = rl.tensor(x[slice(*begin)], requires_grad=True)
        made = norm(own)
        (made.square() * rl.arange(1, 4)).sum().backward()
        assert norm.running_mean is not None and norm.running_var is not None
        kept = norm.running_mean.numpy(), norm.running_var.numpy()
        return (made.detach().numpy(), own.grad.numpy(), *kept)

    found = dist.run(work, ranks=3)
    for n, whole in ((0, expected.detach()), (1, given.grad)):
        joined = np.concatenate([each[n] for each in found])
        np.testing.assert_allclose(joined, whole.numpy(), rtol=1e-9, atol=1e-12)
    for *_, mean, variance in found:
        np.testing.assert_allclose(mean, theirs.running_mean.numpy(), rtol=1e-12)
        np.testing.assert_allclose(variance, theirs.running_var.numpy(), rtol=1e-12)
