"""Collectives in compiled programs: started early, waited for late, in one order on all ranks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from ridgeline.communicators import threads
from ridgeline.distributed import functional
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import TensorType, leaf
from ridgeline.graph.passes.libraries.collectives import split_collectives
from ridgeline.graph.printer import format_graph
from ridgeline.ops import collectives, started
from ridgeline.ops.collectives import GroupName
from ridgeline.record.captures import CaptureError


def test_a_collective_is_started_and_waited_for() -> None:
    a = leaf(TensorType((4, 2), rl.float32))
    group = GroupName("world", "world", 2)
    first = collectives.all_reduce(a, group)
    second = collectives.all_gather(a * a, group)
    split = split_collectives(Graph([first * first, second], [a]))
    text = format_graph(split.outputs)
    assert [re.sub(r" \[.*", "", line) for line in text.splitlines()] == [
        "%0 = leaf : float32[4, 2]",
        "%1 = start_all_reduce %0",
        "%2 = wait %1, %0",
        "%3 = mul %2, %2 : float32[4, 2]",
        "%4 = mul %0, %0 : float32[4, 2]",
        "%5 = start_all_gather %1, %4",  # after the one before
        "%6 = wait %5, %4",
        "return %3, %6",
    ]


def test_other_work_comes_between(capsys: pytest.CaptureFixture[str]) -> None:
    """Gradients of layers: each is on its way while those of the layers before are computed."""

    def work() -> np.ndarray:
        rl.manual_seed(0)
        weights = [rl.rand(16, 16, dtype=rl.float64) - 0.5 for _ in range(4)]

        def step(x: Any, *weights: Any) -> list[Any]:
            def loss(*weights: Any) -> Any:
                y = x
                for weight in weights:
                    y = (y @ weight).tanh()
                return y.square().sum()

            slopes = rl.grad(loss, argnums=tuple(range(4)))(*weights)
            return [functional.all_reduce(slope) for slope in reversed(slopes)]

        jitted = rl.jit(step)
        x = rl.full((8, 16), 0.1 * (1 + dist.world().rank), dtype=rl.float64)
        made = jitted(x, *weights)
        want = [each.numpy() for each in step(x, *weights)]
        for ours, theirs in zip(made, want, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-12 * abs(theirs).max())
        if dist.world().rank == 0:
            jitted.explain()
        return made[0].numpy()

    first, second = dist.run(work, ranks=2)
    text = capsys.readouterr().out
    np.testing.assert_array_equal(first, second)
    lines = [line for line in text.splitlines() if line.strip().startswith("all_reduce")]
    assert len(lines) == 4 and all("test_overlap.py:" in line for line in lines)
    assert all("world" in line and "2.05 kB" in line for line in lines), lines
    hidden = [re.search(r"behind (\d+) kernels", line) for line in lines]
    assert [int(each[1]) if each else 0 for each in hidden] == [6, 4, 2, 0], text


def test_times_are_exposed_or_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collective that began at 1 and was over at 4 was waited for from 5 to 5.5."""
    clock = iter([1.0, 5.0, 5.5])
    monkeypatch.setattr(started, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(threads, "perf_counter", lambda: 4.0)

    def work() -> tuple[float, float]:
        x = leaf(TensorType((3,), rl.float64))
        made = collectives.all_reduce(x, GroupName.of(dist.world()))
        (total,) = evaluate(split_collectives(Graph([made], [x])).outputs, {x: np.ones(3)})
        assert total.tolist() == [1.0] * 3
        times = dist.world().counters.times["world"]
        assert "exposed    500.000 ms, hidden   3000.000 ms" in str(dist.world().counters)
        return times.exposed, times.hidden

    assert dist.run(work, ranks=1) == [(0.5, 3.0)]


def test_kernels_of_a_mesh_are_not_measured_one_by_one() -> None:
    def work() -> None:
        model = dist.parallelize(rl.nn.Linear(3, 2), dist.Mesh(dp=2))
        step = rl.jit(lambda x: model(x).sum())
        with pytest.raises(CaptureError, match="other ranks answer"):
            step.profile(rl.ones(4, 3))

    with rl.config.override(tier="compiled"):
        dist.run(work, ranks=2)


def test_state_that_is_updated_behind_collectives() -> None:
    """A training step whose updates wait for the mean of the gradients; twelve steps, two ways."""

    def train(jitted: bool) -> np.ndarray:
        rl.manual_seed(0)
        model = rl.nn.Sequential(rl.nn.Linear(5, 7), rl.nn.Tanh(), rl.nn.Linear(7, 3)).double()
        optimizer = rl.optim.AdamW(model.parameters(), lr=0.05)

        def step(x: Any) -> Any:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for each in model.parameters():
                dist.all_reduce(each.grad, dist.ReduceOp.AVG)
            optimizer.step()
            return loss

        run = rl.jit(step) if jitted else step
        rank = dist.world().rank
        for index in range(12):
            run(rl.tensor(np.random.default_rng(index * 9 + rank).normal(size=(4, 5))))
        return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])

    plain = dist.run(train, False, ranks=3)
    compiled = dist.run(train, True, ranks=3)
    for ours, theirs in zip(plain, compiled, strict=True):
        np.testing.assert_array_equal(ours, plain[0])  # ranks stay together
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def test_state_is_overwritten_after_the_last_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """A loss that is only reported is waited for before weights are written over themselves."""

    def work() -> None:
        model = rl.nn.Linear(64, 64)
        optimizer = rl.optim.SGD(model.parameters(), lr=0.1)

        @rl.jit
        def step(x: Any) -> Any:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return functional.all_reduce(loss.detach(), "mean")

        for _ in range(3):
            step(rl.ones(8, 64))
        if dist.world().rank == 0:
            step.explain()

    dist.run(work, ranks=2)
    assert re.search(r"may lie over the inputs they replace: [2-9]", capsys.readouterr().out)
