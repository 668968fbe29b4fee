"""Default schedules of every family: the same meaning, in bounds, and counted exactly.

Translation validation interprets the loops before and after scheduling; the solver proves every
access in range for all iterations and all contents of memory.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.compiler import CompiledKernel, lower_graph
from ridgeline.graph.graph import Graph
from ridgeline.graph.sizes import bounds
from ridgeline.loops.analysis.counts import compulsory_bytes, moved_bytes, useful
from ridgeline.loops.interpreter.counters import Counters
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Alloc, Kernel, statements
from ridgeline.loops.schedule import from_json, replay, to_json
from ridgeline.ops.radix import source_length
from ridgeline.scalars import Array
from ridgeline.schedules.machine import Machine
from tests.compiler import families
from tests.compiler.programs import evaluate, inputs_for
from tests.loops.validation import same_results

WIDE = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
NARROW = Machine(16, 16, 4, 32 << 10, 256 << 10, 8 << 20)
SEEDS = (0, 1)


def lowered(name: str, seed: int) -> tuple[list[CompiledKernel], dict[object, Array]]:
    """The kernels of a random graph, and the value of every node that they read or write."""
    outputs, inputs = families.graph(name, seed)
    arrays = [
        np.abs(a) % 3 if n.dtype.name == "int64" else a
        for n, a in zip(inputs, inputs_for(inputs, seed))
    ]
    arrays = [np.sort(a) if name == "searches" and i == 0 else a for i, a in enumerate(arrays)]
    kernels = lower_graph(Graph(outputs, inputs), (WIDE, NARROW)[seed % 2]).kernels
    nodes = list(dict.fromkeys(n for k in kernels for n in k.group.loops.slots))
    found = evaluate(nodes, dict(zip(inputs, arrays)))
    return kernels, dict(zip(nodes, found))


def memory_of(compiled: CompiledKernel, values: dict[object, Array]) -> dict[int, Array]:
    """What lies in the slots of a kernel when it starts."""
    loops = compiled.group.loops
    memory = {
        i: np.ascontiguousarray(values[n]).reshape(n.shape)  # type: ignore[arg-type]
        for i, n in enumerate(loops.slots)
    }
    for i in range(loops.reads, len(loops.slots)):
        memory[i] = np.zeros_like(memory[i])
    return memory


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", families.NAMES)
def test_a_schedule_keeps_the_meaning(name: str, seed: int) -> None:
    kernels, values = lowered(name, seed)
    for compiled in kernels:
        plain = compiled.group.loops
        memory = memory_of(compiled, values)
        same_results(plain.kernel, compiled.kernel, memory=memory)
        interpret(plain.kernel, memory, {})
        for i, node in enumerate(plain.slots[plain.reads :], plain.reads):
            tolerance = 0.02 if node.dtype.name == "bfloat16" else 2e-5
            found, expected = (a.astype(np.float64) for a in (memory[i], values[node]))
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        again = from_json(json.loads(json.dumps(to_json(compiled.steps))))
        assert replay(plain.kernel, again).body == compiled.kernel.body


@pytest.mark.parametrize("name", families.NAMES)
def test_every_access_is_proved_in_range(name: str) -> None:
    pytest.importorskip("z3")
    from tests.loops.bounds import prove_in_range

    outputs, inputs = families.graph(name, 1)
    for compiled in lower_graph(Graph(outputs, inputs), NARROW).kernels:
        below = {}
        for slot, node in enumerate(compiled.group.loops.slots):
            length = source_length(node)  # places that an earlier sort found
            if length is not None:
                below[slot] = bounds(length)[1]
        assert prove_in_range(compiled.kernel, below) > 0


@pytest.mark.parametrize("name", families.NAMES)
def test_counts_equal_the_interpreters(name: str) -> None:
    kernels, values = lowered(name, 0)
    for compiled in kernels:
        for kernel in (compiled.group.loops.kernel, compiled.kernel):
            check_counts(kernel, memory_of(compiled, values))


def check_counts(kernel: Kernel, memory: dict[int, Array]) -> None:
    """Counts from the loops against what the interpreter counted; bounds where not exact."""
    truth = Counters()
    interpret(kernel, memory, {}, counters=truth)
    work, moved, least = useful(kernel), moved_bytes(kernel), compulsory_bytes(kernel)
    operations = {cost: int(n) for cost, n in work.operations.items()}
    assert all(operations.get(cost, 0) >= n for cost, n in truth.operations.items())
    assert operations == dict(+truth.operations) or not work.exact
    scopes: dict[str, str] = {p.name: p.scope for p in kernel.params}
    scopes |= {
        s.buffer.name: s.buffer.scope for s in statements(kernel.body) if isinstance(s, Alloc)
    }
    for side, counter in ((moved.read, truth.loaded), (moved.written, truth.stored)):
        by_scope: dict[str, int] = {}
        for buffer, count in counter.items():
            by_scope[scopes[buffer]] = by_scope.get(scopes[buffer], 0) + count
        found = {scope: int(n) for scope, n in side.items() if int(n)}
        assert found == by_scope or not moved.exact
        assert all(found.get(scope, 0) >= n for scope, n in by_scope.items())
    for side, counter in ((least.read, truth.fetched), (least.written, truth.produced)):
        total = {buffer: int(n) for buffer, n in side.items() if int(n)}
        assert total == {b: n for b, n in counter.items() if n} or not least.exact


@pytest.mark.parametrize("columns", [3, 40])
def test_a_scatter_to_places_that_were_gathered(columns: int) -> None:
    """A column's place follows its loop, whatever bounds the index of what is gathered has."""

    def gathered_and_scattered(x: rl.Tensor) -> rl.Tensor:
        picked = rl.gather(x, 1, (rl.arange(columns) % columns).reshape(1, columns))
        return picked.scatter(0, (rl.abs(picked) % 1).to(rl.int64), picked + 1)

    x = rl.arange(columns).float().reshape(1, columns)
    with rl.config.override(tier="compiled"):
        found = rl.jit(gathered_and_scattered)(x)
    assert found.tolist() == [[n + 1.0 for n in range(columns)]]
