"""Schedules made of others: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from ridgeline.errors import BadValueError
from ridgeline.optim.lr_scheduler.base import LRScheduler
from ridgeline.optim.optimizer import Optimizer


class SequentialLR(LRScheduler):
    """One schedule after the other, changing at the milestones."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise BadValueError(
                f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones, "
                f"got {len(milestones)}"
            )
        self.optimizer, self.milestones = optimizer, list(milestones)
        self._schedulers = list(schedulers)
        self.last_epoch = last_epoch + 1
        for group in optimizer.param_groups:  # undo the first step that each has already made
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        which = bisect_right(self.milestones, self.last_epoch)
        scheduler = self._schedulers[which]
        if which and self.milestones[which - 1] == self.last_epoch:
            for group in self.optimizer.param_groups:
                group["lr"] = group["initial_lr"]
            scheduler.last_epoch = -1
        scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        own = {key: value for key, value in state_dict.items() if key != "schedulers"}
        super().load_state_dict(own)
        for scheduler, state in zip(self._schedulers, state_dict["schedulers"]):
            scheduler.load_state_dict(state)


class ChainedScheduler(LRScheduler):
    """Several schedules at once; their factors multiply."""

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        self.optimizer = schedulers[0].optimizer
        self._schedulers = list(schedulers)
        self.last_epoch = 0
        self._last_lr = self._current()

    def step(self) -> None:
        self.last_epoch += 1
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict
