"""Operators of torch's registry, called by name: layers, and what gradients are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ridgeline.torch_backend as backend

F, aten = torch.nn.functional, torch.ops.aten
_random = torch.Generator().manual_seed(0)


def _draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_random)


X, W, SQUARE = _draw(2, 4, 9, 9), _draw(6, 4, 3, 3), _draw(4, 9)
LOGS, TARGET = _draw(5, 7).log_softmax(-1), torch.tensor([0, 6, 3, 3, 2])
POOLED, PLACES = aten.max_pool2d_with_indices(X, [3, 3], [2, 2], [1, 1])
MASK = torch.tensor([[True, False, True], [False, True, True]])
ROWS, COLUMNS = torch.tensor([[0, 99, 3], [-50, 1, 2]]), torch.tensor([[8, 99, 0], [77, 1, 2]])
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
CASES: dict[str, Case] = {
    "relu": (lambda x: aten.relu(x), (X,)),
    "convolution": (
        lambda x, w, b: aten.convolution(x, w, b, [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
        (X, W, _draw(6)),
    ),
    "transposed convolution": (
        lambda x, w: aten.convolution(x, w, None, [2], [1], [1], True, [1], 2),
        (X, _draw(4, 3, 3, 3)),
    ),
    "convolution_backward": (
        lambda g, x, w: aten.convolution_backward(
            g, x, w, [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        (_draw(2, 6, 5, 5), X, W),
    ),
    "max_pool2d_with_indices": (
        lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]), (X,),
    ),
    "max_pool2d_with_indices_backward": (
        lambda g, x, i: aten.max_pool2d_with_indices_backward(
            g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, i
        ),
        (_draw(*POOLED.shape), X, PLACES),
    ),
    "avg_pool2d": (lambda x: aten.avg_pool2d(x, [3, 3], [], [1, 1], True, False, None), (X,)),
    "avg_pool2d_backward": (
        lambda g, x: aten.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], True, False, None),
        (_draw(2, 4, 5, 5), X),
    ),
    "adaptive pools": (
        lambda x: (aten._adaptive_avg_pool2d(x, [4, 4]), *aten.adaptive_max_pool2d(x, [4, 4])),
        (X,),
    ),
    "nll_loss_forward": (
        lambda x, t, w: [n for r in (0, 1, 2) for n in aten.nll_loss_forward(x, t, w, r, 3)],
        (LOGS, TARGET, torch.rand(7, generator=_random)),
    ),
    "nll_loss_backward": (
        lambda g, x, t, n: aten.nll_loss_backward(g, x, t, None, 1, -100, n),
        (torch.tensor(2.0), LOGS, TARGET, torch.tensor(3.0)),
    ),
    "reflection_pad2d_backward": (
        lambda g, x: aten.reflection_pad2d_backward(g, x, [1, 2, 1, 2]), (_draw(2, 4, 12, 12), X),
    ),
    "activations": (
        lambda g, x: (
            aten.gelu_backward(g, x, approximate="tanh"),
            aten.sigmoid_backward(g, x.sigmoid()),
            aten.tanh_backward(g, x.tanh()),
            aten.threshold_backward(g, x, 0),
            aten._softmax(x, 1, False),
            aten._softmax_backward_data(g, x.softmax(1), 1, torch.float32),
            aten._log_softmax_backward_data(g, x.log_softmax(1), 1, torch.float32),
        ),
        (_draw(2, 4, 9, 9), X),
    ),
    "elu": (lambda x: aten.elu(x, 2, 3, 4), (X,)),
    "fractional_max_pool2d": (
        lambda x, s: aten.fractional_max_pool2d(x, (2, 2), (4, 4), s),
        (X, torch.rand(2, 4, 2, generator=_random)),
    ),
    "_batch_norm_with_update": (
        lambda x, w: aten._batch_norm_with_update(
            x, w, w, torch.zeros(4), torch.ones(4), 0.1, 1e-5
        )[:3],
        (X, _draw(4)),
    ),
    "pools with places": (
        lambda x: (
            *F.max_pool2d(x, 3, return_indices=True),
            *F.adaptive_max_pool2d(x, 3, return_indices=True),
        ),
        (X,),
    ),
    "windows": (lambda x: x * torch.signal.windows.hann(9, sym=False), (SQUARE,)),
    "lu": (lambda x: torch.lu(x @ x.mT), (SQUARE,)),
    "masked places": (
        lambda x, m, i, j, v: (
            aten._unsafe_masked_index(x, m, [i, j], 7.0),
            aten._unsafe_masked_index_put_accumulate(x, m, [i, j], v),
        ),
        (SQUARE, MASK, ROWS, COLUMNS, _draw(2, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name: str) -> None:
    function, given = CASES[name]
    torch._dynamo.reset()
    backend.reset()
    want, got = function(*given), torch.compile(function, backend="ridgeline")(*given)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not backend.by_torch(), backend.explain()


def test_a_softmax_of_nothing_has_no_gradient() -> None:
    x = _draw(3, 5)
    x[1] = -torch.inf
    x.requires_grad_()
    run = torch.compile(lambda x: aten._safe_softmax(x, -1), backend="ridgeline")
    (run(x) * torch.arange(5.0)).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[1], torch.zeros(5))
    assert x.grad.isfinite().all() and x.grad[0].any()
