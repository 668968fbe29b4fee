"""Weights of bytes: products read them as they are, scales are applied to results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import lower_graph
from ridgeline.functions.linear import einsum
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.graph.passes.libraries.dequantize_epilogue import scale_results
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.elementwise import cast, mul
from ridgeline.ops.movement import broadcast
from ridgeline.schedules.machine import Machine
from tests.loops.validation import same_results

WIDE = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
ROWS, COLUMNS, DEPTH = 40, 72, 50


def _data() -> tuple[Any, Any, Any]:
    source = np.random.default_rng(0)
    x = source.standard_normal((ROWS, DEPTH), np.float32)
    w = source.integers(-128, 128, (COLUMNS, DEPTH)).astype(np.int8)
    return x, w, source.random(COLUMNS, np.float32) / 64


def _written(kind: str, x: Any, w: Any, s: Any) -> Any:
    wide = w.float()
    if kind == "channels":
        return x @ (wide * s[:, None]).T
    if kind == "scale first":
        return rl.nn.functional.linear(x, s[:, None] * wide)
    if kind == "one number":
        return x @ (wide * 0.25).T
    return (x @ wide.T) * s


@pytest.mark.parametrize("rows", [1, 3, ROWS])
@pytest.mark.parametrize("kind", ["channels", "scale first", "one number", "result"])
def test_products_against_float64(kind: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    x, w, s = _data()
    x = x[:rows]
    wide = w.astype(np.float64) * (0.25 if kind == "one number" else s[:, None])
    exact, size = x @ wide.T, np.abs(x) @ np.abs(wide).T
    weights, scale = rl.tensor(w), rl.tensor(s)
    kept = rl.jit(lambda x: _written(kind, x, weights, scale))
    given = rl.jit(lambda x, w, s: _written(kind, x, w, s))
    with rl.no_grad():
        for result in (kept(rl.tensor(x)), given(rl.tensor(x), weights, scale)):
            assert np.all(np.abs(result.numpy() - exact) <= (DEPTH + 2) * 2.0**-24 * size)
    for function in (kept, given):
        function.explain(detail="kernels")
        text = capsys.readouterr().out
        assert f"int8[{COLUMNS}, {DEPTH}]" in text.partition("reads")[2]
        assert f"writes float32[{COLUMNS}, {DEPTH}]" not in text and "1 kernels" in text


def test_gradients_by_operand_and_scale() -> None:
    x, w, s = _data()
    results = []
    for library in (rl, torch):
        tensors = [library.tensor(v) for v in (x, s)]
        for tensor in tensors:
            tensor.requires_grad_()
        loss = (tensors[0] @ (library.tensor(w).float() * tensors[1][:, None]).T).square().sum()
        loss.backward()
        results.append([t.grad.numpy() for t in tensors])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-3 * np.abs(theirs).max())


@pytest.mark.parametrize("along,lifted", [((0,), True), ((1,), False), ((0, 1), False), ((), True)])
def test_scales_that_are_not_summed_leave_the_product(along: tuple[int, ...], lifted: bool) -> None:
    sizes = (COLUMNS, DEPTH)
    x = leaf(TensorType((ROWS, DEPTH), dtypes.float32))
    w = leaf(TensorType(sizes, dtypes.int8))
    s = leaf(TensorType(tuple(sizes[a] for a in along), dtypes.float32))
    wide = mul(cast(w, dtypes.float32), broadcast(s, sizes, along))
    (made,) = scale_results(Graph([einsum("mk,nk->mn", x, wide)], [x, w, s])).outputs
    assert (made.op is not CONTRACT) is lifted


def test_bytes_are_widened_once_where_they_are_packed() -> None:
    x = leaf(TensorType((192, 64), dtypes.float32))
    w = leaf(TensorType((64, 128), dtypes.int8))
    product = einsum("mk,kn->mn", x, cast(w, dtypes.float32))
    (compiled,) = lower_graph(Graph([product], [x, w]), WIDE).kernels
    text = print_kernel(compiled.kernel)
    assert "= float32(b1[" in text and "b1_read: float32" in text
    same_results(compiled.group.loops.kernel, compiled.kernel)
