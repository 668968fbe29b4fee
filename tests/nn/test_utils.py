"""nn.utils, nn.init and random layers: against torch where it is exact, else by their moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.nn import init, utils
from ridgeline.random import manual_seed
from ridgeline.tensors.tensor import tensor

VALUES = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([-4.0, 5.0], np.float32)]


def pairs() -> tuple[list[Any], list[Any]]:
    """Our parameters and torch's, with equal values and gradients."""
    mine = [nn.Parameter(tensor(v)) for v in VALUES]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in VALUES]
    for a, b, value in zip(mine, theirs, VALUES):
        a.grad, b.grad = tensor(value * 2 - 1), torch.tensor(value * 2 - 1)
    return mine, theirs


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 1000.0])
def test_clipping_by_norm(norm_type: float, limit: float) -> None:
    mine, theirs = pairs()
    total = utils.clip_grad_norm_(mine, limit, norm_type)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, limit, norm_type)
    assert math.isclose(float(total), float(wanted), rel_tol=1e-6)
    for a, b in zip(mine, theirs):
        assert np.allclose(as_array(a.grad), b.grad.numpy(), rtol=1e-5)


def test_clipping_by_value_and_bad_norms() -> None:
    mine, _ = pairs()
    utils.clip_grad_value_(mine, 2.5)
    assert max(float(abs(as_array(p.grad)).max()) for p in mine) == 2.5
    mine[0].grad = tensor(np.full((2, 3), np.nan, np.float32))
    with pytest.raises(RidgelineError, match="norm of the gradients is nan"):
        utils.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)


def test_one_long_vector() -> None:
    mine, theirs = pairs()
    vector = utils.parameters_to_vector(mine)
    assert as_array(vector).tolist() == torch.nn.utils.parameters_to_vector(theirs).tolist()
    utils.vector_to_parameters(tensor(np.arange(8, dtype=np.float32)), mine)
    assert as_array(mine[1]).tolist() == [6.0, 7.0]
    with pytest.raises(ShapeError, match="8 elements"):
        utils.vector_to_parameters(tensor([1.0]), mine)


@pytest.mark.parametrize(
    ("fill", "settings"),
    [
        ("uniform_", (-2.0, 3.0)),
        ("normal_", (1.0, 2.0)),
        ("xavier_uniform_", (1.5,)),
        ("xavier_normal_", ()),
        ("kaiming_uniform_", (0.2, "fan_out", "leaky_relu")),
        ("kaiming_normal_", (0.0, "fan_in", "relu")),
    ],
)
def test_initial_distributions(fill: str, settings: tuple[Any, ...]) -> None:
    """Mean, deviation and largest element agree with torch's on many draws."""
    manual_seed(0)
    torch.manual_seed(0)
    shape = (64, 32, 5, 5)
    mine = as_array(getattr(init, fill)(tensor(np.zeros(shape, np.float32)), *settings))
    theirs = getattr(torch.nn.init, fill)(torch.empty(shape), *settings).numpy()
    spread = float(theirs.std())
    assert abs(mine.mean() - theirs.mean()) < 0.02 * spread
    assert math.isclose(mine.std(), spread, rel_tol=0.02)
    if "uniform" in fill:
        assert math.isclose(abs(mine).max(), abs(theirs).max(), rel_tol=0.01)


@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.Linear(300, 200),
        lambda lib: lib.Conv2d(16, 32, 3),
        lambda lib: lib.ConvTranspose2d(16, 32, 3),
        lambda lib: lib.Embedding(300, 40),
        lambda lib: lib.LSTM(30, 40),
        lambda lib: lib.MultiheadAttention(60, 4),
        lambda lib: lib.BatchNorm2d(10),
    ],
)
def test_layers_start_as_torchs_do(make: Any) -> None:
    manual_seed(1)
    torch.manual_seed(1)
    theirs = make(torch.nn).state_dict()
    for name, value in make(nn).state_dict().items():
        mine, wanted = as_array(value), theirs[name].numpy()
        assert mine.shape == wanted.shape, name
        assert abs(mine.std() - wanted.std()) <= 0.25 * wanted.std(), name
        assert abs(abs(mine).max() - abs(wanted).max()) <= 0.3 * abs(wanted).max(), name


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dropout(0.25), (400, 50)),
        (nn.Dropout2d(0.25), (100, 50, 2, 2)),
        (nn.AlphaDropout(0.25), (400, 50)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_dropout(layer: nn.Module, shape: tuple[int, ...]) -> None:
    manual_seed(3)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    out = as_array(layer(tensor(x)))
    assert abs(out.mean() - x.mean()) < 0.03
    changed = out != np.float32(out.dtype.type(1 / 0.75)) * x
    if isinstance(layer, nn.Dropout) and type(layer) is not nn.AlphaDropout:
        zero = out == 0
        assert abs(zero.mean() - 0.25) < 0.02
        assert np.allclose(out[~zero], x[~zero] / 0.75, rtol=1e-6)
    else:
        assert changed.any() and abs(out.std() - x.std()) < 0.03
    layer.eval()
    assert np.array_equal(as_array(layer(tensor(x))), x)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("dropout2d", (400, 50)), ("dropout2d", (40, 10, 5)), ("dropout2d", (9, 10, 2, 2, 2)),
        ("dropout3d", (400, 50)), ("dropout3d", (40, 10, 5)), ("dropout1d", (400, 50)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_channels_of_other_numbers_of_axes_are_torchs(name: str, shape: tuple[int, ...]) -> None:
    """Which elements share their fate: all of a channel, wherever torch says channels are."""

    def shared(lib: Any) -> list[bool]:
        dropped = getattr(lib.nn.functional, name)(lib.ones(*shape), 0.5) == 0
        found = []
        for axis in range(len(shape)):
            first = dropped.narrow(axis, 0, 1)
            found.append(bool((dropped == first).all()))
        return found

    manual_seed(0)
    torch.manual_seed(0)
    assert shared(rl) == shared(torch)
