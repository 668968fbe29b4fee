"""Library calls inside programs: ops without loops run between kernels."""

from __future__ import annotations

import numpy as np

from ridgeline import dtypes
from ridgeline.compiler import HostCall, compile_graph
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Op, TensorType, leaf, node, proj
from ridgeline.ops import elementwise as E, movement as M, reduce as R
from ridgeline.runtime.buffer import HostBuffer
from tests.compiler.programs import f32

SORT = Op(
    "test_sort",
    "library",
    lambda types, attrs: (types[0], TensorType(types[0].shape, dtypes.int64)),
    lambda current, inputs: (np.sort(inputs[0]), np.argsort(inputs[0])),
)


def test_values_survive_across_library_calls() -> None:
    x = f32(6, 40)
    before = E.add(x, x)
    kept = R.sum_(E.mul(x, x), (1,))  # made before the call, used after it
    order = node(SORT, (M.reshape(before, (240,)),))
    ranked = M.reshape(proj(order, 0), (6, 40))
    result = E.add(ranked, R.expand_back(kept, x.shape, (1,)))
    program = compile_graph(Graph([result, proj(order, 1)], [x]))
    assert sum(isinstance(part, HostCall) for part in program.executable.parts) == 1
    values = np.random.default_rng(0).integers(-9, 9, (6, 40)).astype(np.float32)
    total, places = program.run([HostBuffer.borrow(values)])
    expected = np.sort((2 * values).ravel()).reshape(6, 40) + (values**2).sum(1, keepdims=True)
    assert np.array_equal(total.array(dtypes.float32, (6, 40)), expected)
    assert np.array_equal(places.array(dtypes.int64, (240,)), np.argsort((2 * values).ravel()))


def test_complex_values_are_computed_by_the_library() -> None:
    z = leaf(TensorType((5,), dtypes.complex64))
    product = E.mul(z, z)
    program = compile_graph(Graph([product], [z]))
    values = (np.arange(5) + 2j).astype(np.complex64)
    (squared,) = program.run([HostBuffer.borrow(values)])
    assert np.allclose(squared.array(dtypes.complex64, (5,)), values * values)
