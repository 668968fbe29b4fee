"""Functions over what each rank holds: collectives by hand inside a program over a mesh."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.errors import BadValueError, PlacementError

RANDOM = np.random.default_rng(0)
X, W = RANDOM.standard_normal((6, 4)), RANDOM.standard_normal((4, 8))


def product(mesh: dist.Mesh) -> Any:
    """Rows along dp, the summed dimension along tp; the sum is asked for by hand."""

    def part(x: rl.Tensor, w: rl.Tensor) -> rl.Tensor:
        assert tuple(x.shape) == (3, 2) and tuple(w.shape) == (2, 8)
        return dist.functional.all_reduce(x @ w, group=mesh.group("tp"))

    given = [{"dp": dist.Shard(0), "tp": dist.Shard(1)}, {"tp": dist.Shard(0)}]
    return dist.local(part, given, {"dp": dist.Shard(0)})


def by_hand(mode: str) -> list[np.ndarray]:
    mesh = dist.Mesh(dp=2, tp=2)
    where = mesh.device()
    x, w = (rl.tensor(a).to(where).requires_grad_() for a in (X, W))

    def loss_of(x: rl.Tensor, w: rl.Tensor) -> rl.Tensor:
        return product(mesh)(x, w).square().sum()

    with rl.eager() if mode == "eager" else nullcontext():
        if mode == "jit":
            loss, (dx, dw) = rl.jit(rl.value_and_grad(loss_of, (0, 1)))(x.detach(), w.detach())
        else:
            loss = loss_of(x, w)
            loss.backward()
            dx, dw = x.grad, w.grad
        return [dist.full_tensor(each.detach()).numpy().copy() for each in (loss, dx, dw)]


@pytest.mark.parametrize("mode", ["plain", "eager", "jit"])
def test_a_sum_by_hand(mode: str) -> None:
    with rl.config.override(tier="interpreter"):
        ranks = dist.run(by_hand, mode, ranks=4)
    y = X @ W
    for loss, dx, dw in ranks:
        np.testing.assert_allclose(loss, np.square(y).sum(), rtol=1e-12)
        np.testing.assert_allclose(dx, 2 * y @ W.T, rtol=1e-12)
        np.testing.assert_allclose(dw, X.T @ (2 * y), rtol=1e-12)


def test_sums_that_are_left_to_propagation() -> None:
    def work() -> np.ndarray:
        where = dist.Mesh(tp=2).device()
        x, w = (rl.tensor(a).to(where) for a in (X, W))
        given = [{"tp": dist.Shard(1)}, {"tp": dist.Shard(0)}]
        made = dist.local(lambda x, w: x @ w, given, {"tp": dist.Partial()})(x, w)
        return dist.full_tensor(made + 1).numpy()

    for found in dist.run(work, ranks=2):
        np.testing.assert_allclose(found, X @ W + 1, rtol=1e-12)


def test_parts_that_there_cannot_be() -> None:
    def work() -> None:
        where = dist.Mesh(tp=3).device()
        x = rl.tensor(X).to(where)
        with pytest.raises(PlacementError, match="no multiple of the 3 ranks"):
            dist.local(lambda x: x, [{"tp": dist.Shard(1)}], {})(x)
        with pytest.raises(PlacementError, match="no dimension 2 to be sharded along tp"):
            dist.local(lambda x: x, [{"tp": dist.Shard(2)}], {})(x)
        with pytest.raises(BadValueError, match="no axis 'dp'"):
            dist.local(lambda x: x, [{"dp": dist.Shard(0)}], {})(x)
        with pytest.raises(BadValueError, match="2 tensors for a function over parts of 1"):
            dist.local(lambda x: x, [{}], {})(x, x)
        with pytest.raises(PlacementError, match="tensors on a mesh, and this one is on cpu"):
            dist.local(lambda x: x, [{}], {})(rl.tensor(X))

    dist.run(work, ranks=3)
