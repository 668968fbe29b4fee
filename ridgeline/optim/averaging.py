"""Averages of a model's weights: equal (SWA) or exponential (EMA), kept beside the training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import RidgelineError
from ridgeline.nn import Module
from ridgeline.tensors.modes import no_grad
from ridgeline.tensors.tensor import Tensor, tensor

# From the average, a new value and how many values came before, the next average.
Average = Callable[[Tensor, Tensor, int], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The exponential moving average."""
    if not 0.0 <= decay <= 1.0:
        raise RidgelineError(f"a decay lies in 0…1, not {decay}")
    return lambda average, value, count: decay * average + (1 - decay) * value


def get_swa_avg_fn() -> Average:
    """The mean of all values."""
    return lambda average, value, count: average + (value - average) / (count + 1)


class AveragedModel(Module):
    """A copy of a model whose weights are averages over `update_parameters` calls."""

    def __init__(
        self, model: Module, avg_fn: Average | None = None, use_buffers: bool = False
    ) -> None:
        super().__init__()
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64))
        self.avg_fn, self.use_buffers = avg_fn or get_swa_avg_fn(), use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's weights into the averages; the first time they are copied."""
        count = int(self.n_averaged)
        own: dict[str, Tensor] = dict(self.module.named_parameters())
        new: dict[str, Tensor] = dict(model.named_parameters())
        if self.use_buffers:
            own |= dict(self.module.named_buffers())
            new |= dict(model.named_buffers())
        if own.keys() != new.keys():
            raise RidgelineError("the model has other parameters than the average was made of")
        with no_grad():
            for name, average in own.items():
                value = new[name].detach()
                mixed = average.dtype.is_differentiable and count > 0
                average.copy_(self.avg_fn(average.detach(), value, count) if mixed else value)
            if not self.use_buffers:
                for kept, fresh in zip(self.module.buffers(), model.buffers()):
                    kept.copy_(fresh.detach())
            self.n_averaged.add_(1)
