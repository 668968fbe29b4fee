"""Register tiles of convolutions: what they cost, and that what they compute is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import dtypes
from ridgeline.functions.convolution import conv2d
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import TensorType, leaf
from ridgeline.loops.lowering.lower import GroupLowering
from ridgeline.schedules.accesses import LoopAccess, accesses
from ridgeline.schedules.contraction import best_tile
from ridgeline.schedules.machine import Machine

WIDE = Machine(64, 32, 1, 32 << 10, 1 << 20, 32 << 20)
Shape = tuple[int, ...]


def lowered(
    image: Shape, filters: Shape, **settings: Any
) -> tuple[list[LoopAccess], dict[str, int], dict[str, int]]:
    """What the loops of a convolution touch, and their lengths."""
    root = conv2d(*(leaf(TensorType(s, dtypes.float32)) for s in (image, filters)), **settings)
    made = GroupLowering(folds=[root], graph=Graph([root], root.inputs), name="convolution").lower()
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


@pytest.mark.parametrize(
    "batch,channels,size,taps,stride,margin,dilation,dtype",
    [(1, 5, (14, 14), 3, 1, 1, 1, "float64"), (2, 3, (9, 11), 3, 2, 1, 1, "bfloat16"),
     (1, 1, (1, 1), 3, 1, 1, 1, "float32"), (3, 7, (6, 40), 2, 1, 1, 2, "float32"),
     (1, 4, (112, 112), 3, 2, 1, 1, "float32"), (2, 6, (33, 70), 3, 1, 1, 1, "float32"),
     (1, 2, (7, 7), 3, 1, 4, 1, "float32"), (2, 3, (5, 90), 4, 3, 2, 1, "float32")],
)  # fmt: skip
def test_a_margin_around_single_channels_is_not_copied(
    batch: int, channels: int, size: Shape, taps: int, stride: int, margin: int, dilation: int,
    dtype: str,
) -> None:  # fmt: skip
    source = np.random.default_rng(0)
    shapes = ((batch, channels, *size), (channels, 1, taps, taps))
    arrays = [source.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    settings = (stride, margin, dilation, channels)

    def both(x: Any, w: Any) -> Any:
        y, pull = rl.vjp(lambda x: rl.nn.functional.conv2d(x, w, None, *settings), x)
        return y, pull(y)[0]

    run = rl.jit(both)
    with rl.config.override(tier="compiled"):
        found = run(*(rl.tensor(a).to(getattr(rl, dtype)) for a in arrays))
    x, w = (torch.from_numpy(a).to(getattr(torch, dtype)) for a in arrays)
    x.requires_grad_()
    y = torch.nn.functional.conv2d(x, w, None, *settings)
    y.backward(y.detach())
    for ours, exact in zip(found, (y.detach(), x.grad)):
        np.testing.assert_array_equal(ours.to(rl.float32).numpy(), exact.float().numpy())


def test_single_channels_are_one_kernel() -> None:
    layer = rl.nn.Conv2d(32, 32, 3, 2, 1, groups=32, bias=False)
    run = rl.jit(lambda x: layer(x))
    with rl.no_grad(), rl.config.override(tier="compiled"):
        run(rl.zeros(1, 32, 56, 56))
    assert "1 kernels in one native call" in run.explanation()
