"""Contractions on a GPU: parts that fit, fill it, and read without waiting between loads."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.codegen.cuda import generate
from ridgeline.compiler import lay_out, lower_graph
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops import contract as C, reduce as R
from ridgeline.record.values import read
from ridgeline.runtime.cuda import cublaslt
from ridgeline.runtime.cuda.launches import KernelLaunch
from ridgeline.runtime.cuda.product import ProductLaunch
from ridgeline.schedules.gpu.machine import A100, H200, T4, GpuMachine
from ridgeline.schedules.gpu.tiles import choose
from tests.compiler.programs import conv
from tests.cuda.lowering import schedule
from tests.cuda.programs import given as leaf, gradients
from tests.cuda.stated import StatedGpu

SIZES = st.one_of(st.integers(1, 40), st.integers(1, 200_000))


@settings(max_examples=300, deadline=None)
@given(SIZES, SIZES, st.integers(1, 64), SIZES, st.sampled_from([2, 4, 8]),
       st.sampled_from([H200, A100, T4]))  # fmt: skip
def test_every_tile_fits(
    near: int, far: int, batch: int, depth: int, itemsize: int, gpu: GpuMachine
) -> None:
    tile = choose(near, far, batch, depth, itemsize, gpu)
    threads = tile.threads
    assert 32 <= threads <= 256 and threads & (threads - 1) == 0
    assert tile.near % tile.near_each == 0 and tile.far % tile.far_each == 0
    assert tile.depth % tile.parts == 0 and tile.depth <= depth + tile.parts
    padding = 4 * tile.depth // tile.parts * 2
    operands = (tile.depth * (tile.near + tile.far) + padding) * itemsize
    joined = 8 * threads * tile.near_each * tile.far_each if tile.parts > 1 else 0
    assert operands + joined <= gpu.shared_bytes
    assert tile.pieces == 1 or tile.pieces * 64 <= depth


def launches(outputs: list[Node], inputs: list[Node]) -> list[tuple[int, int]]:
    """Blocks and threads of the launches of the last kernel of a graph."""
    source = generate(schedule(outputs, inputs, H200)[-1].kernel)
    return [(one.blocks(), one.block) for one in source.launches]


def test_a_small_convolution_fills_the_gpu_both_ways() -> None:
    x, w = leaf(dtypes.float32, 64, 6, 15, 15), leaf(dtypes.float32, 16, 6, 3, 3)
    y = conv(x, w)
    ct = leaf(dtypes.float32, *(int(s) for s in y.shape))
    for output, inputs in [
        (y, [x, w]), *((g, [x, w, ct]) for g in gradients(y, ct, x, w)),
    ]:  # fmt: skip
        blocks, threads = launches([output], inputs)[0]
        assert blocks >= H200.multiprocessors and threads == 256


def test_a_short_sum_of_columns_is_one_launch() -> None:
    for columns in (10, 84, 120):
        x = leaf(dtypes.float32, 64, columns)
        assert len(launches([R.sum_(x, (0,))], [x])) == 1


def test_loads_of_a_padded_tile_have_no_branch_between_them() -> None:
    x, w = leaf(dtypes.float32, 33, 64), leaf(dtypes.float32, 47, 64)
    text = generate(schedule([product(x, w)], [x, w], H200)[-1].kernel).text
    loads = [n for n, line in enumerate(text.splitlines()) if "fetched" in line and "const" in line]
    lines = text.splitlines()
    assert len(loads) == 2
    for start, end in pairwise(loads):
        assert not any(line.lstrip().startswith("if (") for line in lines[start:end])


def product(x: Node, w: Node) -> Node:
    """x @ w.T"""
    attrs = C.ContractAttrs(
        (int(x.shape[0]), int(w.shape[0]), int(x.shape[1])), (0, 1),
        (C.axis(0), C.axis(2)), (C.axis(1), C.axis(2)),
    )  # fmt: skip
    return C.contract(x, w, attrs)


@pytest.mark.parametrize(
    ("size", "kinds"),
    [(64, [KernelLaunch]), (128, [KernelLaunch]), (512, [ProductLaunch, KernelLaunch])],
)
def test_small_products_are_kernels_fused_with_what_follows(
    monkeypatch: pytest.MonkeyPatch, size: int, kinds: list[type]
) -> None:
    monkeypatch.setattr(cublaslt, "library", lambda: object())
    x, w = rl.zeros(size, size).contiguous(), rl.ones(size, size).contiguous()
    x.numpy(), w.numpy()  # inputs, not constants
    outputs, inputs = [read(rl.relu(x @ w))], [read(x), read(w)]
    target = StatedGpu()
    layout = lay_out(lower_graph(Graph(outputs, inputs), target=target), target)
    assert [type(call.launch) for call in layout.calls] == kinds  # type: ignore[union-attr]
