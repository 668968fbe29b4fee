"""Schedules over one or many cycles."""

from __future__ import annotations

import math
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.optim.lr_scheduler.base import LRScheduler, per_group_rates
from ridgeline.optim.optimizer import Optimizer


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _linear(start: float, end: float, share: float) -> float:
    return (end - start) * share + start


class OneCycleLR(LRScheduler):
    """Up to max_lr and down to almost nothing in one run; momentum the other way round."""

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise BadValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1 or not 0 <= pct_start <= 1:
            raise BadValueError(
                f"OneCycleLR needs total_steps above 0 and pct_start in 0…1, "
                f"got {total_steps} and {pct_start}"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise BadValueError(f"anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        self._ends, self._marks = _phases(total_steps, pct_start, three_phase)
        groups = optimizer.param_groups
        if last_epoch == -1:
            for group, top in zip(groups, per_group_rates(max_lr, len(groups))):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
                    _set_momentum(group, max_momentum)
                group["lr"] = group["initial_lr"]
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch > self.total_steps:
            raise BadValueError(
                f"OneCycleLR was made for {self.total_steps} steps, this is {self.last_epoch + 1}"
            )
        blend = _cosine if self.anneal_strategy == "cos" else _linear
        rates = []
        for group in self.optimizer.param_groups:
            start = 0.0
            for end, (first, last, high, low) in zip(self._ends, self._marks):
                if self.last_epoch <= end or end is self._ends[-1]:
                    share = (self.last_epoch - start) / (end - start)
                    rates.append(blend(group[first], group[last], share))
                    if self.cycle_momentum:
                        _set_momentum(group, blend(group[high], group[low], share))
                    break
                start = end
        return rates


def _phases(total: int, rise: float, three: bool) -> tuple[list[float], list[tuple[str, ...]]]:
    """Where each phase ends, and what rate and momentum it goes from and to."""
    up = ("initial_lr", "max_lr", "max_momentum", "base_momentum")
    if three:
        ends = [float(rise * total) - 1, float(2 * rise * total) - 2, float(total - 1)]
        down = ("max_lr", "initial_lr", "base_momentum", "max_momentum")
        return ends, [up, down, ("initial_lr", "min_lr", "max_momentum", "max_momentum")]
    ends = [float(rise * total) - 1, float(total - 1)]
    return ends, [up, ("max_lr", "min_lr", "base_momentum", "max_momentum")]


def _set_momentum(group: Any, value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    elif "momentum" in group:
        group["momentum"] = value
    else:
        raise BadValueError(
            "the optimizer has neither momentum nor betas", help="pass cycle_momentum=False"
        )


class CyclicLR(LRScheduler):
    """Up and down between base_lr and max_lr, again and again."""

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise BadValueError(f"CyclicLR has no mode {mode!r}")
        groups = optimizer.param_groups
        self.max_lrs = per_group_rates(max_lr, len(groups))
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self.cycle_momentum = mode, gamma, cycle_momentum
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        if last_epoch == -1:
            for group, rate in zip(groups, per_group_rates(base_lr, len(groups))):
                group["lr"] = rate
                if cycle_momentum:
                    _set_momentum(group, max_momentum)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = per_group_rates(base_lr, len(groups))

    def _scale(self, cycle: int) -> float:
        if self.mode == "triangular2":
            return 1 / 2.0 ** (cycle - 1)
        return self.gamma**self.last_epoch if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        position = 1.0 + self.last_epoch / self.total_size - cycle
        if position <= self.step_ratio:
            height = position / self.step_ratio
        else:
            height = (position - 1) / (self.step_ratio - 1)
        scale = self._scale(cycle)
        if self.cycle_momentum:
            span = (self.max_momentum - self.base_momentum) * height * scale
            for group in self.optimizer.param_groups:
                _set_momentum(group, self.max_momentum - span)
        return [
            base + (top - base) * height * scale for base, top in zip(self.base_lrs, self.max_lrs)
        ]
