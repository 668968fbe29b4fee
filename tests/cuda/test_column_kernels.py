"""Column reductions that also store: they compile, and interpreted give what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.codegen.cuda import generate
from ridgeline.graph.graph import Graph
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.schedule import replay
from ridgeline.schedules.gpu.default import steps
from ridgeline.schedules.gpu.machine import H200


@pytest.mark.parametrize("width", [384, 1536, 100])
def test_a_stored_value_and_its_column_sums(width: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rl.tensor(rng.integers(-4, 5, (2, 64, width)).astype(np.float32)) for _ in range(2))

    def both(a: rl.Tensor, b: rl.Tensor) -> tuple[rl.Tensor, rl.Tensor]:
        total = a * b + 1
        return total, total.sum((0, 1))

    loops = rl.loops(both, a, b)
    kernel = replay(loops.lowered.kernel, steps(loops.lowered, H200))
    source = generate(kernel)
    assert all(one.blocks() > 0 for one in source.launches)
    memories = [t.numpy().reshape(-1).copy() for t in (a, b)]
    memories += [np.zeros(2 * 64 * width, np.float32), np.zeros(width, np.float32)]
    interpret(kernel, dict(enumerate(memories)))
    expected = a.numpy() * b.numpy() + 1
    np.testing.assert_array_equal(memories[2].reshape(expected.shape), expected)
    np.testing.assert_array_equal(memories[3], expected.sum((0, 1)))


def test_a_row_of_no_elements_keeps_none() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from ridgeline.codegen.cuda import compile_all

    def total(x: rl.Tensor) -> rl.Tensor:
        kept = rl.tanh(x)
        return (kept - kept.sum(1, keepdim=True)).exp().sum(1)

    lowered = rl.loops(total, rl.zeros(3, 0)).lowered
    kernel = replay(lowered.kernel, steps(lowered, H200))
    compile_all([generate(kernel).text], H200.arch)


def test_an_outer_product_sums_nothing() -> None:
    from ridgeline import dtypes
    from ridgeline.compiler import lower_graph
    from ridgeline.graph.node import TensorType, leaf
    from ridgeline.ops import contract as C
    from ridgeline.runtime.cpu.backend import CpuBackend

    a, b = (leaf(TensorType((size,), dtypes.float32)) for size in (5, 7))
    attrs = C.ContractAttrs((5, 7), (0, 1), (C.axis(0),), (C.axis(1),))
    stages = lower_graph(Graph([C.contract(a, b, attrs)], [a, b]), target=CpuBackend())
    lowered = stages.kernels[0].group.loops
    kernel = replay(lowered.kernel, steps(lowered, H200))
    assert generate(kernel).launches[0].blocks() > 0
    left, right = np.arange(5, dtype=np.float32), np.arange(7, dtype=np.float32)
    result = np.zeros((5, 7), np.float32)
    interpret(kernel, {0: left, 1: right, 2: result.reshape(-1)})
    np.testing.assert_array_equal(result, np.outer(left, right))


@pytest.mark.parametrize("shape", [(2, 6, 4, 8), (3, 5, 7, 1), (2, 40, 5, 5), (1, 3, 1, 9)])
def test_the_pixels_of_a_channel_are_one_axis(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).standard_normal(shape, np.float32)
    lowered = rl.loops(lambda x: x.softmax(1), rl.tensor(values)).lowered
    kernel = replay(lowered.kernel, steps(lowered, H200))
    result = np.zeros(values.size, np.float32)
    interpret(kernel, {0: values.reshape(-1), 1: result})
    powers = np.exp(values - values.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(result.reshape(shape), expected, rtol=1e-5)
