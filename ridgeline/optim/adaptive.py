"""Rules that divide by the size of past gradients: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

from typing import Any, Unpack

from ridgeline import dtypes
from ridgeline.optim.optimizer import Hints, Optimizer, State, counter, zeros
from ridgeline.record.mutation import ParamGroup
from ridgeline.tensors.tensor import Tensor


def decayed(parameter: Tensor, gradient: Tensor, group: ParamGroup) -> Tensor:
    """The gradient, turned round to maximise, with weight decay added."""
    if group["maximize"]:
        gradient = -gradient
    if group["weight_decay"] != 0:
        gradient = gradient + group["weight_decay"] * parameter
    return gradient


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients."""

    _late = False  # the sum begins with a number, and is there at once

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        for name in ("lr_decay", "initial_accumulator_value", "eps"):
            self._at_least(name, group[name], 0.0)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        first = float(group["initial_accumulator_value"])
        return {"step": counter(parameter), "sum": zeros(parameter, first)}

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        gradient = decayed(parameter, gradient, group)
        state["step"].add_(1)
        step = state["step"].to(dtype=dtypes.float64)
        total = state["sum"]
        total.add_(gradient * gradient)
        rate = group["lr"] / (1 + (step - 1) * group["lr_decay"])
        parameter.sub_(rate * (gradient / (total.sqrt() + group["eps"])))


class Adadelta(Optimizer):
    """Steps whose size follows that of past steps, so that they have the parameter's unit."""

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        self._at_least("eps", group["eps"], 0.0)
        self._between("rho", group["rho"])

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        return {
            "step": counter(parameter),
            "square_avg": zeros(parameter),
            "acc_delta": zeros(parameter),
        }

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        gradient = decayed(parameter, gradient, group)
        state["step"].add_(1)
        rho, eps = group["rho"], group["eps"]
        square, moved = state["square_avg"], state["acc_delta"]
        square.copy_(rho * square + (1 - rho) * gradient * gradient)
        change = (moved + eps).sqrt() / (square + eps).sqrt() * gradient
        moved.copy_(rho * moved + (1 - rho) * change * change)
        parameter.sub_(group["lr"] * change)


class RMSprop(Optimizer):
    """Steps divided by the root of the running mean square, or variance, of gradients."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        for name in ("eps", "momentum", "alpha"):
            self._at_least(name, group[name], 0.0)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        state: State = {"step": counter(parameter), "square_avg": zeros(parameter)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros(parameter)
        if group["centered"]:
            state["grad_avg"] = zeros(parameter)
        return state

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        gradient = decayed(parameter, gradient, group)
        state["step"].add_(1)
        alpha, square = group["alpha"], state["square_avg"]
        square.copy_(alpha * square + (1 - alpha) * gradient * gradient)
        spread = square
        if group["centered"]:
            mean = state["grad_avg"]
            mean.add_((1 - alpha) * (gradient - mean))
            spread = square - mean * mean
        change = gradient / (spread.sqrt() + group["eps"])
        if group["momentum"] > 0:
            buffer = state["momentum_buffer"]
            buffer.copy_(group["momentum"] * buffer + change)
            change = buffer
        parameter.sub_(group["lr"] * change)
