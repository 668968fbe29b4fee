"""All axes at once, the work of each rank beside stages, and how far float32 is from float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist
from tests.distributed.test_mesh import attention_flops, flops_of_rank, on
from tests.distributed.training import TOKENS, VOCABULARY, Found, check, llama, train

WIDTH = 16


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_sixteen_ranks(schedule: str) -> None:
    plan = dist.Plan(zero=2, sequence=True, schedule=schedule, microbatches=2)
    check("llama", {"dp": 2, "cp": 2, "tp": 2, "pp": 2}, plan, "jit")


@pytest.mark.parametrize(
    "axes",
    [
        {"pp": 2},
        {"dp": 2, "pp": 2},
        {"cp": 2, "pp": 2},
        {"tp": 2, "pp": 2},
        {"dp": 2, "tp": 2, "pp": 2},
        {"cp": 2, "tp": 2, "pp": 2},
        {"dp": 2, "cp": 2, "tp": 2, "pp": 2},
    ],
    ids=str,
)
def test_each_stage_computes_its_layers(axes: dict[str, int]) -> None:
    """One of two layers on each stage, and on the last the product with the vocabulary."""
    whole = on(2, flops_of_rank, {"replica": 2}, dist.Plan(), llama)[0] * 2
    head = 3 * 2 * TOKENS.size * WIDTH * VOCABULARY  # forwards, by its input, by its weight
    if "cp" in axes:  # of pairs of four chunks, ten have keys that are not after the queries
        whole -= attention_flops() * 6 // 16
    ranks = math.prod(axes.values())
    others, layers = ranks // 2, (whole - head) // 2
    for rank, counted in enumerate(on(ranks, flops_of_rank, axes, dist.Plan(), llama)):
        inner = axes.get("cp", 1) * axes.get("tp", 1)
        stage = rank // inner % 2
        assert counted == (layers + head * stage) // others


def furthest(found: Found, exact: Found) -> float:
    """The largest error of a tensor's elements, of its largest value."""
    return max(
        float(np.abs(found[name] - value).max() / np.abs(value).max())
        for name, value in exact.items()
    )


@pytest.mark.parametrize(
    ("axes", "plan"),
    [
        ({"dp": 4}, dist.Plan(zero=2)),
        ({"tp": 2}, dist.Plan(sequence=True)),
        ({"cp": 2}, dist.Plan(ring=True)),
        ({"pp": 2}, dist.Plan(microbatches=4)),
    ],
    ids=["dp", "tp", "cp", "pp"],
)
def test_float32_is_as_near_as_on_one_process(axes: dict[str, int], plan: dist.Plan) -> None:
    with rl.config.override(tier="interpreter"):
        exact = train("llama", {}, dist.Plan(), "plain", "SGD")
        alone = train("llama", {}, dist.Plan(), "plain", "SGD", "float32")
        ranks = dist.run(
            train, "llama", axes, plan, "jit", "SGD", "float32", ranks=math.prod(axes.values())
        )
    for found in ranks:
        assert furthest(found, exact) <= 2 * furthest(alone, exact)
