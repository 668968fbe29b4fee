"""A schedule that watches a metric."""

from __future__ import annotations

import math
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.optim.lr_scheduler.base import LRScheduler, per_group_rates
from ridgeline.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """Times factor when a metric has not got better for more than `patience` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1:
            raise BadValueError(f"ReduceLROnPlateau needs a factor below 1, not {factor}")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise BadValueError(f"no mode {mode!r} with threshold_mode {threshold_mode!r}")
        self.optimizer = optimizer
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = per_group_rates(min_lr, len(optimizer.param_groups))
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = self._current()

    def _better(self, metric: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "abs":
            return sign * (metric - self.best) > self.threshold
        return sign * (metric - self.best * (1.0 + sign * self.threshold)) > 0

    def step(self, metrics: float | None = None) -> None:
        """Look at the metric of one more epoch."""
        if metrics is None:
            raise BadValueError("ReduceLROnPlateau.step() needs the metric")
        metric = float(metrics)
        self.last_epoch += 1
        if self._better(metric):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            rates = self._current()
            lower = [max(rate * self.factor, least) for rate, least in zip(rates, self.min_lrs)]
            moves = [rate - new > self.eps for rate, new in zip(rates, lower)]
            self._set([new if move else old for new, old, move in zip(lower, rates, moves)])
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._current()
