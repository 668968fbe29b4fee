"""einops on tensors: importing this module teaches einops what they are.

After `import ridgeline.interop.einops`, `rearrange`, `reduce`, `repeat`, `einsum`, `pack` and
`unpack` take and give tensors, with gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend

import ridgeline as rl
from ridgeline.scalars import Array
from ridgeline.tensors.tensor import Tensor, tensor

_REDUCTIONS = {"max": "amax", "min": "amin"}  # over several axes, without indices


class RidgelineBackend(AbstractBackend):  # type: ignore[misc]  # einops gives no types
    """What einops needs of a library."""

    framework_name = "ridgeline"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """True for what this backend handles."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Array) -> Tensor:
        """An array as a tensor; a variable where it can be one."""
        made = tensor(x)
        return made.requires_grad_() if made.is_floating_point() else made

    def to_numpy(self, x: Tensor) -> Array:
        """The values as an array."""
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """Whole numbers."""
        return rl.arange(start, stop)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """The axes in another order."""
        return x.permute(tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        """A reduction by name."""
        result: Tensor = getattr(x, _REDUCTIONS.get(operation, operation))(tuple(axes))
        return result

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """Tensors side by side."""
        return rl.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """A new axis of size 1."""
        return x.unsqueeze(new_position)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """The tensor repeated along its axes."""
        return x.repeat(tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        """Tensors joined along an axis."""
        return rl.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        """True for floating values."""
        return x.is_floating_point()

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        """The sum of products that a pattern describes."""
        return rl.einsum(pattern, *x)
