"""Layers that learn the number of their inputs from the first input they see.

A lazy layer holds the other arguments; at its first call, or when a state is loaded into it, it
becomes the layer proper, in place, so that containers, hooks and names keep what they refer to.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from ridgeline.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from ridgeline.nn.linear import Linear
from ridgeline.nn.module import Module
from ridgeline.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from ridgeline.nn.state_hooks import STATE_HOOKS
from ridgeline.record.captures import CaptureError
from ridgeline.record.modes import modes
from ridgeline.tensors.tensor import Tensor


class Lazy(Module):
    """A layer to be; `axes` are those after the one that is counted."""

    becomes: ClassVar[Any]  # the class of the layer proper
    axes: ClassVar[int] = 0
    batched: ClassVar[bool] = False  # the counted axis is always the second

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._arguments = (args, kwargs)

    def __call__(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if modes.capture is not None:
            raise CaptureError(
                f"{type(self).__name__} does not know its size yet, which jit needs",
                help="call the model once outside of jit first",
            )
        self._become(int(input.shape[1 if self.batched else -1 - self.axes]))
        return self(input, *args, **kwargs)

    def _expect(self, values: Mapping[str, Any]) -> None:
        found = next((values[name] for name in ("weight", "running_mean") if name in values), None)
        shape = tuple(getattr(found, "shape", ()))
        if shape:
            self._become(self._size_in(shape))

    def _size_in(self, shape: tuple[int, ...]) -> int:
        """The number of inputs of a layer whose weight has this shape."""
        return int(shape[0])

    def _become(self, size: int) -> None:
        given, named = self._arguments
        made = self.becomes(size, *given, **named)
        kept = {"training", "_name", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
                "_backward_pre_hooks", *STATE_HOOKS}  # fmt: skip
        members = {k: v for k, v in made.__dict__.items() if k not in kept}
        self.__delattr__("_arguments")
        self.__class__ = self.becomes
        self.__dict__.update(members)

    def extra_repr(self) -> str:
        args, kwargs = self._arguments
        return ", ".join(["?", *map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])


class LazyLinear(Lazy):
    """Linear with in_features from the first input."""

    becomes = Linear

    def _size_in(self, shape: tuple[int, ...]) -> int:
        return int(shape[-1])


class _LazyConv(Lazy):
    def _size_in(self, shape: tuple[int, ...]) -> int:
        args, named = self._arguments
        bound = inspect.signature(self.becomes).bind(0, *args, **named)
        return int(shape[1]) * int(bound.arguments.get("groups", 1))


class LazyConv1d(_LazyConv):
    """Conv1d with in_channels from the first input."""

    becomes, axes = Conv1d, 1


class LazyConv2d(_LazyConv):
    """Conv2d with in_channels from the first input."""

    becomes, axes = Conv2d, 2


class LazyConv3d(_LazyConv):
    """Conv3d with in_channels from the first input."""

    becomes, axes = Conv3d, 3


class LazyConvTranspose1d(Lazy):
    """ConvTranspose1d with in_channels from the first input."""

    becomes, axes = ConvTranspose1d, 1


class LazyConvTranspose2d(Lazy):
    """ConvTranspose2d with in_channels from the first input."""

    becomes, axes = ConvTranspose2d, 2


class LazyConvTranspose3d(Lazy):
    """ConvTranspose3d with in_channels from the first input."""

    becomes, axes = ConvTranspose3d, 3


class LazyBatchNorm1d(Lazy):
    """BatchNorm1d with num_features from the first input."""

    becomes, batched = BatchNorm1d, True


class LazyBatchNorm2d(Lazy):
    """BatchNorm2d with num_features from the first input."""

    becomes, batched = BatchNorm2d, True


class LazyBatchNorm3d(Lazy):
    """BatchNorm3d with num_features from the first input."""

    becomes, batched = BatchNorm3d, True


class _LazyInstanceNorm(Lazy):
    """Unlike the norms that they become, these have parameters and statistics by default."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        **more: Any,
    ) -> None:
        super().__init__(eps, momentum, affine, track_running_stats, **more)


class LazyInstanceNorm1d(_LazyInstanceNorm):
    """InstanceNorm1d with num_features from the first input."""

    becomes, axes = InstanceNorm1d, 1


class LazyInstanceNorm2d(_LazyInstanceNorm):
    """InstanceNorm2d with num_features from the first input."""

    becomes, axes = InstanceNorm2d, 2


class LazyInstanceNorm3d(_LazyInstanceNorm):
    """InstanceNorm3d with num_features from the first input."""

    becomes, axes = InstanceNorm3d, 3
