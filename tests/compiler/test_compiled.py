"""Compiled programs against the interpreter, judged by the error against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.compiler import compile_graph
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node, TensorType
from ridgeline.runtime.buffer import HostBuffer
from tests.compiler.programs import catalogue, evaluate, inputs_for


def run_compiled(
    outputs: list[Node], inputs: list[Node], arrays: list[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    program = compile_graph(Graph(outputs, inputs))
    buffers = program.run([HostBuffer.borrow(np.ascontiguousarray(a)) for a in arrays])
    return [b.array(o.dtype, o.shape) for b, o in zip(buffers, outputs)]  # type: ignore[arg-type]


def in_float64(
    outputs: list[Node], inputs: list[Node], arrays: list[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """The same graph with every float widened: the truth both ways to run are measured against."""
    from ridgeline.graph.node import PROJ, leaf, node, proj, topological
    from ridgeline.ops.elementwise import CAST, CONSTANT, cast, constant

    new: dict[Node, Node] = {}
    values: dict[Node, Any] = {}
    for given, array in zip(inputs, arrays):
        wide = dtypes.float64 if given.dtype.kind == "float" else given.dtype
        new[given] = leaf(TensorType(given.shape, wide))
        values[new[given]] = array.astype(wide.numpy)
    for old in topological(outputs):
        if old in new:
            continue
        operands = [new[i] for i in old.inputs]
        if old.op is PROJ:
            new[old] = proj(operands[0], old.attrs.output)
        elif old.op is CONSTANT and old.dtype.kind == "float":
            new[old] = constant(old.attrs.value, dtypes.float64)
        elif old.op is CAST and old.dtype.kind == "float":
            new[old] = cast(operands[0], dtypes.float64)
        else:
            new[old] = node(old.op, operands, old.attrs)
    return evaluate([new[o] for o in outputs], values)


def assert_agrees(
    got: np.ndarray[Any, Any],
    reference: np.ndarray[Any, Any],
    truth: np.ndarray[Any, Any],
    magnitude: np.ndarray[Any, Any],
) -> None:
    """Exact for integers; for floats, at most twice the reference's error plus two roundings.

    `magnitude` is the result for positive inputs: what the sums would be without cancellation.
    """
    assert got.shape == reference.shape
    if got.dtype.kind in "biu":
        assert np.array_equal(got, reference)
        return
    scale = max(np.abs(truth).max(initial=0.0), np.abs(magnitude).max(initial=0.0))
    eps = float(np.finfo(np.float32).eps) if got.dtype.itemsize >= 4 else 2.0**-8
    error = np.abs(got.astype(np.float64) - truth).max(initial=0.0)
    allowed = 2 * np.abs(reference.astype(np.float64) - truth).max(initial=0.0) + 2 * eps * scale
    assert error <= allowed, (error, allowed)


@pytest.mark.parametrize("name", list(catalogue()))
def test_compiled_agrees_with_the_interpreter(name: str) -> None:
    outputs, inputs = catalogue()[name]
    arrays = inputs_for(inputs, seed=1)
    reference = evaluate(outputs, dict(zip(inputs, arrays)))
    truth = in_float64(outputs, inputs, arrays)
    positive = in_float64(
        outputs, inputs, [np.abs(a) if a.dtype.kind != "b" else a for a in arrays]
    )
    results = run_compiled(outputs, inputs, arrays)
    for got, expected, exact, size in zip(results, reference, truth, positive):
        assert_agrees(got, expected, exact, size)
