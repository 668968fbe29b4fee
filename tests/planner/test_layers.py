"""Layers of many kinds, counted: experts, latent attention, windows, adapters, packed samples."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ridgeline import nn
from ridgeline.models.described import Description
from ridgeline.models.language import LanguageModel
from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.kernels import Timer
from ridgeline.planner.layer_products import layer_products
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import gpu_named, usual_cluster
from ridgeline.planner.memory import rank_memory, saved_bytes
from ridgeline.planner.named_models import shape_named, shape_of
from ridgeline.planner.optimizers import with_optimizer
from ridgeline.planner.parts import parts_of, shares_of_experts, stage_parameters
from ridgeline.planner.software import PROFILES, software_named
from ridgeline.planner.step import StepModel
from ridgeline.planner.work import LayerCosts, TimedCluster
from tests.models.family_cases import DECODERS

H100 = TimedCluster(usual_cluster(gpu_named("h100")), DEFAULT)
CORE = PROFILES["megatron-core"]


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("deepseek-v3", 671.0, 36.6), ("kimi-k2", 1027.0, 31.4), ("qwen3-235b-a22b", 235.1, 21.6),
        ("qwen3-30b-a3b", 30.5, 3.0), ("gpt-oss-120b", 116.8, 5.1), ("gpt-oss-20b", 20.9, 3.6),
        ("mixtral-8x22b", 140.6, 39.0), ("llama3.2-3b", 3.21, 3.21), ("llama3-405b", 405.9, 403.8),
        ("qwen2.5-72b", 72.7, 71.5), ("tinyllama-1.1b", 1.10, 1.03), ("nemotron4-340b", 341.0, 336),
    ],
)  # fmt: skip
def test_named_models_have_the_parameters_that_their_makers_say(
    name: str, billions: float, active: float
) -> None:
    shape = shape_named(name)
    assert shape.parameters() / 1e9 == pytest.approx(billions, rel=0.006)
    assert shape.active_parameters() / 1e9 == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "mamba"])
def test_a_familys_shape_has_the_parameters_of_its_model(name: str) -> None:
    """Norms and biases of single products aside, which these small models have the most of."""
    kind, settings = DECODERS[name]
    with nn.deferred():
        model = LanguageModel(Description.read({"model_type": kind, **settings}))
    shape = shape_of(model, name)
    assert shape.parameters() == model.parameter_count()
    assert replace(shape, counted=0).parameters() == pytest.approx(shape.parameters(), rel=0.01)


def test_windows_of_some_layers_are_a_share() -> None:
    kind, settings = DECODERS["gemma2"]
    with nn.deferred():
        model = LanguageModel(Description.read({"model_type": kind, **settings}))
    shape = shape_of(model, "gemma2")
    assert (shape.window, shape.windowed) == (4, 0.5)
    assert shape.seen(64, causal=True) == 0.5 * 4 + 0.5 * 32
    assert shape.seen(4, causal=False) == 4


def test_ranks_compute_together_what_the_model_does() -> None:
    """Products of all ranks of a layer are its active weights times tokens, whoever has what."""
    draw = random.Random(3)
    for name in ("llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"):
        shape = shape_named(name)
        for _ in range(8):
            tensor = draw.choice((1, 2, 4))
            expert = draw.choice((1, 2, 8)) if shape.experts > 1 else 1
            split, rows = draw.choice((True, False)), 8192
            layout = ParallelLayout(tensor=tensor, expert=expert, split_experts=split)
            products = layer_products(shape, layout, rows, dense=False)
            flops = tensor * sum(p.rows * p.columns * p.terms * p.times for p in products)
            ups = 3 if shape.gated else 2
            weights = sum(columns * terms for columns, terms in shape.projections(1))
            weights += ups * shape.hidden * shape.feed_forward_width(dense=False)
            weights += shape.hidden * shape.experts * (shape.experts > 1)
            if shape.latent is not None:
                # Each tensor rank folds keys and queries itself.
                folded = shape.latent.rank + shape.latent.turned_size
                folded += shape.latent.query_rank or 0
                weights += (tensor - 1) * shape.hidden * folded
            assert flops == pytest.approx(rows * weights, rel=0.01)


def test_ranks_hold_together_what_the_model_has() -> None:
    for name in ("llama3-70b", "mixtral-8x7b", "deepseek-v3"):
        shape = shape_named(name)
        for layout in (
            ParallelLayout(4, 1, 2, 16),
            ParallelLayout(1, 1, 4, 8, 8),
            ParallelLayout(2, 1, 1, 8, 4),
        ):
            if layout.expert > shape.experts:
                continue
            held = [stage_parameters(shape, layout, stage) for stage in range(layout.pipeline)]
            unsplit = (layout.tensor - 1) * (shape.layers * shape.unsplit_parameters)
            unsplit += (layout.tensor - 1) * shape.final_norm
            alike = shares_of_experts(layout)
            whole = sum(
                layout.tensor * (one.layers + one.tables) + alike * one.experts for one in held
            )
            router = shape.dense_layers * shape.hidden * shape.experts
            assert whole == pytest.approx(shape.parameters() + unsplit, abs=layout.tensor * router)


def test_the_first_layers_may_have_no_experts() -> None:
    shape = shape_named("deepseek-v3")
    parts = parts_of(shape, 4, 4)
    assert [part.dense for part in parts] == [3, *[0] * 15]
    assert sum(part.layers for part in parts) == 61
    job = Job(shape, 4096, 256)
    costs = LayerCosts(job, ParallelLayout(1, 1, 4, 64, 64), CORE, H100)
    assert costs.blocks_of(parts[0]).forward.expert < costs.blocks_of(parts[1]).forward.expert


def test_a_token_travels_once_to_each_node() -> None:
    """Eight experts of a token are on fewer nodes; in one node there is nothing to save."""
    job = Job(shape_named("qwen3-235b-a22b"), 4096, 1024)

    def traffic(expert: int, words: str) -> float:
        layout = ParallelLayout(1, 1, 8, 32, expert)
        return LayerCosts(job, layout, software_named(words), H100).layer_times.forward.expert

    once, each = (traffic(32, f"megatron-core deduplicated={yes}") for yes in ("yes", "no"))
    assert 1.3 * once < each < 3 * once
    assert traffic(8, "megatron-core") == traffic(8, "megatron-core deduplicated=no")
    hidden = traffic(32, "megatron-core overlap_expert=0.7")
    assert 0.3 * once <= hidden < once


def test_small_matrices_of_odd_widths_are_no_work_for_matrix_units() -> None:
    """BLOOM's layouts of 128 heads of 108 took 40 % longer a step than those of 96 of 144."""
    timer = Timer(usual_cluster(gpu_named("a100")), DEFAULT)
    even, odd = (timer.batched(64, 2048, 2048, width) for width in (112, 108))
    assert odd > 5 * even
    assert timer.batched(64, 2048, 2048, 144) < 1.3 * even * 144 / 112


