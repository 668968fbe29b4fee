"""Parameter: a tensor that a module trains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from ridgeline import dtypes
from ridgeline.atomic import Block, Switch
from ridgeline.functions.operands import defaults
from ridgeline.record import mutation
from ridgeline.record.modes import modes
from ridgeline.tensors.creation import as_tensor
from ridgeline.tensors.public import zeros
from ridgeline.tensors.tensor import Tensor, tensor


class Parameter(Tensor):
    """A leaf that requires gradients; assigned to a module's attribute, it is registered there."""

    __slots__ = ()

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        value = tensor(np.empty(0, np.float32)) if data is None else as_tensor(data)
        return value.detach().as_subclass(cls).requires_grad_(requires_grad)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Let the parameter take part in gradients, or not; jitted functions notice."""
        mutation.bump()
        return self._require_grad(requires_grad)  # nothing is computed: it may be overwritten yet

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Another parameter of the same values; as in torch, without the gradient."""
        made = super().__deepcopy__(memo)
        made.grad = None
        return made

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


def trained(parameters: Iterable[Tensor | None]) -> list[int]:
    """How each parameter stands to differentiation, as what a capture depends on.

    Read from the track itself: inside a capture `requires_grad` would make it an input.
    """
    return [p._track.mode for p in parameters if p is not None]


class Buffer(Tensor):
    """A tensor that a module keeps as state but does not train; assigned, it is registered."""

    __slots__ = ()
    persistent = True  # is it part of the module's state dict?

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        value = tensor(np.empty(0, np.float32)) if data is None else as_tensor(data)
        return value.detach().as_subclass(cls if persistent else TransientBuffer)


class TransientBuffer(Buffer):
    """One that moves with its module and is not saved."""

    __slots__ = ()
    persistent = False


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet; `materialize` makes a parameter proper of it."""

    __slots__ = ()

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Give the parameter memory of a shape."""
        kind = self.dtype if dtype is None else dtype
        self.data = zeros(tuple(shape), dtype=kind, device=device or self.device)
        self.__class__ = Parameter  # type: ignore[assignment]


def is_lazy(param: Any) -> bool:
    """Whether a parameter has no shape yet."""
    return isinstance(param, UninitializedParameter)


def empty_parameter(shape: tuple[int, ...], dtype: dtypes.DType | None, device: Any) -> Parameter:
    """A parameter to be filled by an initial distribution."""
    kind = defaults.dtype if dtype is None else dtype
    return Parameter(zeros(shape, dtype=kind, device=device))


def deferred() -> Block:
    """Modules made inside take no memory: each parameter's initial value is computed when read.

    For models that are only looked at, or whose weights come from a file with
    `load_state_dict(…, assign=True)`.
    """
    return Switch(modes, on_read=True)
