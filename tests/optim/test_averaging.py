"""Averages of weights against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ridgeline import nn
from ridgeline.data.dataset import as_array
from ridgeline.errors import RidgelineError
from ridgeline.optim.averaging import AveragedModel, get_ema_avg_fn
from ridgeline.tensors.tensor import tensor


@pytest.mark.parametrize("decay", [None, 0.9])
def test_averages_follow_torch(decay: float | None) -> None:
    mine, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    settings: tuple[Any, Any] = (None, None)
    if decay is not None:
        settings = (get_ema_avg_fn(decay), torch.optim.swa_utils.get_ema_avg_fn(decay))
    mean = AveragedModel(mine, settings[0])
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
