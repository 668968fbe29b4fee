"""Memory: the planner's counts against the literature's formulas, tables and our own graph."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline import nn
from ridgeline.distributed.schedules import pipeline_schedule
from ridgeline.models import GPT2
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.memory import in_flight, rank_memory, saved_bytes, verdict
from ridgeline.planner.named_models import own_model, shape_of
from ridgeline.planner.shapes import ModelShape
from ridgeline.planner.software import PROFILES
from ridgeline.planner.tracing import counted_layer

GPT = ModelShape("gpt", 48, 6144, 64, 64, 4 * 6144, False, 51200, tied=True, biased=True,
                 dropout=True)  # fmt: skip
OLD = PROFILES["megatron-2021"]


def test_saved_tensors_are_those_of_korthikanti() -> None:
    """sbh(34 + 5as/h) alone; sbh(10 + 24/t + 5as/(ht)) with TP; all over t with SP; 2sbh full."""
    s, b, h, a = 2048, 4, GPT.hidden, GPT.heads
    scores = 5 * a * s / h
    job = Job(GPT, s, b)
    for t in (1, 2, 8):
        layout = ParallelLayout(tensor=t, microbatch=b)
        whole = saved_bytes(job, layout, OLD)[0]
        assert whole == pytest.approx(s * b * h * (10 + 24 / t + scores / t))
        split = replace(OLD, sequence_parallel=True)
        assert saved_bytes(job, layout, split)[0] == pytest.approx(s * b * h / t * (34 + scores))
        selective = layout.with_(recompute="selective")
        assert saved_bytes(job, selective, split)[0] == pytest.approx(s * b * h / t * 34)
        full = layout.with_(recompute="full")
        assert saved_bytes(job, full, OLD)[0] == pytest.approx(2 * s * b * h)


def test_states_are_those_of_zero() -> None:
    """16 or 18 bytes a parameter: whole, 4 or 6 and 12 over d, 2 and 14 over d, all over d."""
    job = Job(GPT, 2048, 64)
    held = GPT.layers * GPT.layer_parameters + GPT.embedding_parameters + GPT.final_norm
    core = replace(PROFILES["megatron-core"], gradient_bytes=2)
    for sharding, whole, shared in (
        ("none", 16, 0), ("optimizer", 4, 12), ("gradients", 2, 14), ("parameters", 0, 16),
    ):  # fmt: skip
        memory = rank_memory(job, ParallelLayout(data=8, sharding=sharding), core, 0)
        gathered = 0.0
        if sharding == "parameters":
            layer = GPT.layer_parameters
            gathered = 4 * layer + 4 * layer + 2 * GPT.embedding_parameters
        state = memory.weights + memory.gradients + memory.optimizer - gathered
        assert state == pytest.approx(held * (whole + shared / 8))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero-bubble"])
def test_activations_in_flight_are_those_of_the_table(schedule: str) -> None:
    for stages in (1, 2, 4, 7):
        for microbatches in (1, 3, 8, 13, 28):
            for chunks in (1, 2, 4) if schedule == "interleaved" else (1,):
                table = pipeline_schedule(schedule, stages, microbatches, chunks)
                layout = ParallelLayout(pipeline=stages, schedule=schedule, chunks=chunks)
                formula = [in_flight(layout, microbatches, stage) for stage in range(stages)]
                held = table.peak_activations()
                if schedule == "interleaved" and chunks > 1:
                    # where the last chunks are short of microbatches, tables hold fewer
                    assert all(found >= real for found, real in zip(formula, held))
                    assert formula[0] == held[0]
                else:
                    assert tuple(formula) == held


@pytest.mark.parametrize(("name", "length"), [("llama3-405b", 8192), ("gpt2-xl", 1024)])
def test_formulas_agree_with_the_models_own_graph(name: str, length: int) -> None:
    model = own_model(name)
    if name.startswith("gpt2"):
        # attention that drops scores is no single kernel of ours: it keeps them
        dropping = counted_layer(model, length)
        with nn.deferred():
            model = GPT2(replace(model.config, attn_pdrop=0.0))
        assert dropping.saved > counted_layer(model, length).saved + length * length * 25
    shape, counted = shape_of(model, name), counted_layer(model, length)
    assert shape.parameters() == model.parameter_count()
    assert counted.parameters == shape.layer_parameters
    attention = 4 * length * length * shape.heads * shape.head
    assert counted.attention == attention
    products = sum(2 * rows * columns * terms for rows, columns, terms in counted.products)
    head = 2 * shape.hidden * shape.vocabulary
    forward = shape.layers * (products + attention) / length + head
    assert 3 * forward == pytest.approx(shape.flops_per_token(length, causal=False), rel=1e-12)
    # our compiler makes elementwise results again: what it keeps is what the profile says
    saved = saved_bytes(Job(shape, length, 1), ParallelLayout(), PROFILES["ridgeline"])[0]
    assert 2 * counted.saved == pytest.approx(saved, rel=0.10)


def test_verdicts() -> None:
    assert [verdict(held, 100.0) for held in (89.0, 91.0, 101.0)] == [
        "fits", "tight", "does not fit",
    ]  # fmt: skip
