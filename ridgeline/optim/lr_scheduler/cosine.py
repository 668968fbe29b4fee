"""Schedules along a cosine."""

from __future__ import annotations

import math

from ridgeline.optim.lr_scheduler.base import LRScheduler, steps_given
from ridgeline.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to eta_min over T_max steps, and back."""

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max, self.eta_min = steps_given("T_max", T_max), eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        now, low = self.last_epoch, self.eta_min
        if now == 0:
            return self._current()
        if (now - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - low) * rise for base, rate in zip(self.base_lrs, self._current())
            ]
        factor = (1 + math.cos(math.pi * now / self.T_max)) / (
            1 + math.cos(math.pi * (now - 1) / self.T_max)
        )
        return [factor * (rate - low) + low for rate in self._current()]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines of T_0 steps, then T_0 * T_mult and so on, each from the initial rate."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def _position(self) -> tuple[int, int]:
        """The step within the current period, and the period's length."""
        position, length = self.last_epoch, self.T_0
        while position >= length:
            position, length = position - length, length * self.T_mult
        return position, length

    def get_lr(self) -> list[float]:
        position, length = self._position()
        share = (1 + math.cos(math.pi * position / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]
