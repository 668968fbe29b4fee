"""Relatives of Adam: Adamax, NAdam, RAdam, Lion, LAMB."""

from __future__ import annotations

from typing import Any, Unpack

from ridgeline import dtypes
from ridgeline.nn.functional.choose import choose
from ridgeline.optim.adam import TwoMoments
from ridgeline.optim.adaptive import decayed
from ridgeline.optim.optimizer import Hints, Optimizer, State, pair, scalar, zeros
from ridgeline.record.mutation import ParamGroup
from ridgeline.tensors.public import clamp
from ridgeline.tensors.tensor import Tensor


class Adamax(TwoMoments):
    """Adam with the largest recent gradient in place of the root mean square."""

    second = "exp_inf"

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, maximize, hints)

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        step = self._advanced(state)
        gradient = decayed(parameter, gradient, group)
        beta1, beta2 = pair(group, "betas")
        mean, largest = state["exp_avg"], state["exp_inf"]
        mean.add_((1 - beta1) * (gradient - mean))
        largest.copy_((beta2 * largest).maximum(gradient.abs() + group["eps"]))
        parameter.sub_(group["lr"] / (1 - beta1**step) * (mean / largest))


class NAdam(TwoMoments):
    """Adam with Nesterov momentum, whose decay follows a schedule."""

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        more = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, hints, **more)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        state = super()._start(parameter, group)
        return {"step": state.pop("step"), "mu_product": scalar(parameter, 1.0), **state}

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        step = self._advanced(state)
        gradient = self._decay(parameter, gradient, group)
        beta1, beta2 = pair(group, "betas")
        fade = 0.96 ** group["momentum_decay"]
        now = beta1 * (1 - 0.5 * fade**step)
        later = beta1 * (1 - 0.5 * fade ** (step + 1))
        state["mu_product"].mul_(now)
        product = state["mu_product"].to(dtype=dtypes.float64)
        self._moments(gradient, state, group)
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt() + group["eps"]
        lr = group["lr"]
        parameter.sub_(lr * (1 - now) / (1 - product) * (gradient / root))
        parameter.sub_(lr * later / (1 - product * later) * (state["exp_avg"] / root))


class RAdam(TwoMoments):
    """Adam that begins without division until the variance is known well enough."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        more = {"decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, hints, **more)

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        step = self._advanced(state)
        gradient = self._decay(parameter, gradient, group)
        beta1, beta2 = pair(group, "betas")
        self._moments(gradient, state, group)
        correction = 1 - beta2**step
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / correction
        known = length > 5
        safe = choose(known, length, 6.0)  # below 5 the root would not exist
        ratio = (safe - 4) * (safe - 2) * most / ((most - 4) * (most - 2) * safe)
        rectified = clamp(ratio, min=0.0).sqrt() * correction.sqrt()
        divided = rectified / (state["exp_avg_sq"].sqrt() + group["eps"])
        rate = group["lr"] / (1 - beta1**step)
        parameter.sub_(rate * state["exp_avg"] * choose(known, divided, 1.0))


class Lion(Optimizer):
    """Steps of one size along the sign of an interpolated gradient."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "betas": tuple(betas), "weight_decay": weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        for beta in group["betas"]:
            self._between("betas", beta)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        return {"exp_avg": zeros(parameter)}

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        if group["maximize"]:
            gradient = -gradient
        beta1, beta2 = pair(group, "betas")
        mean = state["exp_avg"]
        if group["weight_decay"] != 0:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(group["lr"] * (beta1 * mean + (1 - beta1) * gradient).sign())
        mean.copy_(beta2 * mean + (1 - beta2) * gradient)


class LAMB(TwoMoments):
    """Adam's step, scaled by layer so that its norm follows the parameter's."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, maximize, hints)

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        step = self._advanced(state)
        if group["maximize"]:
            gradient = -gradient
        beta1, beta2 = pair(group, "betas")
        self._moments(gradient, state, group)
        root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt() + group["eps"]
        change = state["exp_avg"] / (1 - beta1**step) / root
        if group["weight_decay"] != 0:
            change = change + group["weight_decay"] * parameter
        size, move = (parameter * parameter).sum().sqrt(), (change * change).sum().sqrt()
        trust = choose((size > 0) & (move > 0), size / choose(move > 0, move, 1.0), 1.0)
        parameter.sub_(group["lr"] * trust * change)
