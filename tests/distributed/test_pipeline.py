"""Pipelines with microbatches: what one process computes, by the tables of the schedules."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, optim
from ridgeline.distributed.schedules import PipelineSchedule, pipeline_schedule
from ridgeline.errors import BadValueError
from tests.distributed.training import (
    BATCH,
    LABELS,
    LENGTH,
    MODELS,
    TOKENS,
    VOCABULARY,
    _loss,
    check,
)

SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zero-bubble", 1)]


@pytest.mark.parametrize(("name", "chunks"), SCHEDULES, ids=[name for name, _ in SCHEDULES])
def test_schedules_give_what_one_process_gives(name: str, chunks: int) -> None:
    """The embedding of GPT-2 is tied: its gradients of the first and last stage are added up."""
    check("gpt2 of 4", {"pp": 2}, dist.Plan(schedule=name, microbatches=4, chunks=chunks), "jit")


@pytest.mark.parametrize(
    ("kind", "axes", "plan"),
    [
        ("llama of 4", {"pp": 2}, dist.Plan(stages=(3, 1), microbatches=2)),
        ("gpt2 of 4", {"pp": 3}, dist.Plan(microbatches=4)),
        ("llama of 4", {"pp": 4}, dist.Plan(microbatches=4)),
        ("gpt2 with dropout", {"pp": 2}, dist.Plan(schedule="zero-bubble", microbatches=4)),
        ("llama", {"dp": 2, "pp": 2}, dist.Plan(zero=3, microbatches=2, recompute="full")),
    ],
    ids=[
        "uneven stages",
        "stages do not divide microbatches",
        "four stages",
        "dropout",
        "zero and recomputation",
    ],
)
def test_other_pipelines(kind: str, axes: dict[str, int], plan: dist.Plan) -> None:
    check(kind, axes, plan, "jit")


def test_compiled_passes() -> None:
    check("llama", {"pp": 2}, dist.Plan(microbatches=2), "jit", tier="compiled")


def one_step(plan: dist.Plan, ranks: int, batch: int) -> tuple[int, int]:
    """The messages that a step sent along the pipeline, which it explains."""
    mesh = dist.Mesh(pp=ranks)
    model = dist.parallelize(MODELS["llama of 4"]().double(), mesh, plan)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    random = np.random.default_rng(0)
    x, y = (rl.tensor(random.integers(0, VOCABULARY, (batch, LENGTH))) for _ in range(2))

    @rl.jit
    def step(x: rl.Tensor, y: rl.Tensor) -> rl.Tensor:
        optimizer.zero_grad()
        loss = _loss(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    step(x, y).item()
    sent = mesh.world.counters
    step.explain()
    return sent.calls("pp", "send"), sent.bytes("pp", "send")


def sends(schedule: PipelineSchedule, stage: int) -> int:
    return sum(schedule.transfer(stage, a) is not None for a in schedule.table[stage])


@pytest.mark.parametrize(
    ("name", "chunks", "ranks", "microbatches"),
    [("gpipe", 1, 2, 4), ("1f1b", 1, 2, 4), ("1f1b", 1, 4, 6), ("interleaved", 2, 2, 4),
     ("zero-bubble", 1, 2, 4)],
)  # fmt: skip
def test_messages_and_memory_are_those_of_the_table(
    name: str,
    chunks: int,
    ranks: int,
    microbatches: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = dist.Plan(schedule=name, microbatches=microbatches, chunks=chunks)
    schedule = pipeline_schedule(name, ranks, microbatches, chunks)
    with rl.config.override(tier="interpreter"):
        found = dist.run(one_step, plan, ranks, microbatches, ranks=ranks)
    nbytes = LENGTH * 16 * 8  # of the activations of one sample
    for stage, (calls, sent) in enumerate(found):
        assert (calls, sent) == (sends(schedule, stage), sends(schedule, stage) * nbytes)
    said = capsys.readouterr().out
    kept = re.findall(r"stage (\d) of \d: (\d+) passes, activations of at most (\d+)", said)
    expected = schedule.peak_activations()
    for stage, passes, most in {(int(a), int(b), int(c)) for a, b, c in kept}:
        assert passes == len(schedule.table[stage])
        assert most == expected[stage]
    assert len({stage for stage, *_ in kept}) == ranks


def test_batches_that_cannot_be_cut() -> None:
    def work(count: int) -> Any:
        plan = dist.Plan(microbatches=count)
        model = dist.parallelize(MODELS["llama"](), dist.Mesh(pp=2), plan)
        tokens = rl.zeros((BATCH, LENGTH), dtype=rl.int64)
        with rl.no_grad():
            model(tokens)  # nothing is trained: the batch goes whole
        return model(tokens)

    with pytest.raises(BadValueError, match="4 samples cannot be cut into 3 equal microbatches"):
        dist.run(work, 3, ranks=2)


def test_the_end_of_one_step_with_the_beginning_of_the_next() -> None:
    """Undecorated, the update of weights waits for the next loss: both go over whole batches."""

    def work(axes: dict[str, int]) -> list[float]:
        rl.manual_seed(0)
        model = MODELS["gpt2"]().double()
        model = dist.parallelize(model, dist.Mesh(**axes)) if axes else model
        optimizer, losses = optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(3):
            optimizer.zero_grad()
            loss = _loss(model, *(rl.tensor(TOKENS), rl.tensor(LABELS)))
            loss.backward()
            optimizer.step()
            losses.append(loss)
        return [loss.item() for loss in losses]

    with rl.config.override(tier="interpreter"):
        expected = work({})
        for found in dist.run(work, {"pp": 2}, ranks=2):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
