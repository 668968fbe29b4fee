"""Activations as layers; each holds its constants and calls the function of the same name."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.nn import functional, init
from ridgeline.nn.applied import Applied
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.tensors.tensor import Tensor


class _Activation(Applied):
    """A function of a tensor with constants that are set once."""

    def extra_repr(self) -> str:
        values = {name: getattr(self, name) for name in self._settings}
        if not values.get("inplace"):
            values.pop("inplace", None)
        return ", ".join(f"{name}={value!r}" for name, value in values.items())


class _InPlace(_Activation):
    inplace: bool = False


class ReLU(_InPlace):
    """max(x, 0)."""

    function = "relu"


class ReLU6(_InPlace):
    """min(max(x, 0), 6)."""

    function = "relu6"


class SELU(_InPlace):
    """The self-normalising ELU."""

    function = "selu"


class SiLU(_InPlace):
    """x * sigmoid(x)."""

    function = "silu"


class Mish(_InPlace):
    """x * tanh(softplus(x))."""

    function = "mish"


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6."""

    function = "hardsigmoid"


class Hardswish(_InPlace):
    """x * relu6(x + 3) / 6."""

    function = "hardswish"


class LeakyReLU(_Activation):
    """x above 0, negative_slope * x below."""

    function = "leaky_relu"
    negative_slope: float = 0.01
    inplace: bool = False


class ELU(_Activation):
    """x above 0, alpha * (exp(x) - 1) below."""

    function = "elu"
    alpha: float = 1.0
    inplace: bool = False


class CELU(_Activation):
    """x above 0, alpha * (exp(x / alpha) - 1) below."""

    function = "celu"
    alpha: float = 1.0
    inplace: bool = False


class GELU(_Activation):
    """x * Φ(x), exact or by tanh."""

    function = "gelu"
    approximate: str = "none"


class Hardtanh(_Activation):
    """x between min_val and max_val, those beyond."""

    function = "hardtanh"
    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False


class Hardshrink(_Activation):
    """x outside ±lambd, 0 inside."""

    function = "hardshrink"
    lambd: float = 0.5


class Softshrink(_Activation):
    """x moved towards 0 by lambd, 0 within."""

    function = "softshrink"
    lambd: float = 0.5


class Softplus(_Activation):
    """log(1 + exp(beta * x)) / beta, and x above the threshold."""

    function = "softplus"
    beta: float = 1.0
    threshold: float = 20.0


class Threshold(_Activation):
    """x above the threshold, `value` at and below."""

    function = "threshold"
    threshold: float
    value: float
    inplace: bool = False


class GLU(_Activation):
    """The first half of an axis times the sigmoid of the second."""

    function = "glu"
    dim: int = -1


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    function = "sigmoid"


class LogSigmoid(_Activation):
    """log(sigmoid(x))."""

    function = "logsigmoid"


class Tanh(_Activation):
    """The hyperbolic tangent."""

    function = "tanh"


class Tanhshrink(_Activation):
    """x - tanh(x)."""

    function = "tanhshrink"


class Softsign(_Activation):
    """x / (1 + |x|)."""

    function = "softsign"


class Softmax(_Activation):
    """exp(x) over its sum along an axis."""

    function = "softmax"
    dim: int | None = None


class Softmin(Softmax):
    """softmax(-x)."""

    function = "softmin"


class LogSoftmax(Softmax):
    """log(softmax(x)), computed without overflow."""

    function = "log_softmax"


class Softmax2d(Module):
    """Softmax over the channels of [n, c, h, w] or [c, h, w]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, dim=-3)


class PReLU(Module):
    """x above 0, weight * x below; one weight, or one per channel."""

    weight: Parameter

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = empty_parameter((num_parameters,), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every weight at its initial value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x above 0; below, a random slope when training and the mean slope otherwise."""

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"
