"""Register tiles of convolutions: what they cost, and that what they compute is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.functions.convolution import conv2d
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.lower import GroupLowering
from ridgeline.schedules.accesses import Access, accesses
from ridgeline.schedules.contraction import best_tile
from ridgeline.schedules.machine import Machine

WIDE = Machine(64, 32, 1, 32 << 10, 1 << 20, 32 << 20)
Shape = tuple[int, ...]


def lowered(
    image: Shape, filters: Shape, **settings: Any
) -> tuple[list[Access], dict[str, int], dict[str, int]]:
    """What the loops of a convolution touch, and their lengths."""
    root = conv2d(*(leaf(TensorType(s, dtypes.float32)) for s in (image, filters)), **settings)
    made = GroupLowering(
        folds=[root], stored=[root], external=lambda node: node is not root, name="convolution"
    ).lower()
    rows, inner = ({a.name: int(a.extent) for a in axes} for axes in (made.rows, made.inner))
    return accesses(made.kernel), rows, inner


def test_windows_that_overlap_are_in_memory_once() -> None:
    touched, rows, inner = lowered((2, 8, 20, 20), (4, 8, 3, 3))
    held = {a.buffer.slot: a.footprint(rows | inner) for a in touched}
    assert held == {0: 4 * 2 * 8 * 20 * 20, 1: 4 * 4 * 8 * 9, 2: 4 * 2 * 4 * 18 * 18}


@pytest.mark.parametrize(
    "image,filters,dilation,lanes,unrolled",
    [
        ((1, 64, 69, 69), (64, 64, 3, 3), 2, 32, 13),  # one of 65 columns would be left over
        ((32, 6, 14, 14), (16, 6, 5, 5), 1, 16, 25),  # ten columns would leave six lanes idle
    ],
)
def test_lanes_are_those_with_nothing_left_over(
    image: Shape, filters: Shape, dilation: int, lanes: int, unrolled: int
) -> None:
    _, tile, panel = best_tile(*lowered(image, filters, dilation=dilation), WIDE)
    assert panel is not None and (tile.vector, tile.lanes) == ("n", lanes)
    assert np.prod([factor for _, factor in tile.unroll]) == unrolled


@pytest.mark.parametrize("batch", [1, 3, 32])
@pytest.mark.parametrize("made,taps,size", [(16, 5, 14), (32, 3, 9), (16, 3, 17)])
def test_channels_that_fill_the_lanes(batch: int, made: int, taps: int, size: int) -> None:
    source = np.random.default_rng(0)
    shapes = ((batch, 6, size, size), (made, 6, taps, taps), (made,))
    arrays = [source.standard_normal(shape, np.float32) for shape in shapes]
    found = rl.jit(rl.nn.functional.conv2d)(*map(rl.tensor, arrays)).numpy()
    exact = torch.nn.functional.conv2d(*(torch.from_numpy(a).double() for a in arrays)).numpy()
    np.testing.assert_allclose(found, exact, rtol=2e-5, atol=2e-5)
