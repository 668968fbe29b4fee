"""The base of learning-rate schedules.

A schedule sets `lr` in the optimizer's groups; `step()` moves it on by one. Most are written as
torch writes them, as the factor from one step to the next, so that they can be chained. Changing
a learning rate never re-traces a jitted step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self
from weakref import ref

from ridgeline.errors import BadValueError
from ridgeline.optim.optimizer import Optimizer
from ridgeline.record import mutation
from ridgeline.record.modes import modes


class LRScheduler:
    """Base: `get_lr()` gives the rate of each group at step `last_epoch`."""

    _home: ref[Any] | None  # the capture in which it was made: there it is made anew each time
    _is_watched = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """A schedule that knows where it was made."""
        made = object.__new__(cls)
        home = None if modes.capture is None else ref(modes.capture)
        object.__setattr__(made, "_home", home)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        if modes.capture is not None and (self._home is None or self._home() is not modes.capture):
            mutation.watch(self)  # what a jitted function changes it depends on
        if self._is_watched:
            mutation.bump()
        object.__setattr__(self, name, value)

    def _guard_state(self, attributes: dict[str, Any]) -> Any:
        """What a capture depends on: where the schedule is."""
        object.__setattr__(self, "_is_watched", True)
        return self.state_dict()

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise BadValueError("going on at last_epoch needs groups with initial_lr")
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr = [float(group["lr"]) for group in optimizer.param_groups]
        self.step()

    def get_lr(self) -> list[float]:
        """The rates for `last_epoch`, one per group."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self) -> None:
        """Move on by one and set the rates."""
        self.last_epoch += 1
        self._set(self.get_lr())

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
        self._last_lr = list(rates)

    def _current(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _times(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._current()]

    def get_last_lr(self) -> list[float]:
        """The rates set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All numbers of the schedule; functions and the optimizer are left out."""
        own = ("_home", "_is_watched")
        return {k: v for k, v in self.__dict__.items() if _is_plain(v) and k not in own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        for key, value in state_dict.items():
            setattr(self, key, value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.values())
    return value is None or isinstance(value, str | int | float | bool)


def per_group_rates(value: Any, groups: int) -> list[float]:
    """One rate for every group, or a list that already has them."""
    rates = list(value) if isinstance(value, list | tuple) else [value] * groups
    if len(rates) != groups:
        raise BadValueError(f"{groups} groups need {groups} rates, got {len(rates)}")
    return [float(rate) for rate in rates]


def steps_given(name: str, value: int) -> int:
    """A number of steps as a scheduler was given it: at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadValueError(f"{name} is a number of steps, at least 1, and not {value!r}")
    return value
