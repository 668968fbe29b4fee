"""`autograd.Variable`, torch's deprecated name for a tensor."""

from __future__ import annotations

import warnings
from typing import Any

from ridgeline.errors import BadTypeError
from ridgeline.tensors.tensor import Tensor, tensor


class _TensorKind(type):
    """Calls give tensors, and every tensor is an instance."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)

    def __call__(
        cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool = False
    ) -> Any:
        """A tensor over the memory of `data`, without what computed it."""
        if volatile:
            warnings.warn("volatile has no effect: use rl.no_grad()", UserWarning, stacklevel=2)
        if data is None:
            data = tensor([])
        if not isinstance(data, Tensor):
            raise BadTypeError(f"Variable takes a tensor, not {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=_TensorKind):
    """`Variable(x, requires_grad=False)`: x without its history; tensors are used as they are."""
