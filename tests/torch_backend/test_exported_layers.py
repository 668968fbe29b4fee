"""Layers whose operators in torch.export's graphs take other arguments than our functions do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ridgeline as rl
from ridgeline import torch_backend
from ridgeline.config import config


class Computes(nn.Module):
    """A module that calls a function with what it holds."""

    def __init__(self, function: Callable[..., Any], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.inner = function, inner

    def forward(self, *args: Any) -> Any:
        return self.function(*([] if self.inner is None else [self.inner]), *args)


def _sampled(x: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def _folded(x: Tensor) -> Tensor:
    return F.fold(F.unfold(x, 3, padding=1, stride=2), (4, 4), 3, padding=1, stride=2)


def _unpooled(x: Tensor) -> Tensor:
    found, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(found, places, 2)


def _cast(inner: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return inner(x).float()


def _read(inner: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    found, last = inner(x)
    return (found, *last) if isinstance(last, tuple) else (found, last)


def _step(inner: nn.Module, x: Tensor) -> Any:
    return inner(x)


def _recurrent(kind: str, **options: Any) -> nn.Module:
    layers = getattr(nn, kind)(4, 3, num_layers=2, batch_first=True, bidirectional=True, **options)
    return Computes(_read, layers)


ROWS = torch.linspace(-1, 1, 2 * 3 * 4).reshape(2, 3, 4)
IMAGE = torch.linspace(-1, 1, 2 * 4 * 4).reshape(1, 2, 4, 4)
THETA = torch.tensor([[[1.0, 0.2, 0.1], [0.0, 0.8, 0.0]]])
INDICES, STARTS = torch.tensor([1, 0, 3, 2, 1]), torch.tensor([0, 2, 2])
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "lstm": (lambda: _recurrent("LSTM"), (ROWS,)),
    "lstm, narrower": (lambda: _recurrent("LSTM", proj_size=2), (ROWS,)),
    "gru": (lambda: _recurrent("GRU"), (ROWS,)),
    "rnn without biases": (lambda: _recurrent("RNN", bias=False, nonlinearity="relu"), (ROWS,)),
    "lstm cell": (lambda: Computes(_step, nn.LSTMCell(4, 3)), (ROWS[0],)),
    "gru cell": (lambda: Computes(_step, nn.GRUCell(4, 3)), (ROWS[0],)),
    "bag": (lambda: Computes(_step2, nn.EmbeddingBag(5, 3, mode="max")), (INDICES, STARTS)),
    "sampled": (lambda: Computes(_sampled), (IMAGE, THETA)),
    "folded": (lambda: Computes(_folded), (IMAGE,)),
    "unpooled": (lambda: Computes(_unpooled), (IMAGE,)),
    "attributes": (lambda: Computes(lambda x: (x.T, x.mT.clone(), x.t().H)), (ROWS[0],)),
    "autocast": (lambda: Computes(_cast, nn.Linear(4, 3)), (ROWS,)),
    "weight norm": (
        lambda: Computes(_step, nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
        (ROWS,),
    ),
}


def _step2(inner: nn.Module, x: Tensor, more: Tensor) -> Any:
    return inner(x, more)


@pytest.mark.parametrize("name", CASES)
def test_a_layer_of_an_exported_program_is_torchs(name: str) -> None:
    make, given = CASES[name]
    torch.manual_seed(0)
    model = make().eval()
    own = rl.from_torch_export(torch.export.export(model, given))
    theirs = model(*given)
    with config.override(tier="interpreter"):
        ours = own(*[rl.tensor(x.numpy()) for x in given])
    pairs = [(ours, theirs)] if isinstance(theirs, Tensor) else zip(ours, theirs, strict=True)
    for one, other in pairs:
        want = other.detach().numpy()
        low = 1e-2 if name == "autocast" else 1e-5
        np.testing.assert_allclose(one.detach().numpy(), want, rtol=1e-4, atol=low)


def test_recurrences_that_dynamo_leaves_whole_are_compiled() -> None:
    torch._dynamo.reset()
    torch_backend.reset()
    layers = nn.LSTM(4, 3, batch_first=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        found, (hidden, _) = torch.compile(layers, backend="ridgeline")(ROWS)
    wanted, (last, _) = layers(ROWS)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(hidden, last)
    assert len(torch_backend.reports()) == 1 and not torch_backend.by_torch()
    torch._dynamo.reset()
