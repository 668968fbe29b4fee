"""The bytes of a plan are those that the communicators of a training step count."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, models, optim
from ridgeline.communicators.counters import TrafficCounters
from ridgeline.models.described import Description
from ridgeline.models.language import LanguageModel
from ridgeline.nn import functional as F
from ridgeline.planner.constants import DEFAULT
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.machines import gpu_named, usual_cluster
from ridgeline.planner.named_models import shape_of
from ridgeline.planner.results import mesh_of, plan_settings
from ridgeline.planner.software import PROFILES
from ridgeline.planner.traffic import traffic
from ridgeline.planner.work import TimedCluster

WORDS, BATCH, LENGTH = 96, 4, 32


def mixture(layers: int) -> Any:
    return LanguageModel(
        Description.read(
            {
                "model_type": "mixtral", "vocab_size": WORDS, "hidden_size": 64,
                "intermediate_size": 96, "num_hidden_layers": layers, "num_attention_heads": 4,
                "num_key_value_heads": 2, "max_position_embeddings": LENGTH,
                "num_local_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0,
                "bos_token_id": 1, "eos_token_id": 2,
            }
        )
    )  # fmt: skip


def llama(layers: int) -> Any:
    return models.Llama(
        vocab_size=WORDS, hidden_size=64, intermediate_size=96, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
    )  # fmt: skip


def counted(
    axes: dict[str, int], plan: dist.Plan, layers: int, make: Callable[[int], Any] = llama
) -> dict[tuple[str, str], int]:
    """Bytes that rank 0 counts in one step, by axis and kind."""

    def train() -> dict[tuple[str, str], int]:
        rl.manual_seed(0)
        model = dist.parallelize(make(layers), dist.Mesh(**axes), plan)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        tokens = rl.tensor(np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)))
        counters: TrafficCounters = dist.world().counters
        counters.clear()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        loss.item()
        return {key: entry.bytes for key, entry in counters.traffic.items()}

    found: dict[tuple[str, str], int] = dist.run(train, ranks=math.prod(axes.values()))[0]
    return found


def planned(
    layout: ParallelLayout, layers: int, make: Callable[[int], Any] = llama
) -> dict[tuple[str, str], float]:
    """Bytes that the planner says, in float32."""
    job = Job(shape_of(make(layers), "small"), LENGTH, BATCH)
    machine = TimedCluster(usual_cluster(gpu_named("h100")), DEFAULT)
    found = traffic(job, layout, PROFILES["ridgeline"], machine, element=4)
    return {(one.axis, one.kind): one.bytes for one in found}


Axis = tuple[str, str]
LOSS = 4
"""Bytes of the loss, which replicas sum, too."""


@pytest.mark.parametrize(
    ("axes", "layout", "beside"),
    [
        ({"dp": 2}, ParallelLayout(data=2, microbatch=2, sharding="none"),
         {("dp", "all_reduce"): LOSS}),
        ({"dp": 2}, ParallelLayout(data=2, microbatch=2, sharding="gradients"),
         {("dp", "all_gather"): 0, ("dp", "reduce_scatter"): 0}),
        ({"dp": 2, "tp": 2}, ParallelLayout(tensor=2, data=2, microbatch=2, sharding="none"),
         {("dp", "all_reduce"): LOSS}),
        ({"cp": 2}, ParallelLayout(context=2, microbatch=BATCH, sharding="none"),
         {("cp", "all_gather"): 0, ("cp", "reduce_scatter"): 0, ("cp", "all_reduce"): LOSS}),
        ({"pp": 2}, ParallelLayout(pipeline=2, microbatch=BATCH, sharding="none"),
         {("pp", "send"): 0}),
    ],
    ids=["dp", "dp-zero2", "dp-tp", "cp", "pp"],
)  # fmt: skip
def test_bytes_of_a_step(
    axes: dict[str, int], layout: ParallelLayout, beside: dict[Axis, int]
) -> None:
    """The plan is the JSON that `ridgeline plan` writes for the layout; `parallelize` takes it."""
    job, software = Job(shape_of(llama(2), "small"), LENGTH, BATCH), PROFILES["ridgeline"]
    written = json.dumps({"plan": plan_settings(job, layout, software)})
    assert {axis: ranks for axis, ranks in mesh_of(layout).items() if ranks > 1} == axes
    found, said = counted(axes, dist.Plan.from_json(written), 2), planned(layout, 2)
    for key, more in beside.items():
        assert found[key] == said[key] + more, key


def test_tokens_that_go_to_experts() -> None:
    """As many as experts get that are all as likely, and counts of them; gradients of the rest."""
    layout = ParallelLayout(data=2, expert=2, split_experts=True, microbatch=2, sharding="none")
    assert {axis: n for axis, n in mesh_of(layout).items() if n > 1} == {"ep": 2}
    found = counted({"ep": 2}, dist.Plan(), 1, mixture)
    said = planned(layout, 1, mixture)
    assert found["ep", "all_reduce"] == said["ep", "all_reduce"] + LOSS
    assert found["ep", "all_to_all"] == pytest.approx(said["ep", "all_to_all"], rel=0.10)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_a_layer_of_tensor_parallelism(kind: str) -> None:
    layout = ParallelLayout(tensor=2, microbatch=BATCH)
    plan = dist.Plan(sequence=True)
    found = [counted({"tp": 2}, plan, layers)["tp", kind] for layers in (1, 2)]
    said = [planned(layout, layers)["tp", kind] for layers in (1, 2)]
    assert found[1] - found[0] == said[1] - said[0]
