"""Work on a mesh beside other work of the same thread: who computes what, and when."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, nn
from ridgeline.record import graph_recorder, recorder
from ridgeline.sharding.memory import on_mesh
from tests.distributed.training import LABELS, TOKENS, _loss, gpt2, llama

KNOWN = 6  # steps after which calls are matched


def plain(x: rl.Tensor) -> rl.Tensor:
    """Work of no mesh."""
    return ((x * 2).exp() + x).sum(0)


def last_programs(step: Callable[[], Any]) -> list[str]:
    """How the flushes of a step are computed that came before."""
    for _ in range(KNOWN):
        step()
    with rl.record_flushes() as log:
        step()
    return [flush.program for flush in log.flushes]


@pytest.fixture
def taped(nothing_recorded: None) -> Any:
    with rl.config.override(tier="compiled", tape=True):
        yield


def test_calls_are_matched_where_a_mesh_was_made(taped: None) -> None:
    dist.Mesh(dp=1)
    model = dist.parallelize(nn.Linear(3, 2), dist.Mesh(dp=1))
    model(rl.ones(4, 3)).sum().item()
    x = rl.tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    assert last_programs(lambda: plain(x).tolist()) == ["matched"]


def test_calls_between_those_over_a_mesh_are_matched(taped: None) -> None:
    def work() -> list[str]:
        model = dist.parallelize(nn.Linear(3, 2), dist.Mesh(dp=2))
        x = rl.tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3))

        def step() -> Any:
            part = (x * 2).exp()
            hidden = model(x)  # waits on the mesh
            found = (part + x).sum(0).tolist()
            hidden.sum().item()
            return found

        programs = last_programs(step)
        flushes = [program for program in programs if program == "matched"]
        assert len(programs) == 2, programs  # the other is the mesh's
        return flushes

    assert dist.run(work, ranks=2) == [["matched"]] * 2


def train_with(between: Callable[[Any, Any], None], ranks: int = 2) -> list[list[float]]:
    """Losses of a few steps, with something that each rank does while gradients wait."""

    def work() -> list[float]:
        rl.manual_seed(0)
        mesh = dist.Mesh(dp=ranks)
        model = dist.parallelize(gpt2(), mesh)
        optimizer = rl.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = _loss(model, rl.tensor(TOKENS), rl.tensor(LABELS))
            loss.backward()
            between(mesh, loss)
            optimizer.step()
            losses.append(loss.item())
        return losses

    with rl.config.override(tier="interpreter"):
        return dist.run(work, ranks=ranks)


def nothing(mesh: Any, loss: Any) -> None:
    """Ranks do the same."""


def one_reads_its_own(mesh: Any, loss: Any) -> None:
    if mesh.rank == 0:
        assert plain(rl.ones(2, 2)).tolist()


def one_holds_much(mesh: Any, loss: Any) -> None:
    if mesh.rank == 1:
        held = [rl.tensor(np.ones(1 << 10)) for _ in range(8)]
        assert sum(held).tolist()[0] == 8  # type: ignore[attr-defined]


def one_makes_numbers(mesh: Any, loss: Any) -> None:
    if mesh.rank == 0:
        assert (loss.detach() * 2).exp().item() > 0


def one_reads_memory_of_others(mesh: Any, loss: Any) -> None:
    if mesh.rank == 1:
        array = np.ones(4)
        x = rl.from_numpy(array) + 1
        array[:] = 5
        assert x.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    "between",
    [one_reads_its_own, one_holds_much, one_makes_numbers, one_reads_memory_of_others],
)
def test_one_rank_alone_never_computes_what_takes_all(
    between: Callable[[Any, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_recorder, "MOST_HELD", 1 << 14)
    assert train_with(between) == train_with(nothing)


def test_a_copy_to_the_host_waits_with_the_work_that_it_is_made_of() -> None:
    def work() -> bool:
        mesh = dist.Mesh(tp=2)
        model = dist.parallelize(gpt2(), mesh)
        with rl.no_grad():
            copied = model(rl.tensor(TOKENS)).cpu() * 2
        if mesh.rank == 0:
            recorder.flush()  # it takes the other rank
        return not copied._cell.computed

    with rl.config.override(tier="interpreter"):
        assert dist.run(work, ranks=2) == [True, True]


@pytest.mark.parametrize(
    ("axes", "plan"),
    [
        ({"dp": 2}, dist.Plan(zero=3)),
        ({"tp": 2}, dist.Plan(sequence=True)),
        ({"cp": 2}, dist.Plan(ring=True)),
        ({"pp": 2}, dist.Plan()),
        ({"dp": 2, "tp": 2}, dist.Plan(zero=2)),
    ],
    ids=str,
)
def test_undecorated_and_eager_steps_compute_no_more_than_jitted(
    axes: dict[str, int], plan: dist.Plan
) -> None:
    def work(mode: str) -> int:
        model = dist.parallelize(llama(), dist.Mesh(**axes), plan)
        optimizer = rl.optim.SGD(model.parameters(), lr=0.1)

        def step(x: rl.Tensor, y: rl.Tensor) -> Any:
            loss = _loss(model, x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        run = rl.jit(step) if mode == "jit" else step
        with rl.eager() if mode == "eager" else nullcontext():
            run(rl.tensor(TOKENS), rl.tensor(LABELS)).item()
        return on_mesh(model.tokens.weight.device.index).flops

    ranks = int(np.prod(list(axes.values())))
    with rl.config.override(tier="interpreter"):
        jitted = dist.run(work, "jit", ranks=ranks)
        assert min(jitted) > 0
        assert dist.run(work, "plain", ranks=ranks) == jitted
        assert dist.run(work, "eager", ranks=ranks) == jitted