def test_adapters_cost_less_than_gradients_of_all_weights() -> None:
    shape = shape_named("llama3-8b")
    job, layout = Job(shape, 4096, 16), ParallelLayout(data=8, microbatch=2)

    def seconds(name: str) -> float:
        return StepModel(job, layout, with_optimizer(CORE, shape, name), H100).estimate().seconds

    assert seconds("lora-attention") < seconds("lora") < seconds("qlora") < seconds("adamw")


def test_packed_weights_take_a_quarter() -> None:
    shape = shape_named("llama3-70b")
    job, layout = Job(shape, 2048, 8), ParallelLayout(data=8, recompute="full")
    lora, qlora = (
        rank_memory(job, layout, with_optimizer(CORE, shape, name), 0).weights
        for name in ("lora", "qlora")
    )
    tables = 2 * 2 * shape.embedding_parameters
    assert lora == 2 * shape.parameters()
    assert qlora - tables == pytest.approx((lora - tables) * 0.517 / 2, rel=0.01)


def test_samples_that_are_packed_do_not_see_one_another() -> None:
    shape = shape_named("llama3-8b")
    whole, packed = Job(shape, 32768, 8), Job(shape, 32768, 8, document=512)
    layout = ParallelLayout(data=8)
    steps = [StepModel(job, layout, CORE, H100).estimate().parts for job in (whole, packed)]
    assert steps[1]["attention"] < 0.1 * steps[0]["attention"]
    assert steps[1]["products"] == steps[0]["products"]
    assert packed.tokens == whole.tokens


def test_states_may_be_shared_out_within_nodes() -> None:
    """Each node has a copy: more memory, gathers inside the node, and sums between nodes."""
    shape, eager = shape_named("llama2-7b"), software_named("fsdp-eager reduce_bytes=2")
    job = Job(shape, 4096, 256)
    everywhere = ParallelLayout(data=128, microbatch=2, sharding="parameters")
    within = everywhere.with_(sharers=8)
    held = [rank_memory(job, layout, eager, 0) for layout in (everywhere, within)]
    assert held[1].optimizer == pytest.approx(16 * held[0].optimizer)
    slow = TimedCluster(replace(H100.cluster, network=3.0), DEFAULT)
    steps = [StepModel(job, layout, eager, slow).estimate() for layout in (everywhere, within)]
    assert steps[1].seconds < steps[0].seconds
    assert "ZeRO-3 within 8" in str(within)


def test_latent_attention_keeps_what_it_is_unfolded_from() -> None:
    shape, layout = shape_named("deepseek-v3"), ParallelLayout()
    job = Job(shape, 4096, 1)
    whole = saved_bytes(job, layout, CORE)[0]
    again = saved_bytes(job, layout.with_(recompute="selective"), CORE)[0]
    unfolded = 4096 * 2 * shape.heads * (192 + 192 + 128)
    assert whole - again > unfolded
