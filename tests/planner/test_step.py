"""A step by formula and by simulation, against each other and against what is known."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import gpu_named, usual_cluster
from ridgeline.planner.named_models import shape_named
from ridgeline.planner.parts import parts_of
from ridgeline.planner.search import FORMULA_MARGIN, meshes, search, variants
from ridgeline.planner.software import PROFILES
from ridgeline.planner.step import StepModel
from ridgeline.planner.work import TimedCluster

LLAMA = shape_named("llama3-405b")
H100 = TimedCluster(usual_cluster(gpu_named("h100")), DEFAULT)


def test_parts_hold_every_layer_once() -> None:
    for stages in range(1, 20):
        for chunks in range(1, 5):
            parts = parts_of(LLAMA, stages, chunks)
            assert sum(part.layers for part in parts) == 126
            assert [p.first for p in parts].count(True) == [p.last for p in parts].count(True) == 1
            middle = [part.layers for part in parts[1:-1]]
            assert not middle or max(middle) - min(middle) <= 1
    # Llama 3: sixteen stages of eight layers, the first and the last one short
    assert [part.layers for part in parts_of(LLAMA, 16, 1)] == [7, *[8] * 14, 7]


def test_the_formula_exceeds_the_simulation_by_no_more_than_it_says() -> None:
    random.seed(7)
    for gpus, sequences in ((256, 256), (96, 192), (16384, 2048)):
        job = Job(LLAMA, 8192, sequences)
        for name in ("megatron-core", "megatron-2021", "ridgeline"):
            software = PROFILES[name]
            every = [
                layout
                for mesh in meshes(job, gpus, H100, Counter())
                for layout in variants(job, mesh, software)
                if layout.pipeline > 1
            ]
            for layout in random.sample(every, 12):
                model = StepModel(job, layout, software, H100)
                formula, simulated = model.estimate(), model.simulate()
                assert formula.tokens_per_gpu <= simulated.tokens_per_gpu * (1 + FORMULA_MARGIN)


def test_the_formula_keeps_its_margin_on_other_models_and_machines() -> None:
    """Small batches on many GPUs, experts, slow networks: drawn at random, the same every time."""
    draw = random.Random(5)
    names = ("gpt2", "llama3-8b", "llama3-70b", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b")
    shapes = [shape_named(name) for name in names]
    machines = [
        TimedCluster(usual_cluster(gpu_named(name)), DEFAULT)
        for name in ("h100", "a100-40", "gb200", "v100", "4090", "mi300x")
    ]
    for _ in range(60):
        shape, machine = draw.choice(shapes), draw.choice(machines)
        software = draw.choice(list(PROFILES.values()))
        batch = draw.choice((1, 2, 3, 5, 7, 8, 12, 28, 64, 96))
        job = Job(shape, draw.choice((1024, 2048, 8192)), batch)
        every = [
            layout
            for mesh in meshes(job, draw.choice((4, 6, 12, 16, 48, 64, 96)), machine, Counter())
            for layout in variants(job, mesh, software)
            if layout.pipeline > 1
        ]
        for layout in draw.sample(every, min(6, len(every))):
            model = StepModel(job, layout, software, machine)
            formula, simulated = model.estimate(), model.simulate()
            assert formula.tokens_per_gpu <= simulated.tokens_per_gpu * (1 + FORMULA_MARGIN)


@pytest.mark.parametrize("name", ["h100", "4090"])
@pytest.mark.parametrize(("stages", "chunks"), [(2, 8), (4, 4), (8, 1)])
def test_the_formula_counts_messages_that_a_pipeline_awaits(
    name: str, stages: int, chunks: int
) -> None:
    """On fast links and on those where a message takes as long as a pass."""
    machine = TimedCluster(usual_cluster(gpu_named(name)), DEFAULT)
    schedule = "interleaved" if chunks > 1 else "1f1b"
    layout = ParallelLayout(pipeline=stages, chunks=chunks, schedule=schedule)
    job = Job(shape_named("llama3-8b"), 2048, 32)
    model = StepModel(job, layout, PROFILES["ridgeline"], machine)
    assert model.estimate().seconds == pytest.approx(model.simulate().seconds, rel=0.02)


def test_a_long_step_is_simulated_in_part_and_takes_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(LLAMA, 8192, 400)
    for layout in (
        ParallelLayout(8, 1, 8, 2, chunks=4, schedule="interleaved"),
        ParallelLayout(8, 1, 16, 1),
        ParallelLayout(4, 1, 18, 2, schedule="zero-bubble"),
    ):
        model = StepModel(job, layout, PROFILES["ridgeline"], H100)
        monkeypatch.setattr("ridgeline.planner.step.MOST_ACTIONS", 1 << 40)
        whole = model.simulate().seconds
        monkeypatch.setattr("ridgeline.planner.step.MOST_ACTIONS", 4_000)
        assert model.simulate().seconds == pytest.approx(whole, rel=5e-3)


@pytest.mark.parametrize("software", ["ridgeline", "megatron-2021"])
@pytest.mark.parametrize(("stages", "chunks"), [(4, 3), (12, 1), (6, 2)])
def test_a_long_step_in_part_awaits_as_many_messages(
    software: str, stages: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a network on which a message takes as long as a pass, or longer."""
    slow = replace(usual_cluster(gpu_named("4090")), network=0.2, node=1)
    layout = ParallelLayout(
        pipeline=stages, chunks=chunks, schedule="interleaved" if chunks > 1 else "1f1b"
    )
    job, profile = Job(shape_named("gpt2"), 1024, 1000), PROFILES[software]
    model = StepModel(job, layout, profile, TimedCluster(slow, DEFAULT))
    monkeypatch.setattr("ridgeline.planner.step.MOST_ACTIONS", 1 << 40)
    whole = model.simulate().seconds
    monkeypatch.setattr("ridgeline.planner.step.MOST_ACTIONS", 4_000)
    assert model.simulate().seconds == pytest.approx(whole, rel=0.08)


