"""Adam and AdamW, with torch's formulas, and what their relatives share.

Bias corrections are computed in float64 from the step counter, as torch computes them on the
host; the moments stay in the parameter's type.
"""

from __future__ import annotations

from typing import Any, Unpack

from ridgeline import dtypes
from ridgeline.optim.adaptive import decayed
from ridgeline.optim.optimizer import Hints, Optimizer, State, counter, pair, zeros
from ridgeline.record.mutation import ParamGroup
from ridgeline.tensors.tensor import Tensor


class TwoMoments(Optimizer):
    """Rules with `betas` and two running means of a parameter's gradients."""

    second = "exp_avg_sq"

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        maximize: bool,
        hints: Hints,
        **more: Any,
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, **more,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        self._at_least("eps", group["eps"], 0.0)
        for beta in group["betas"]:
            self._between("betas", beta)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        return {
            "step": counter(parameter),
            "exp_avg": zeros(parameter),
            self.second: zeros(parameter),
        }

    def _advanced(self, state: State) -> Tensor:
        """Count one step; the count in float64."""
        state["step"].add_(1)
        count: Tensor = state["step"].to(dtype=dtypes.float64)
        return count

    def _moments(self, gradient: Tensor, state: State, group: ParamGroup) -> None:
        """Move both running means towards the gradient and its square."""
        beta1, beta2 = pair(group, "betas")
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.add_((1 - beta1) * (gradient - mean))
        square.copy_(beta2 * square + (1 - beta2) * gradient * gradient)

    def _decay(self, parameter: Tensor, gradient: Tensor, group: ParamGroup) -> Tensor:
        """Weight decay on the parameter itself, or as part of the gradient."""
        if not group["decoupled_weight_decay"]:
            return decayed(parameter, gradient, group)
        if group["weight_decay"] != 0:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        return -gradient if group["maximize"] else gradient


class Adam(TwoMoments):
    """Steps along the mean gradient, divided by the root of its mean square."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        more = {"amsgrad": amsgrad, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, hints, **more)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        state = super()._start(parameter, group)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros(parameter)
        return state

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        beta1, beta2 = pair(group, "betas")
        step = self._advanced(state)
        gradient = self._decay(parameter, gradient, group)
        self._moments(gradient, state, group)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.copy_(largest.maximum(square))
            square = largest
        root = square.sqrt() / (1 - beta2**step).sqrt()
        parameter.sub_(group["lr"] / (1 - beta1**step) * (mean / (root + group["eps"])))


class AdamW(Adam):
    """Adam with weight decay applied to the parameter itself."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            decoupled_weight_decay=True,
            **hints,
        )
