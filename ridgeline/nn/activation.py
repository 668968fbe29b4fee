"""Activations as layers; each holds its constants and calls the function of the same name."""

from __future__ import annotations

from typing import Any

from ridgeline import dtypes
from ridgeline.nn import functional, init
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.tensors.tensor import Tensor


class _Activation(Module):
    """A function of a tensor with constants that are set once."""

    function: str

    def __init__(self, inplace: bool = False, **constants: Any) -> None:
        super().__init__()
        self.inplace = inplace
        self.constants = tuple(constants)
        for name, value in constants.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        apply = getattr(functional, self.function)
        constants = {name: getattr(self, name) for name in self.constants}
        result: Tensor = apply(input, **constants)
        return input.copy_(result) if self.inplace else result

    def extra_repr(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self.constants]
        return ", ".join([*shown, *(["inplace=True"] if self.inplace else [])])


class _Plain(_Activation):
    """An activation without constants."""

    def __init__(self) -> None:
        super().__init__()


class ReLU(_Activation):
    """max(x, 0)."""

    function = "relu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class ReLU6(_Activation):
    """min(max(x, 0), 6)."""

    function = "relu6"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class SELU(_Activation):
    """The self-normalising ELU."""

    function = "selu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class SiLU(_Activation):
    """x * sigmoid(x)."""

    function = "silu"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class Mish(_Activation):
    """x * tanh(softplus(x))."""

    function = "mish"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class Hardsigmoid(_Activation):
    """relu6(x + 3) / 6."""

    function = "hardsigmoid"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class Hardswish(_Activation):
    """x * relu6(x + 3) / 6."""

    function = "hardswish"

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace)


class LeakyReLU(_Activation):
    """x above 0, negative_slope * x below."""

    function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace, negative_slope=negative_slope)


class ELU(_Activation):
    """x above 0, alpha * (exp(x) - 1) below."""

    function = "elu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace, alpha=alpha)


class CELU(_Activation):
    """x above 0, alpha * (exp(x / alpha) - 1) below."""

    function = "celu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace, alpha=alpha)


class GELU(_Activation):
    """x * Φ(x), exact or by tanh."""

    function = "gelu"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class Hardtanh(_Activation):
    """x between min_val and max_val, those beyond."""

    function = "hardtanh"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace, min_val=min_val, max_val=max_val)


class Hardshrink(_Activation):
    """x outside ±lambd, 0 inside."""

    function = "hardshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(_Activation):
    """x moved towards 0 by lambd, 0 within."""

    function = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softplus(_Activation):
    """log(1 + exp(beta * x)) / beta, and x above the threshold."""

    function = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Threshold(_Activation):
    """x above the threshold, `value` at and below."""

    function = "threshold"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace, threshold=threshold, value=value)


class GLU(_Activation):
    """The first half of an axis times the sigmoid of the second."""

    function = "glu"

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Sigmoid(_Plain):
    """1 / (1 + exp(-x))."""

    function = "sigmoid"


class LogSigmoid(_Plain):
    """log(sigmoid(x))."""

    function = "logsigmoid"


class Tanh(_Plain):
    """The hyperbolic tangent."""

    function = "tanh"


class Tanhshrink(_Plain):
    """x - tanh(x)."""

    function = "tanhshrink"


class Softsign(_Plain):
    """x / (1 + |x|)."""

    function = "softsign"


def _usual_axis(input: Tensor) -> int:
    """The axis that torch takes where none is given."""
    return 0 if len(input.shape) in (0, 1, 3) else 1


class Softmax(Module):
    """exp(x) over its sum along an axis."""

    function = "softmax"

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        dim = _usual_axis(input) if self.dim is None else self.dim
        result: Tensor = getattr(functional, self.function)(input, dim=dim)
        return result

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


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
