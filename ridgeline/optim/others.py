"""Rules of their own kind: averaged SGD, Rprop, Adafactor, Muon."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from ridgeline import dtypes
from ridgeline.nn.functional.choose import choose
from ridgeline.optim.adaptive import decayed
from ridgeline.optim.optimizer import (
    Hints,
    Optimizer,
    OptimizerError,
    State,
    counter,
    pair,
    scalar,
    zeros,
)
from ridgeline.record.mutation import ParamGroup
from ridgeline.tensors.public import clamp, matmul
from ridgeline.tensors.tensor import Tensor, tensor


class ASGD(Optimizer):
    """SGD that also keeps the average of the parameters, in `ax`."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        return {
            "step": counter(parameter),
            "eta": scalar(parameter, float(group["lr"])),
            "mu": scalar(parameter, 1.0),
            "ax": zeros(parameter),
        }

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        gradient = decayed(parameter, gradient, group)
        state["step"].add_(1)
        step = state["step"].to(dtype=dtypes.float64)
        eta, mu = (state[key].to(dtype=dtypes.float64) for key in ("eta", "mu"))
        parameter.copy_(parameter * (1 - group["lambd"] * eta) - eta * gradient)
        average = state["ax"]
        average.copy_(choose(mu == 1, parameter, average + mu * (parameter - average)))
        fall = (1 + group["lambd"] * group["lr"] * step) ** group["alpha"]
        state["eta"].copy_(group["lr"] / fall)
        state["mu"].copy_(1 / clamp(step - group["t0"], min=1.0))


class Rprop(Optimizer):
    """A step size per element that grows while the gradient's sign stays and shrinks when not."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        shrink, grow = group["etas"]
        if not 0 < shrink < 1 < grow:
            raise OptimizerError(f"Rprop needs etas around 1, got {group['etas']}")

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        return {
            "step": counter(parameter),
            "prev": zeros(parameter),
            "step_size": zeros(parameter, float(group["lr"])),
        }

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        if group["maximize"]:
            gradient = -gradient
        state["step"].add_(1)
        (shrink, grow), (least, most) = pair(group, "etas"), pair(group, "step_sizes")
        agreement = gradient * state["prev"]
        factor = choose(agreement > 0, grow, choose(agreement < 0, shrink, 1.0))
        size = state["step_size"]
        size.copy_((size * factor).clamp(least, most))
        gradient = choose(agreement < 0, gradient * 0.0, gradient)
        parameter.sub_(gradient.sign() * size)
        state["prev"].copy_(gradient)


class Adafactor(Optimizer):
    """The mean square of gradients kept by rows and columns only, to save memory."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **hints: Unpack[Hints],
    ) -> None:
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": tuple(eps), "d": d,
            "weight_decay": weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, hints)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        self._at_least("d", group["d"], 1.0)
        if group["beta2_decay"] > 0:
            raise OptimizerError("Adafactor needs a beta2_decay of at most 0")

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        shape = tuple(parameter.shape)
        if len(shape) < 2:
            return {"step": counter(parameter), "variance": zeros(parameter)}
        kind, device = parameter.dtype.numpy, parameter.device
        return {
            "step": counter(parameter),
            "row_var": tensor(np.zeros((*shape[:-1], 1), kind), device=device),
            "col_var": tensor(np.zeros((*shape[:-2], 1, shape[-1]), kind), device=device),
        }

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        if group["maximize"]:
            gradient = -gradient
        state["step"].add_(1)
        step = state["step"].to(dtype=dtypes.float64)
        smallest, least_size = group["eps"]
        if smallest is None:
            smallest = float(np.finfo(parameter.dtype.numpy).eps)
        count = parameter.numel()
        share = step ** group["beta2_decay"]
        rate = clamp(1 / step.sqrt(), max=group["lr"])
        size = ((parameter * parameter).sum() / count).sqrt()
        rate = clamp(size, min=least_size) * rate
        if group["weight_decay"] != 0:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        spread = self._spread(gradient, state, share, smallest)
        change = gradient / clamp(spread, min=smallest * smallest).sqrt()
        length = ((change * change).sum() / count).sqrt() / group["d"]
        parameter.sub_(rate / clamp(length, min=1.0) * change)

    def _spread(self, gradient: Tensor, state: State, share: Tensor, smallest: float) -> Tensor:
        """The estimate of the mean square of every element's gradient."""
        square = gradient * gradient
        if "variance" in state:
            kept: Tensor = state["variance"]
            kept.add_(share * (square - kept))
            return kept
        rows, columns = state["row_var"], state["col_var"]
        rows.add_(share * (square.mean(-1, keepdim=True) - rows))
        columns.add_(share * (square.mean(-2, keepdim=True) - columns))
        mean = clamp(rows.mean(-2, keepdim=True), min=smallest)
        result: Tensor = rows * columns / mean
        return result


class Muon(Optimizer):
    """Momentum made orthogonal, for matrices: a Newton-Schulz iteration in bfloat16."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        self.ns_steps = ns_steps
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "adjust_lr_fn": adjust_lr_fn,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _check(self, group: ParamGroup) -> None:
        super()._check(group)
        self._at_least("momentum", group["momentum"], 0.0)
        for parameter in group["params"]:
            if len(parameter.shape) != 2:
                raise OptimizerError(
                    f"Muon updates matrices, got a parameter of shape {list(parameter.shape)}",
                    help="give biases, norms and embeddings to AdamW",
                )

    def _start(self, parameter: Tensor, group: ParamGroup) -> State:
        return {"momentum_buffer": zeros(parameter)}

    def _update(self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup) -> None:
        momentum, buffer = group["momentum"], state["momentum_buffer"]
        buffer.add_((1 - momentum) * (gradient - buffer))
        ahead = gradient + momentum * (buffer - gradient) if group["nesterov"] else buffer
        change = self._orthogonal(ahead, group)
        rows, columns = (int(n) for n in parameter.shape)
        ratio = math.sqrt(max(1.0, rows / columns))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        if group["weight_decay"] != 0:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(group["lr"] * ratio * change.to(dtype=parameter.dtype))

    def _orthogonal(self, matrix: Tensor, group: ParamGroup) -> Tensor:
        """A matrix with the same singular vectors and singular values near 1."""
        a, b, c = pair(group, "ns_coefficients")
        tall = int(matrix.shape[0]) > int(matrix.shape[1])
        x = matrix.to(dtype=dtypes.bfloat16)
        x = x.transpose(0, 1) if tall else x
        length = (x.to(dtype=dtypes.float32) ** 2).sum().sqrt().to(dtype=dtypes.bfloat16)
        x = x / clamp(length, min=group["eps"])
        for _ in range(self.ns_steps):
            gram = matmul(x, x.transpose(0, 1))
            polynomial = _mixed(b, gram, c, gram, gram)
            x = _mixed(a, x, 1.0, polynomial, x)
        return x.transpose(0, 1) if tall else x


def _mixed(beta: float, added: Tensor, alpha: float, left: Tensor, right: Tensor) -> Tensor:
    """beta * added + alpha * left @ right, computed in float32 and rounded once."""
    wide = dtypes.float32
    product = matmul(left.to(dtype=wide), right.to(dtype=wide))
    return (beta * added.to(dtype=wide) + alpha * product).to(dtype=added.dtype)
