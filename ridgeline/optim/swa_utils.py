"""Averages of a model's weights: equal (SWA) or exponential (EMA), kept beside the training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ridgeline import dtypes
from ridgeline.errors import BadValueError
from ridgeline.nn import Module
from ridgeline.nn.normalization import _BatchNorm
from ridgeline.optim.lr_scheduler import LRScheduler
from ridgeline.optim.optimizer import Optimizer
from ridgeline.record.modes import called, no_grad
from ridgeline.tensors.tensor import Tensor, tensor

# From averages and new values, and how many came before, the next averages in place.
MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]
# From the average, a new value and how many values came before, the next average.
Average = Callable[[Tensor, Tensor, int], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The exponential moving average."""
    if not 0.0 <= decay <= 1.0:
        raise BadValueError(f"a decay lies in 0…1, not {decay}")
    return lambda average, value, count: decay * average + (1 - decay) * value


def get_swa_avg_fn() -> Average:
    """The mean of all values."""
    return lambda average, value, count: average + (value - average) / (count + 1)


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """The exponential moving average of a list of tensors, in place."""
    return _of_all(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> MultiAverage:
    """The mean of all values of a list of tensors, in place."""
    return _of_all(get_swa_avg_fn())


def _of_all(average: Average) -> MultiAverage:
    def update(averages: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        for kept, value in zip(averages, values):
            kept.copy_(average(kept, value, int(count)))

    return update


class AveragedModel(Module):
    """A copy of a model whose weights are averages over `update_parameters` calls."""

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise BadValueError("give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64))
        self.use_buffers = use_buffers
        self.multi_avg_fn = multi_avg_fn or _of_all(avg_fn or get_swa_avg_fn())

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
            raise BadValueError("the model has other parameters than the average was made of")
        mixed = [name for name in own if own[name].dtype.is_differentiable and count > 0]
        with no_grad():
            for name in own.keys() - set(mixed):
                own[name].copy_(new[name].detach())
            if mixed:
                averages = [own[name].detach() for name in mixed]
                values = [new[name].detach().to(own[name].device) for name in mixed]
                called(self.multi_avg_fn)(averages, values, count)
            if not self.use_buffers:
                for kept, fresh in zip(self.module.buffers(), model.buffers()):
                    kept.copy_(fresh.detach())
            self.n_averaged.add_(1)


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Set the running statistics of a model's batch norms to those of the data."""
    norms = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
    if not norms:
        return
    training, momenta = model.training, [norm.momentum for norm in norms]
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    try:
        with no_grad():
            for batch in loader:
                input = batch[0] if isinstance(batch, tuple | list) else batch
                model(input if device is None else input.to(device))
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """Moves each rate to `swa_lr` within `anneal_epochs` steps and leaves it there."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise BadValueError(f'anneal_strategy is "cos" or "linear", not {anneal_strategy!r}')
        if anneal_epochs < 0:
            raise BadValueError(f"anneal_epochs is at least 0, not {anneal_epochs}")
        groups = optimizer.param_groups
        rates = [swa_lr] * len(groups) if isinstance(swa_lr, float | int) else list(swa_lr)
        if len(rates) != len(groups):
            raise BadValueError(f"{len(rates)} rates for {len(groups)} parameter groups")
        for group, rate in zip(groups, rates):
            group["swa_lr"] = float(rate)
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How far the rates have come after a number of steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        """Each rate, as far from where it began as the step says."""
        step = max(1, self.last_epoch) if self.anneal_epochs == 0 else self.last_epoch
        before, share = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            rate, end = float(group["lr"]), float(group["swa_lr"])
            start = end if before == 1 else (rate - before * end) / (1 - before)
            rates.append(end * share + start * (1 - share))
        return rates
