"""Layers outside torch's own samples: fractional pooling, adaptive softmax, the older norm."""

from __future__ import annotations

import numpy as np
import pytest

import ridgeline as rl
from ridgeline import nn
from ridgeline.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("ratio", [None, 0.5])
def test_fractional_pooling(axes: int, ratio: float | None) -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((2, 3, 9, 8, 7)[: 2 + axes]).astype(np.float32)
    samples = draw.random((2, 3, axes)).astype(np.float32)
    size = None if ratio else (4, 3, 5)[:axes]
    found = []
    for library in (rl, torch):
        pool = getattr(library.nn, f"FractionalMaxPool{axes}d")(
            2, size, ratio, True, library.tensor(samples)
        )
        input = library.tensor(x, requires_grad=True)
        values, places = pool(input)
        (values * values).sum().backward()
        found.append([values.detach().numpy(), places.numpy(), input.grad.numpy()])
    for mine, wanted in zip(*found):
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)


def test_fractional_pooling_draws_windows() -> None:
    rl.manual_seed(0)
    pool = nn.FractionalMaxPool2d(2, output_size=4)
    x = rl.arange(100.0).reshape(1, 1, 10, 10)
    made = {tuple(pool(x).flatten().tolist()) for _ in range(8)}
    assert len(made) > 1 and all(row[-1] == 99 for row in made)
    with pytest.raises(ArgumentError, match="either"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ShapeError, match="do not fit"):
        nn.FractionalMaxPool2d(3, output_size=9)(x)


def test_adaptive_softmax() -> None:
    peer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10], div_value=2.0, head_bias=True)
    mine = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10], div_value=2.0, head_bias=True)
    mine.load_state_dict({k: v.numpy() for k, v in peer.state_dict().items()})
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((12, 16)).astype(np.float32), draw.integers(0, 20, 12)
    ours, theirs = mine(rl.tensor(x), rl.tensor(y)), peer(torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(ours.output.detach().numpy(), theirs.output.detach(), atol=1e-5)
    ours.loss.backward()
    theirs.loss.backward()
    for name, parameter in mine.named_parameters():
        wanted = peer.get_parameter(name).grad.numpy()
        np.testing.assert_allclose(parameter.grad.numpy(), wanted, atol=1e-5, err_msg=name)
    with torch.no_grad():
        wanted = peer.log_prob(torch.tensor(x)).numpy()
    np.testing.assert_allclose(mine.log_prob(rl.tensor(x)).detach().numpy(), wanted, atol=1e-5)
    assert mine.predict(rl.tensor(x)).tolist() == wanted.argmax(1).tolist()
    with pytest.raises(ArgumentError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(16, 20, [10, 4])


@pytest.mark.parametrize("size", [3, 4, 5])
def test_cross_map_norm(size: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 9, 3, 2)).astype(np.float32)
    mine = nn.CrossMapLRN2d(size, 0.3, 0.6, 1.5)(rl.tensor(x)).numpy()
    wanted = torch.nn.CrossMapLRN2d(size, 0.3, 0.6, 1.5)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(mine, wanted, rtol=1e-5)
