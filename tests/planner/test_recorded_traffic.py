"""The bytes of a plan on meshes of 8 and 16 ranks: those that one recorded rank counts.

The plan is the JSON that `ridgeline plan` writes for the layout; the program is a training step:
a recorded rank runs it with shapes alone, and no other rank is there.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import distributed as dist, optim
from ridgeline.communicators.current import Rank, acting_as
from ridgeline.communicators.record import RecordCommunicator
from ridgeline.nn import functional as F
from ridgeline.planner.layouts import Job, ParallelLayout
from ridgeline.planner.named_models import shape_of
from ridgeline.planner.results import mesh_of, plan_settings
from ridgeline.planner.software import PROFILES
from tests.planner.test_traffic import BATCH, LENGTH, LOSS, WORDS, llama, planned

MESHES = [
    ParallelLayout(data=4, microbatch=1, sharding="gradients"),
    ParallelLayout(tensor=2, pipeline=2, data=2, microbatch=1, sharding="none"),
    ParallelLayout(tensor=2, pipeline=2, context=2, microbatch=2, sharding="none"),
    ParallelLayout(tensor=2, pipeline=2, context=2, data=2, microbatch=1, sharding="none"),
]


def recorded(layout: ParallelLayout, layers: int) -> dict[tuple[str, str], int]:
    """Bytes that rank 0 of a layout's mesh counts in one step, by axis and kind."""
    job = Job(shape_of(llama(layers), "small"), LENGTH, BATCH)
    written = json.dumps({"plan": plan_settings(job, layout, PROFILES["ridgeline"])})
    axes = {axis: ranks for axis, ranks in mesh_of(layout).items() if ranks > 1}
    world = RecordCommunicator(0, math.prod(axes.values()), axes)
    with acting_as(Rank(world)), rl.config.override(tier="interpreter"):
        mesh = dist.Mesh(communicator=world, **axes)
        model = dist.parallelize(llama(layers), mesh, dist.Plan.from_json(written))
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        tokens = rl.tensor(np.random.default_rng(0).integers(0, WORDS, (BATCH, LENGTH)))
        world.counters.clear()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        loss.item()
    return {key: entry.bytes for key, entry in world.counters.traffic.items()}


@pytest.mark.parametrize("layout", MESHES, ids=str)
def test_bytes_of_replicas_sequences_and_stages(layout: ParallelLayout) -> None:
    found, said = recorded(layout, 4), planned(layout, 4)
    for (axis, kind), size in said.items():
        if axis != "tp":
            # Ranks that see other tokens sum the loss, too.
            loss = LOSS if kind == "all_reduce" else 0
            assert found[axis, kind] == size + loss, (axis, kind)


def test_bytes_of_a_layers_tensor_ranks() -> None:
    """What two more layers on the stage send; around the layers there is more of it."""
    layout = MESHES[1]
    found = [recorded(layout, layers) for layers in (4, 8)]
    said = [planned(layout, layers) for layers in (4, 8)]
    for kind in ("all_gather", "reduce_scatter"):
        assert found[1]["tp", kind] - found[0]["tp", kind] == (
            said[1]["tp", kind] - said[0]["tp", kind]
        )
