"""Averages of weights against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ridgeline as rl
from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError
from ridgeline.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    update_bn,
)
from ridgeline.tensors.tensor import tensor


@pytest.mark.parametrize("decay", [None, 0.9])
def test_averages_follow_torch(decay: float | None) -> None:
    mine, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    settings: tuple[Any, Any] = (None, None)
    if decay is not None:
        settings = (get_ema_avg_fn(decay), torch.optim.swa_utils.get_ema_avg_fn(decay))
    mean = AveragedModel(mine, avg_fn=settings[0])
    peer = torch.optim.swa_utils.AveragedModel(theirs, avg_fn=settings[1])
    assert list(mean.state_dict()) != [] and "module.weight" in mean.state_dict()
    for step in range(5):
        source = np.random.default_rng(step)
        weight = source.standard_normal((2, 3)).astype(np.float32)
        bias = source.standard_normal(2).astype(np.float32)
        mine.load_state_dict({"weight": weight, "bias": bias})
        theirs.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
        mean.update_parameters(mine)
        peer.update_parameters(theirs)
    assert np.allclose(as_array(mean.module.weight), peer.module.weight.detach(), rtol=1e-5)
    assert int(mean.n_averaged) == 5
    x = np.ones((1, 3), np.float32)
    assert np.allclose(as_array(mean(tensor(x))), peer(torch.tensor(x)).detach(), rtol=1e-5)


def test_another_model_is_refused() -> None:
    with pytest.raises(RidgelineError, match="other parameters"):
        AveragedModel(nn.Linear(2, 2)).update_parameters(nn.Linear(2, 2, bias=False))


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 4])
def test_swalr_follows_torch(strategy: str, epochs: int) -> None:
    rates = []
    for library, scheduler in ((rl, SWALR), (torch, torch.optim.swa_utils.SWALR)):
        parameter = library.nn.Parameter(library.zeros(2))
        optimizer = library.optim.SGD([parameter], lr=0.5)
        schedule = scheduler(optimizer, 0.05, epochs, strategy)
        seen = []
        for _ in range(7):
            optimizer.step()
            schedule.step()
            seen.append(optimizer.param_groups[0]["lr"])
        rates.append(seen)
    np.testing.assert_allclose(*rates, rtol=1e-12)


def test_update_bn_measures_the_data() -> None:
    data = np.random.default_rng(0).standard_normal((4, 8, 3)).astype(np.float32) * 2 + 1
    norm, peer = nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    update_bn([(tensor(batch),) for batch in data], nn.Sequential(norm).eval())
    torch.optim.swa_utils.update_bn([torch.tensor(b) for b in data], torch.nn.Sequential(peer))
    np.testing.assert_allclose(as_array(norm.running_mean), peer.running_mean, rtol=1e-5)
    np.testing.assert_allclose(as_array(norm.running_var), peer.running_var, rtol=1e-5)
    assert norm.momentum == 0.1 and not norm.training


def test_averages_of_all_tensors_at_once() -> None:
    model = nn.Linear(3, 2)
    one = AveragedModel(model, avg_fn=get_ema_avg_fn(0.5))
    all_ = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    for value in (1.0, 2.0, 5.0):
        nn.init.constant_(model.weight, value)
        one.update_parameters(model)
        all_.update_parameters(model)
    assert as_array(all_.module.weight)[0, 0] == 3.25
    np.testing.assert_array_equal(as_array(one.module.weight), as_array(all_.module.weight))
