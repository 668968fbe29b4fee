"""Clipping of gradients, as one node and one by one. The truth is torch in float64, and the count
of what is recorded."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline.graph.node import topological
from ridgeline.ops.control.call import CALL
from ridgeline.record.values import read

utils: Any = rl.nn.utils
SHAPES = ((3,), (2, 4), (), (1, 5, 2), (7, 3))


@pytest.fixture(autouse=True, params=["auto", "compiled", "interpreter"])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    with rl.config.override(tier=request.param, background=False):
        yield request.param


def values(seed: int) -> list[Any]:
    draws = np.random.default_rng(seed)
    return [np.asarray(draws.normal(size=shape)) for shape in SHAPES]


def parameters(library: Any, seed: int, dtype: str = "float32") -> list[Any]:
    """Parameters whose gradients come from a backward pass, and so wait to be computed."""
    kind = getattr(library, dtype)
    members = [library.tensor(v, dtype=kind).requires_grad_() for v in values(seed)]
    factors = [library.tensor(v, dtype=kind) for v in values(seed + 100)]
    sum((p * p * f).sum() for p, f in zip(members, factors)).backward()
    return members


def close(mine: Any, theirs: Any, rel: float = 2e-6) -> None:
    for a, b in zip(mine, theirs, strict=True):
        wanted = b.grad.detach().to(torch.float64).numpy()
        found = np.asarray(a.grad.detach().float().tolist())
        np.testing.assert_allclose(found, wanted, rtol=rel, atol=rel)


@pytest.mark.parametrize("norm_type", [0.5, 1.0, 2, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 1, 1000.0, math.inf])
def test_norms_and_limits(norm_type: float, limit: float) -> None:
    mine, theirs = parameters(rl, 1), parameters(torch, 1, "float64")
    total = utils.clip_grad_norm_(mine, limit, norm_type)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, limit, norm_type)
    assert float(total) == pytest.approx(float(wanted), rel=3e-6)
    close(mine, theirs)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("strict", [False, True])
def test_flags(foreach: bool | None, strict: bool) -> None:
    mine, theirs = parameters(rl, 2), parameters(torch, 2, "float64")
    utils.clip_grad_norm_(mine, 0.3, error_if_nonfinite=strict, foreach=foreach)
    torch.nn.utils.clip_grad_norm_(theirs, 0.3, error_if_nonfinite=strict, foreach=foreach)
    utils.clip_grad_value_(mine, 0.05, foreach=foreach)
    torch.nn.utils.clip_grad_value_(theirs, 0.05, foreach=foreach)
    close(mine, theirs)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norms_that_are_no_numbers(bad: float) -> None:
    mine, theirs = parameters(rl, 3), parameters(torch, 3, "float64")
    mine[1].grad = rl.full((2, 4), bad)
    theirs[1].grad = torch.full((2, 4), bad, dtype=torch.float64)
    with pytest.raises(rl.RidgelineError, match="norm of the gradients"):
        utils.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)
    close(mine, theirs)
    utils.clip_grad_norm_(mine, 1.0)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    close(mine, theirs)


def test_nothing_to_clip() -> None:
    assert float(utils.clip_grad_norm_([], 1.0)) == 0.0
    assert float(utils.clip_grad_norm_(iter([rl.ones(2)]), 1.0)) == 0.0
    utils.clip_grad_value_([], 1.0)
    mine, theirs = parameters(rl, 4), parameters(torch, 4, "float64")
    mine[2].grad = theirs[2].grad = None
    total = utils.clip_grad_norm_(iter(mine), 0.1)
    assert float(total) == pytest.approx(float(torch.nn.utils.clip_grad_norm_(theirs, 0.1)))
    close(mine[:2] + mine[3:], theirs[:2] + theirs[3:])
    utils.clip_grad_norm_(mine[0], 0.01)
    torch.nn.utils.clip_grad_norm_(theirs[0], 0.01)
    close(mine[:1], theirs[:1])


def test_limits_are_read_in_every_call() -> None:
    for limit in (0.1, 0.7, math.inf, 0.1, -1.0, 0.0, -0.0, math.nan, 5.0):
        mine, theirs = parameters(rl, 5), parameters(torch, 5, "float64")
        utils.clip_grad_norm_(mine, limit)
        torch.nn.utils.clip_grad_norm_(theirs, limit)
        close(mine, theirs)
        if limit >= 0:
            utils.clip_grad_value_(mine, limit)
            torch.nn.utils.clip_grad_value_(theirs, limit)
            close(mine, theirs)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_element_types(dtype: str) -> None:
    mine, theirs = parameters(rl, 6, dtype), parameters(torch, 6, dtype)
    total = utils.clip_grad_norm_(mine, 0.4)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, 0.4)
    assert total.dtype is getattr(rl, dtype)
    rel = {"float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    assert float(total) == pytest.approx(float(wanted), rel=rel)
    if dtype == "float64":
        for a, b in zip(mine, theirs):
            np.testing.assert_allclose(a.grad.tolist(), b.grad.tolist(), rtol=1e-12)
    else:
        close(mine, theirs, rel)


def test_element_types_side_by_side() -> None:
    mine, theirs = parameters(rl, 7), parameters(torch, 7, "float64")
    mine += parameters(rl, 8, "float64")
    theirs += parameters(torch, 8, "float64")
    utils.clip_grad_norm_(mine, 0.4)
    torch.nn.utils.clip_grad_norm_(theirs, 0.4)
    close(mine, theirs)


def test_gradients_that_are_views_or_shared() -> None:
    for clip, amount in (("clip_grad_norm_", 0.3), ("clip_grad_value_", 0.2)):
        both = {}
        for library, dtype in ((rl, rl.float32), (torch, torch.float64)):
            members = [library.ones(3, dtype=dtype), library.ones(2, 4, dtype=dtype)]
            flat = library.arange(15, dtype=dtype)
            members[0].grad, members[1].grad = flat[3:6], flat[4:12].reshape(4, 2).t()
            getattr(library.nn.utils, clip)(members, amount)
            one = library.ones(3, dtype=dtype)
            one.grad = members[0].grad  # a tensor twice is scaled twice
            getattr(library.nn.utils, clip)([members[0], one], amount / 2)
            both[library] = [flat, *(p.grad for p in members)]
        for a, b in zip(both[rl], both[torch], strict=True):
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=2e-6)


def test_arrays_of_numpy_see_what_is_written() -> None:
    array = np.array([3.0, 4.0], np.float32)
    p = rl.zeros(2)
    p.grad = rl.from_numpy(array)
    utils.clip_grad_norm_([p], 1.0)
    np.testing.assert_allclose(array, [0.6, 0.8], rtol=1e-5)


def test_old_values_stay_and_graphs_are_cut() -> None:
    x: Any = rl.tensor([3.0, 4.0], requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    old = x.grad * 1
    total = utils.clip_grad_norm_([x], 1.0)
    assert not total.requires_grad
    (x * x.grad.detach() * total).sum().backward()
    np.testing.assert_allclose(old.tolist(), [6.0, 8.0])
    y: Any = rl.tensor([3.0, 4.0], requires_grad=True)
    (y * y).sum().backward()
    total = utils.clip_grad_norm_([y], 1.0)
    clipped, y.grad = y.grad, None
    (y * clipped * total).sum().backward()  # neither lets gradients pass
    np.testing.assert_allclose(y.grad.tolist(), [6.0, 8.0], rtol=1e-5)


def test_modes(tier: str) -> None:
    mine, theirs = parameters(rl, 9), parameters(torch, 9, "float64")
    torch.nn.utils.clip_grad_norm_(theirs, 0.3)
    with rl.eager():
        utils.clip_grad_norm_(mine, 0.3)
    close(mine, theirs)
    mine = parameters(rl, 9)
    rl.jit(lambda: utils.clip_grad_norm_(mine, 0.3))()
    close(mine, theirs)
    mine = parameters(rl, 9)
    with rl.autograd.detect_anomaly():
        utils.clip_grad_norm_(mine, 0.3)
    close(mine, theirs)
    mine = parameters(rl, 9)
    utils.clip_grad_norm_(mine, rl.tensor(0.3))
    close(mine, theirs)


def test_threads() -> None:
    found: list[list[Any]] = []

    def work() -> None:
        for seed in range(4):
            mine = parameters(rl, seed)
            utils.clip_grad_norm_(mine, 0.3)
            found.append([seed, mine])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 16
    for seed, mine in found:
        theirs = parameters(torch, seed, "float64")
        torch.nn.utils.clip_grad_norm_(theirs, 0.3)
        close(mine, theirs)


def test_all_gradients_are_one_node() -> None:
    mine: list[Any] = [rl.tensor(v).requires_grad_() for v in values(10)]
    for p in mine:
        p.grad = rl.tensor(np.ones(tuple(p.shape)))
    total = utils.clip_grad_norm_(mine, 0.5)
    made = [read(total), *(read(p.grad) for p in mine)]
    order = [n for n in topological(made, lambda n: n.buffer is not None) if n.buffer is None]
    assert [n.op for n in order].count(CALL) == 1
    assert len(order) == 1 + len(made)  # the call, and what it gives