def test_ranks_that_own_whole_tensors_hand_each_on_by_a_ring() -> None:
    """What that costs more than even shares grows with ranks, and is nothing among eight."""
    whole = replace(PROFILES["megatron-core"], owned_tensors=9)

    def seconds(ranks: int, **changes: Any) -> list[float]:
        layout = ParallelLayout(data=ranks, microbatch=2, **changes)
        job = Job(shape_named("llama3-8b"), 2048, 8 * ranks)
        profiles = PROFILES["megatron-core"], whole
        return [StepModel(job, layout, one, H100).estimate().seconds for one in profiles]

    few, many = seconds(64), seconds(1024)
    assert many[1] - many[0] > 5 * (few[1] - few[0]) > 0
    # 288 rings of 1,023 hops, of which seven in eight are inside a node
    assert many[1] - many[0] > 288 * 1023 * 2e-6
    assert seconds(1024, sharers=8)[1] < many[1]
    ddp = seconds(1024, sharding="none")
    assert ddp[0] == ddp[1]


def test_one_stage_is_the_sum_of_its_parts() -> None:
    job, software = Job(shape_named("llama3-8b"), 8192, 64), PROFILES["megatron-core"]
    step = StepModel(job, ParallelLayout(data=8, microbatch=2), software, H100).simulate()
    assert step.seconds == pytest.approx(sum(step.parts.values()))
    assert step.parts["pipeline"] == pytest.approx(0, abs=1e-9)
    assert step.idle == (0.0,)


def test_more_of_everything_that_costs_makes_a_step_longer() -> None:
    job, software = Job(LLAMA, 8192, 256), PROFILES["megatron-core"]
    base = ParallelLayout(8, 1, 16, 8, chunks=4, schedule="interleaved")

    def seconds(layout: ParallelLayout, machine: TimedCluster = H100, jitter: float = 0.0) -> float:
        return StepModel(job, layout, software, machine).simulate(jitter).seconds

    slow = TimedCluster(replace(H100.cluster, network=5.0), DEFAULT)
    assert seconds(base) < seconds(base.with_(recompute="full"))
    assert seconds(base) < seconds(base.with_(chunks=1, schedule="1f1b"))
    assert seconds(base) < seconds(base, slow)
    assert seconds(base) < seconds(base, H100, jitter=0.1)


def test_measured_ceilings_take_the_place_of_the_models() -> None:
    job, layout = Job(LLAMA, 8192, 256), ParallelLayout(8, 1, 16, 8)
    slower = TimedCluster(replace(H100.cluster, product_share=0.35), DEFAULT)
    of_model = StepModel(job, layout, PROFILES["megatron-core"], H100).estimate()
    measured = StepModel(job, layout, PROFILES["megatron-core"], slower).estimate()
    ratio = measured.parts["products"] / of_model.parts["products"]
    assert ratio == pytest.approx(DEFAULT.hopper / 0.35, rel=0.05)


def test_the_search_keeps_what_fits_best_first() -> None:
    job = Job(shape_named("llama3-70b"), 8192, 128)
    found = search(job, 64, PROFILES["megatron-core"], H100)
    simulated = [one for one in found.found if one.simulated]
    assert len(simulated) == min(50, len(found.found))
    assert [one.tokens for one in simulated] == sorted((o.tokens for o in simulated), reverse=True)
    for one in found.found:
        assert one.layout.ranks == 64 and one.verdict != "does not fit"
        assert job.sequences % (one.layout.data * one.layout.microbatch) == 0
    kept = found.considered - found.pruned["does not fit"]
    assert len(found.found) == kept - found.pruned["recomputes more than fitting takes"]


def test_experts_cost_what_is_chosen_of_them() -> None:
    shape = shape_named("mixtral-8x7b")
    assert math.isclose(shape.parameters() / 1e9, 46.7, rel_tol=0.005)
    assert math.isclose((shape.active_parameters() + shape.embedding_parameters) / 1e9, 12.9,
                        rel_tol=0.01)  # fmt: skip
    found = search(Job(shape, 4096, 256), 64, PROFILES["ridgeline"], H100)
    assert found.found[0].layout.expert > 1
