"""Stochastic gradient descent, with momentum in Sutskever's form as torch has it."""

from __future__ import annotations

from typing import Any, Unpack

from ridgeline.optim.optimizer import Hints, Optimizer, OptimizerError, State, zeros
from ridgeline.record.mutation import ParamGroup
from ridgeline.tensors.tensor import Tensor


class SGD(Optimizer):
    """p -= lr * v, where v follows the gradient with momentum.

    The first step takes the gradient itself as v, whatever the dampening.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening,
            "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        self._at_least("momentum", group["momentum"], 0.0)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise OptimizerError("Nesterov momentum needs a momentum above 0 and no dampening")

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        # With dampening the first step differs from the later ones, so it must find no buffer.
        if group["momentum"] == 0 or group["dampening"] != 0:
            return {}
        return {"momentum_buffer": zeros(parameter)}

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        if group["maximize"]:
            gradient = -gradient
        if group["weight_decay"] != 0:
            gradient = gradient + group["weight_decay"] * parameter
        if group["momentum"] != 0:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = gradient.clone()
            else:
                added = gradient
                if group["dampening"] != 0:
                    added = (1 - group["dampening"]) * gradient
                buffer.copy_(group["momentum"] * buffer + added)
            gradient = gradient + group["momentum"] * buffer if group["nesterov"] else buffer
        parameter.sub_(group["lr"] * gradient)
