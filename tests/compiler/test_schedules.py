"""Translation validation: default schedules mean what the unscheduled loops mean, without races."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.compiler import lower_graph
from ridgeline.loops.interpret import interpret
from ridgeline.loops.schedule import from_json, replay, to_json
from tests.compiler.programs import catalogue, evaluate, inputs_for

SMALL = [
    "transpose", "pad", "concat", "flip and step", "column sum", "argmax", "softmax", "layer norm",
    "matrix vector", "small batched product", "small conv", "average pool",
    "small conv data gradient", "small conv weight gradient", "integer division", "any",
]  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_scheduled_loops_give_the_graphs_values(name: str) -> None:
    outputs, inputs = catalogue()[name]
    arrays = inputs_for(inputs, seed=2)
    values = dict(zip(inputs, arrays))
    for compiled in lower_graph(outputs, inputs).kernels:
        slots = compiled.group.loops.slots
        reads = compiled.group.loops.reads
        memory = {i: np.ascontiguousarray(values[n]) for i, n in enumerate(slots[:reads])}
        for i, node in enumerate(slots[reads:], reads):
            memory[i] = np.zeros(node.shape, node.dtype.numpy)  # type: ignore[arg-type]
        interpret(compiled.kernel, memory, {}, order="shuffled")
        for i, node in enumerate(slots[reads:], reads):
            values[node] = memory[i]
            (expected,) = evaluate([node], dict(zip(inputs, arrays)))
            np.testing.assert_allclose(memory[i], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["linear relu", "softmax", "conv stride 1 dilation 1"])
def test_a_schedule_survives_json(name: str) -> None:
    outputs, inputs = catalogue()[name]
    for compiled in lower_graph(outputs, inputs).kernels:
        again = from_json(to_json(compiled.steps))
        assert again == compiled.steps
        unscheduled = compiled.group.loops.kernel
        assert replay(unscheduled, again).body == compiled.kernel.body
