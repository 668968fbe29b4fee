"""Strided and dilated convolutions and transposed ones, and their gradients, against torch's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ridgeline as rl
from ridgeline.config import config

torch = pytest.importorskip("torch")

CASES = [
    (kernel, stride, dilation, size, padding, groups)
    for kernel, stride, dilation, size, padding, groups in itertools.product(
        (1, 2, 3, 5), (1, 2, 3), (1, 2), (6, 7), (0, 1), (1, 2)
    )
    if size + 2 * padding > dilation * (kernel - 1) and (groups == 1 or padding + size == 8)
]


def gradients(library, function, arrays, weights, **settings):
    """The value, and the gradients of its sum under weights."""
    given = [library.tensor(a, requires_grad=True) for a in arrays]
    result = getattr(library.nn.functional, function)(*given, **settings)
    (result * library.tensor(weights(tuple(result.shape)))).sum().backward()
    return [np.asarray(t.detach().numpy()) for t in (result, *(g.grad for g in given))]


def compared(function: str, arrays, **settings) -> None:
    def weights(shape):
        return np.random.default_rng(1).standard_normal(shape)

    ours, theirs = (gradients(lib, function, arrays, weights, **settings) for lib in (rl, torch))
    for mine, wanted in zip(ours, theirs):
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=1e-9, err_msg=str(settings))


@pytest.mark.parametrize("transposed", [False, True])
def test_against_torch(transposed: bool) -> None:
    draw = np.random.default_rng(0).standard_normal
    with config.override(tier="interpreter"):
        for kernel, stride, dilation, size, padding, groups in CASES:
            names = ("stride", "dilation", "padding", "groups")
            settings = dict(zip(names, (stride, dilation, padding, groups)))
            if transposed:
                if stride > 1:
                    settings["output_padding"] = 1
                if (size - 1) * stride + dilation * (kernel - 1) + 1 <= 2 * padding:
                    continue
                arrays = draw((2, 4, size)), draw((4, 3, kernel))
                compared("conv_transpose1d", arrays, **settings)
            else:
                compared("conv1d", (draw((2, 4, size)), draw((6, 4 // groups, kernel))), **settings)


@pytest.mark.parametrize("function", ["conv2d", "conv_transpose2d"])
def test_two_axes_compiled(function: str) -> None:
    draw = np.random.default_rng(0).standard_normal
    arrays = draw((2, 3, 7, 6)), draw((3, 3, 3, 4))
    with config.override(tier="compiled"):
        compared(function, arrays, stride=(2, 3), padding=1)


def test_second_derivatives() -> None:
    x, w = (rl.randn(*s, dtype=rl.float64, requires_grad=True) for s in ((1, 2, 7), (2, 3, 3)))
    assert rl.autograd.gradgradcheck(
        lambda x, w: rl.nn.functional.conv_transpose1d(x, w, stride=2, padding=1), (x, w)
    )
