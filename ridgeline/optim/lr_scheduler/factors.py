"""Schedules that multiply the rate: by functions, at steps and milestones, along a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.optim.lr_scheduler.base import LRScheduler, steps_given
from ridgeline.optim.optimizer import Optimizer


class LambdaLR(LRScheduler):
    """The initial rate times a function of the step; one function, or one per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = _per_group(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [
            base * function(self.last_epoch)
            for base, function in zip(self.base_lrs, self.lr_lambdas)
        ]


class MultiplicativeLR(LRScheduler):
    """The current rate times a function of the step."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1) -> None:
        self.lr_lambdas = _per_group(optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._current()
        return [
            rate * function(self.last_epoch)
            for rate, function in zip(self._current(), self.lr_lambdas)
        ]


class StepLR(LRScheduler):
    """Times gamma after every `step_size` steps."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = steps_given("step_size", step_size), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return self._times(self.gamma if due else 1.0)


class MultiStepLR(LRScheduler):
    """Times gamma at each milestone."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._times(self.gamma ** self.milestones.count(self.last_epoch))


class ExponentialLR(LRScheduler):
    """Times gamma at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self._times(self.gamma if self.last_epoch > 0 else 1.0)


class ConstantLR(LRScheduler):
    """The rate times `factor` for the first `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise BadValueError(f"ConstantLR needs a factor in 0…1, not {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._times(self.factor)
        return self._times(1.0 / self.factor if self.last_epoch == self.total_iters else 1.0)


class LinearLR(LRScheduler):
    """From start_factor to end_factor of the rate in equal steps: the usual warm-up."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise BadValueError("LinearLR needs factors in 0…1, the first above 0")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self._times(self.start_factor)
        if self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._times(1.0 + rise / before)


class PolynomialLR(LRScheduler):
    """The rate falls to zero over `total_iters` steps as a power of what is left."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._current()
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._times((left / before) ** self.power)


def _per_group(optimizer: Optimizer, value: Any) -> list[Callable[[int], float]]:
    groups = len(optimizer.param_groups)
    functions = list(value) if isinstance(value, list | tuple) else [value] * groups
    if len(functions) != groups:
        raise BadValueError(f"{groups} groups need {groups} functions, got {len(functions)}")
    return functions
