"""Steady weights in strips: the same results, laid out once, and again when they change."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import lower_graph, weight_packing
from ridgeline.functions.linear import einsum
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import TensorType, leaf, topological
from ridgeline.loops.ir import For, index, statements
from ridgeline.loops.lowering.iteration_space import Axis, across_rows
from ridgeline.loops.text.printer import print_expr
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.weight_layout import best_strips

WIDE = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)
NARROW = Machine(32, 16, 4, 32 << 10, 512 << 10, 16 << 20)


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("machine", [WIDE, NARROW])
@pytest.mark.parametrize("kind", ["convolution", "linear", "grouped"])
def test_the_graph_means_the_same(
    kind: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_packing, "machine", lambda: machine)
    forms = {
        "convolution": ("nchwrs,ocrs->nohw", (2, 40, 6, 6, 3, 3), (64, 40, 3, 3)),
        "linear": ("bsk,ok->bso", (2, 40, 96), (128, 96)),
        "grouped": ("gmk,gok->gmo", (3, 50, 80), (3, 64, 80)),
    }
    form, left, right = forms[kind]
    given = [leaf(TensorType(shape, dtypes.float32)) for shape in (left, right)]
    root = einsum(form, *given)
    graph, packed = weight_packing.pack_weights(
        Graph([root], given), lambda node: given[0] not in topological([node])
    )
    (made,) = graph.outputs
    assert made is not root and len(packed) == 1
    source = np.random.default_rng(1)
    arrays = [source.integers(-4, 5, shape).astype(np.float32) for shape in (left, right)]
    values = dict(zip(given, arrays))
    wanted, found = evaluate([root, made], values)
    np.testing.assert_array_equal(found, wanted)


def test_weights_that_few_rows_read_stay_as_they_are() -> None:
    given = [leaf(TensorType(shape, dtypes.float32)) for shape in ((1, 512), (1000, 512))]
    assert best_strips(einsum("mk,nk->mn", *given), 1, WIDE) is None


@pytest.mark.parametrize("channels,size,stride", [(64, 14, 1), (64, 14, 2), (50, 9, 1)])
def test_convolutions_under_jit(channels: int, size: int, stride: int) -> None:
    layer = rl.nn.Conv2d(32, channels, 3, stride, 1)
    x = normal(1, 32, size, size)
    run = rl.jit(lambda x: rl.nn.functional.relu(layer(x)))
    for seed in range(2):  # weights that change are laid out again
        weight, bias = normal(channels, 32, 3, 3, seed=seed) * 0.1, normal(channels, seed=seed + 9)
        layer.load_state_dict({"weight": rl.tensor(weight), "bias": rl.tensor(bias)})
        with rl.no_grad():
            results = [run(rl.tensor(x)).numpy() for _ in range(2)]
        exact = torch.nn.functional.conv2d(
            *(torch.from_numpy(a).double() for a in (x, weight, bias)), stride, 1
        )
        for result in results:
            np.testing.assert_allclose(result, exact.relu().numpy(), rtol=2e-5, atol=2e-5)


def test_what_is_packed_is_read_in_order() -> None:
    layer = rl.nn.Conv2d(64, 128, 3, 2, padding=1, bias=False)
    run = rl.jit(lambda x: layer(x))
    with rl.no_grad():
        run(rl.tensor(normal(1, 64, 14, 14)))
    text = run.explanation(detail="loops")
    assert "_read[" not in text and re.search(r": float32\[\d+, 64, 3, 3, \d+\]", text)


@pytest.mark.parametrize("rows,inside,outside", [(36, 768, 512), (64, 784, 256), (48, 100, 192)])
def test_a_linear_layer_reads_kept_strips_and_ends_in_one_kernel(
    rows: int, inside: int, outside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_packing, "machine", lambda: WIDE)
    layer = rl.nn.Linear(inside, outside)
    run = rl.jit(lambda x: rl.nn.functional.gelu(layer(x), approximate="tanh"))
    x = normal(rows, inside)
    for seed in range(2):  # weights that change are laid out again
        weight = normal(outside, inside, seed=seed) * 0.05
        bias = normal(outside, seed=seed + 9)
        layer.load_state_dict({"weight": rl.tensor(weight), "bias": rl.tensor(bias)})
        with rl.no_grad():
            results = [run(rl.tensor(x)).numpy() for _ in range(2)]
        exact = torch.nn.functional.linear(
            *(torch.from_numpy(a).double() for a in (x, weight, bias))
        )
        wanted = torch.nn.functional.gelu(exact, approximate="tanh").numpy()
        for result in results:
            np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5)
    text = run.explanation(detail="loops")
    assert text.count("\nkernel ") == 1 and "_read[" not in text
    assert re.search(rf": float32\[\d+, {inside}, \d+\]", text)


def test_lanes_of_a_tile_lie_side_by_side_in_strips() -> None:
    given = [leaf(TensorType(shape, dtypes.float32)) for shape in ((512, 768), (48, 768, 64))]
    root = einsum("mk,nkl->mnl", *given)
    (compiled,) = lower_graph(Graph([root], given), WIDE).kernels
    vector = [s for s in statements(compiled.kernel.body) if isinstance(s, For)]
    assert {s.extent for s in vector if s.kind == "vector"} == {index(64)}


@pytest.mark.parametrize(
    "shape,rows,wanted",
    [
        ((6, 8), (6, 2, 4), "r0, r1 * 4 + r2"),
        ((48,), (6, 2, 4), "(r0 * 2 + r1) * 4 + r2"),
        ((1, 6, 1, 8), (6, 2, 4, 1), "0:int64, r0, 0:int64, r1 * 4 + r2"),
        ((12, 4), (6, 2, 4), "r0 * 2 + r1, r2"),
        ((8, 6), (6, 2, 4), None),
        ((6, 4), (6, 2, 4), None),
        ((6, 16), (6, 2, 4), None),
        ((6, 2, 2, 2), (6, 2, 4), None),
    ],
)
def test_results_are_stored_by_rows_that_cut_their_axes(
    shape: tuple[int, ...], rows: tuple[int, ...], wanted: str | None
) -> None:
    axes = [Axis(f"r{n}", extent) for n, extent in enumerate(rows)]
    found = across_rows(shape, axes)
    assert (None if found is None else ", ".join(map(print_expr, found))) == wanted
