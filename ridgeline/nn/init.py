"""Initial distributions, with torch's names, defaults and formulas.

Every function fills its tensor in place, without recording gradients, and returns it.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ridgeline import linalg
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.module_paths import unknown
from ridgeline.record.modes import no_grad
from ridgeline.reference import describe as _describe
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.public import rand
from ridgeline.tensors.tensor import Tensor

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0, "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0), "selu": 0.75,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through a nonlinearity."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise BadValueError(
            f"no gain is known for {nonlinearity!r}", help=f"known: {', '.join(_GAINS)}, leaky_relu"
        )
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs feed an output of a weight, and how many outputs an input feeds."""
    shape = tuple(int(size) for size in tensor.shape)
    if len(shape) < 2:
        raise ShapeError(f"fan in and fan out need at least 2 axes, got shape {list(shape)}")
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise BadValueError(f"mode is 'fan_in' or 'fan_out', not {mode!r}")
    return fans(tensor)[mode == "fan_out"]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform in [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal with the given mean and standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """One everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zero everywhere."""
    return constant_(tensor, 0.0)


def _copied(tensor: Tensor, values: Any) -> Tensor:
    with no_grad():
        return tensor.copy_(as_tensor(values, dtype=tensor.dtype))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio's uniform distribution."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio's normal distribution."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """He and others' uniform distribution; `a` is the slope of a leaky ReLU."""
    if 0 in tensor.shape:
        warnings.warn("initialising a tensor without elements does nothing", stacklevel=2)
        return tensor
    gain = calculate_gain(nonlinearity, a)
    bound = math.sqrt(3.0) * gain / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """He and others' normal distribution; `a` is the slope of a leaky ReLU."""
    if 0 in tensor.shape:
        warnings.warn("initialising a tensor without elements does nothing", stacklevel=2)
        return tensor
    gain = calculate_gain(nonlinearity, a)
    return normal_(tensor, 0.0, gain / math.sqrt(_fan(tensor, mode)))


def bias_uniform_(bias: Tensor, weight: Tensor) -> Tensor:
    """torch's default for the bias beside a weight: uniform in ±1/sqrt(fan in)."""
    fan_in, _ = fans(weight)
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return uniform_(bias, -bound, bound)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Normal with what falls outside of [a, b] drawn again: the inverse distribution function."""

    def share(bound: float) -> float:
        return (1 + math.erf((bound - mean) / (std * math.sqrt(2)))) / 2

    with no_grad():
        tensor.uniform_(2 * share(a) - 1, 2 * share(b) - 1)
        return tensor.copy_((tensor.erfinv() * (std * math.sqrt(2)) + mean).clamp(a, b))


def eye_(tensor: Tensor) -> Tensor:
    """The identity, for a matrix."""
    if tensor.dim() != 2:
        raise ShapeError(f"eye_ fills matrices, not a shape of {list(tensor.shape)}")
    rows, columns = (int(n) for n in tensor.shape)
    return _copied(tensor, np.eye(rows, columns))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Filters of a convolution that hand the channels of each group through unchanged."""
    shape = tuple(int(n) for n in tensor.shape)
    if len(shape) not in (3, 4, 5) or shape[0] % groups:
        raise ShapeError(f"dirac_ fills filters of {groups} groups, not {list(shape)}")
    values, outputs = np.zeros(shape), shape[0] // groups
    middle = tuple(n // 2 for n in shape[2:])
    for group in range(groups):
        for channel in range(min(outputs, shape[1])):
            values[(group * outputs + channel, channel, *middle)] = 1
    return _copied(tensor, values)


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Rows, or columns where there are fewer of them, that are orthonormal; axes after the first
    are taken as one."""
    if tensor.dim() < 2:
        raise ShapeError(f"orthogonal_ needs at least 2 axes, got {list(tensor.shape)}")
    with no_grad():
        normal_(tensor)
        flat = tensor.detach().clone().flatten(1)
        tall = int(flat.shape[0]) >= int(flat.shape[1])
        q, r = linalg.qr(flat if tall else flat.transpose(0, 1))
        q = q * r.diagonal().sign()  # makes the distribution uniform
        q = q if tall else q.transpose(0, 1)
        return tensor.copy_(gain * q.reshape(tuple(tensor.shape)))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Normal, with a share of zeros in every column."""
    if tensor.dim() != 2:
        raise ShapeError(f"sparse_ fills matrices, not a shape of {list(tensor.shape)}")
    rows = int(tensor.shape[0])
    with no_grad():
        normal_(tensor, 0.0, std)
        order = rand(tuple(tensor.shape)).argsort(0).argsort(0)  # a permutation of each column
        return tensor.mul_((order >= math.ceil(sparsity * rows)).to(dtype=tensor.dtype))


# torch's private names of these, which public programs call
_calculate_fan_in_and_fan_out, _calculate_correct_fan = fans, _fan
_no_grad_uniform_, _no_grad_normal_, _no_grad_fill_ = uniform_, normal_, constant_
_no_grad_trunc_normal_ = trunc_normal_


def __getattr__(name: str) -> Any:
    """Names of old without the underscore, `xavier_uniform`, are those with it."""
    found = globals().get(f"{name}_")
    return found if found is not None and name[:1] != "_" else _unknown(name)


_unknown = unknown(__name__)
_describe("nn.init", {name: made for name, made in globals().items() if name[0] != "_"})
