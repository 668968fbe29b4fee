"""Operands computed again for late readers: which ones, when, and that results stay as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.compiler import Stages, compile_graph, lay_out, lower_graph
from ridgeline.fusion import recompute
from ridgeline.fusion.in_place import Replacing, kernel_order
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.ops.contract import CONTRACT, matmul
from ridgeline.ops.differentiate import ones_like, reverse
from ridgeline.ops.elementwise import add, apply, full_like, mul, scale, select
from ridgeline.ops.linalg import eye_like, inverse
from ridgeline.ops.reduce import sum_
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.cpu.backend import CpuBackend

LAYERS, SIZE = 4, 128


def bent(x: Node) -> Node:
    """An activation whose derivative needs what it was applied to."""
    return mul(x, apply("tanh", x))


def rectified(x: Node) -> Node:
    """An activation whose derivative needs one bit."""
    return select(apply("lt", full_like(x, 0), x), x, full_like(x, 0))


def step(activation: object, library_call: bool = False) -> tuple[list[Node], list[Node]]:
    """The gradients of layers by their weights."""
    assert callable(activation)
    kind = TensorType((SIZE, SIZE), dtypes.float32)
    x, *weights = inputs = [leaf(kind) for _ in range(LAYERS + 1)]
    for weight in weights:
        x = matmul(activation(x), weight)
    total = sum_(mul(x, x), (0, 1))
    found = reverse([total], [ones_like(total)], weights)
    parts = [part for part in found if part is not None]
    if library_call:
        parts.append(inverse(add(eye_like(x), scale(parts[1], 1e-3)))[0])
    return parts, inputs


def arena(stages: Stages, inputs: Sequence[Node]) -> int:
    return lay_out(stages, CpuBackend()).arena_bytes


def test_what_activations_give_is_not_kept_between_the_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs, inputs = step(bent)
    stages = lower_graph(Graph(outputs, inputs))
    written = [v for g in stages.fusion.groups for v in g.loops.slots[g.loops.reads :]]
    with monkeypatch.context() as patch:
        patch.setattr(recompute, "_FAR", 1e9)
        kept = lower_graph(Graph(outputs, inputs))
    before = [v for g in kept.fusion.groups for v in g.loops.slots[g.loops.reads :]]
    assert len(written) > len(before) and len(stages.kernels) == len(kept.kernels)
    assert arena(stages, inputs) < arena(kept, inputs)


def test_what_keeps_nothing_else_alive_is_not_copied() -> None:
    outputs, inputs = step(rectified)
    order = lower_graph(Graph(outputs, inputs)).order
    assert not any(n.op.name == "tag" for n in order)


@pytest.mark.parametrize("library_call", [False, True])
def test_results_are_the_same(library_call: bool) -> None:
    outputs, inputs = step(bent, library_call)
    program = compile_graph(Graph(outputs, inputs))
    groups = program.stages.fusion.groups
    assert any(n.op.name == "tag" for g in groups for v in g.values for n in v.inputs)
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal((SIZE, SIZE)) / 16).astype(np.float32) for _ in inputs]
    got = program.run([HostBuffer.borrow(a) for a in arrays])
    assert any(g.apart is not None for g in groups) == library_call
    for buffer, wanted in zip(got, evaluate(outputs, dict(zip(inputs, arrays)))):
        mine = buffer.array(dtypes.float32, wanted.shape)
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_a_copy_alone_comes_just_before_its_reader() -> None:
    sources = {0: set[int](), 1: {0}, 2: {0}, 3: {2}, 4: {1, 3}, 5: {4}}
    assert kernel_order(sources, {}, {}, Replacing())[0] == [0, 1, 2, 3, 4, 5]
    assert kernel_order(sources, {}, {}, Replacing(), late={1})[0] == [0, 2, 3, 1, 4, 5]
    sources = {0: set[int](), 1: {5}, 2: {0}, 3: {2}, 4: {1, 3}, 5: {3}, 6: {5}}
    assert kernel_order(sources, {}, {}, Replacing(), late={1})[0] == [0, 2, 3, 5, 1, 4, 6]


def test_only_contractions_read_copies() -> None:
    outputs, inputs = step(bent)
    stages = lower_graph(Graph(outputs, inputs))
    copies = {
        v for g in stages.fusion.groups for v in g.values
        if any(n.op.name == "tag" for n in v.inputs)
    }  # fmt: skip
    for group in stages.fusion.groups:
        if copies & group.reads:
            assert any(v.op is CONTRACT for v in group.values)
