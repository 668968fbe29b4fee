"""Convolutions over transformed tiles: the same results, where it winograd_pays and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.compiler import weight_packing
from ridgeline.functions.convolution import conv2d
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.passes.contractions.winograd import transform_filters
from ridgeline.ops.contract import CONTRACT
from ridgeline.schedules.machine import Machine
from ridgeline.schedules.weight_layout import winograd_pays

WIDE = Machine(64, 32, 2, 32 << 10, 1 << 20, 32 << 20)


def image_and_filters(
    batch: int, channels: int, made: int, size: tuple[int, int]
) -> tuple[Node, Node]:
    shapes = ((batch, channels, *size), (made, channels, 3, 3))
    image, filters = (leaf(TensorType(shape, dtypes.float32)) for shape in shapes)
    return image, filters


def transformed(root: Node, filters: Node) -> tuple[Node, set[Node]]:
    """A convolution by steady filters over tiles, whether it winograd_pays or not."""
    graph, kept = transform_filters(
        Graph.below([root]), {filters}.__contains__, lambda direct, products: True
    )
    return graph.outputs[0], kept


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.tuples(*[st.integers(1, 9)] * 2),
    st.integers(0, 3),
)  # fmt: skip
def test_whole_numbers_are_exact(
    batch: int, channels: int, made: int, size: tuple[int, int], margin: int
) -> None:
    if min(size) + 2 * margin < 3:
        return
    image, filters = image_and_filters(batch, channels, made, size)
    root = conv2d(image, filters, padding=margin)
    tiled, kept = transformed(root, filters)
    assert tiled is not root and tiled.shape == root.shape and len(kept) == 1
    source = np.random.default_rng(0)
    values = {n: source.integers(-8, 9, n.shape).astype(np.float32) for n in (image, filters)}
    wanted, found = evaluate([root, tiled], values)
    np.testing.assert_array_equal(found, wanted)


def test_other_convolutions_stay() -> None:
    image, filters = image_and_filters(1, 4, 4, (8, 8))
    for kind in ({"stride": 2}, {"dilation": 2}, {"groups": 2}):
        own = leaf(TensorType((4, 2, 3, 3), dtypes.float32)) if "groups" in kind else filters
        root = conv2d(image, own, padding=1, **kind)
        assert transformed(root, own) == (root, set())
    changing = conv2d(image, filters)
    assert transformed(changing, image) == (changing, set())


@pytest.mark.parametrize(
    "batch,channels,size,worth",
    [(1, 64, 56, True), (1, 128, 28, True), (1, 256, 14, True), (1, 512, 7, False),
     (64, 64, 56, False), (1, 3, 224, False)],
)  # fmt: skip
def test_where_it_pays(batch: int, channels: int, size: int, worth: bool) -> None:
    """Not where the last cache holds neither tiles nor filters, nor for three channels."""
    image, filters = image_and_filters(batch, channels, channels, (size, size))
    root = conv2d(image, filters, padding=1)
    tiled, (kept,) = transformed(root, filters)
    (products,) = (n for n in topological([tiled]) if n.op is CONTRACT and kept in n.inputs)
    assert winograd_pays(root, products, WIDE) == worth


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("channels,size,margin", [(64, 20, 1), (96, 15, 0), (64, 9, 2)])
def test_as_accurate_as_sums_of_products(
    channels: int, size: int, margin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_packing, "winograd_pays", lambda direct, products, machine: True)
    x = normal(1, channels, size, size)
    bias = normal(channels, seed=2)
    layer = rl.nn.Conv2d(channels, channels, 3, padding=margin)
    run = rl.jit(lambda x: rl.nn.functional.relu(layer(x)))
    plain = rl.jit(lambda x: rl.nn.functional.relu(layer(x)))
    for seed in range(2):  # filters that change are transformed again
        weight = normal(channels, channels, 3, 3, seed=seed) * 0.05
        layer.load_state_dict({"weight": rl.tensor(weight), "bias": rl.tensor(bias)})
        with rl.no_grad():
            found = run(rl.tensor(x)).numpy()
            with rl.config.override(allow_winograd=False):
                direct = plain(rl.tensor(x)).numpy()
        exact = torch.nn.functional.conv2d(
            *(torch.from_numpy(a).double() for a in (x, weight, bias)), padding=margin
        )
        wanted = exact.relu().numpy()
        unit = np.finfo(np.float32).eps * np.abs(wanted).max()
        assert not np.array_equal(found, direct)
        assert np.abs(found - wanted).max() <= 4 * unit + np.abs(direct - wanted).max()


def test_what_is_not_finite_stays_in_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_packing, "winograd_pays", lambda direct, products, machine: True)
    layer = rl.nn.Conv2d(64, 64, 3, padding=1)
    run = rl.jit(lambda x: layer(x))
    for value in (np.nan, np.inf):
        x = normal(1, 64, 20, 20)
        x[0, 5, 7, 10] = value
        with rl.no_grad():
            found = np.isfinite(run(rl.tensor(x)).numpy())
        wanted = np.ones((64, 20, 20), bool)
        wanted[:, 6:9, 9:12] = False
        np.testing.assert_array_equal(found[0], wanted)
