"""The `inplace` argument of torch's activations and dropouts: the result written into the input."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ridgeline.tensors.tensor import Tensor

# Functions that take it, and its place among their positional arguments.
PLACES = {
    "alpha_dropout": 3, "celu": 2, "dropout": 3, "dropout1d": 3, "dropout2d": 3, "dropout3d": 3,
    "elu": 2, "feature_alpha_dropout": 3, "hardsigmoid": 1, "hardswish": 1, "hardtanh": 3,
    "leaky_relu": 2, "mish": 1, "relu": 1, "relu6": 1, "rrelu": 4, "selu": 1, "silu": 1,
    "threshold": 3,
}  # fmt: skip


def with_inplace(function: Callable[..., Tensor], index: int) -> Callable[..., Tensor]:
    """The function, which with `inplace` also leaves its result in its input."""

    @wraps(function)
    def applied(input: Tensor, *args: Any, inplace: bool = False, **kwargs: Any) -> Tensor:
        if len(args) >= index:
            args, inplace = args[: index - 1], args[index - 1]
        result = function(input, *args, **kwargs)
        return input.copy_(result) if inplace else result

    return applied
