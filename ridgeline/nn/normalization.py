"""Normalisation layers: layer, RMS, group, batch and instance norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ridgeline import dtypes
from ridgeline.communicators.interface import Communicator
from ridgeline.communicators.process_group import communicator_of, is_initialized
from ridgeline.devices import is_mesh
from ridgeline.errors import BadValueError, ShapeError
from ridgeline.functions.operands import whole_numbers
from ridgeline.nn import functional, init
from ridgeline.nn.applied import Applied
from ridgeline.nn.functional.choose import choose
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter, empty_parameter
from ridgeline.record.modes import no_grad
from ridgeline.tensors.collectives import all_gather
from ridgeline.tensors.public import arange, cat, full, pad, zeros
from ridgeline.tensors.tensor import Tensor, tensor


class LayerNorm(Module):
    """Zero mean and unit variance over the last axes, then weight and bias by element."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        shape, affine = self.normalized_shape, elementwise_affine
        self.register_parameter("weight", empty_parameter(shape, dtype, device) if affine else None)
        with_bias = affine and bias
        self.register_parameter(
            "bias", empty_parameter(shape, dtype, device) if with_bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights of one, biases of zero."""
        _identity(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class RMSNorm(Module):
    """Division by the root of the mean square over the last axes, then weight by element."""

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = empty_parameter(self.normalized_shape, dtype, device)
        self.register_parameter("weight", weight if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights of one."""
        _identity(self.weight, None)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Zero mean and unit variance over groups of channels, then weight and bias by channel."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise BadValueError(f"{num_groups} groups do not divide {num_channels} channels")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        _affine(self, num_channels, affine, bias, dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights of one, biases of zero."""
        _identity(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class _RunningNorm(Module):
    """Norms over channels that may keep running statistics."""

    ranks: tuple[int, ...]  # the numbers of axes an input may have
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: dtypes.DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        _affine(self, num_features, affine, bias, dtype, device)
        for name in ("running_mean", "running_var"):
            tracked = zeros(num_features, dtype=dtype, device=device)
            self.register_buffer(name, tracked if track_running_stats else None)
        count = tensor(0, dtype=dtypes.int64, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Means of zero, variances of one, nothing counted."""
        if self.running_mean is not None:
            assert self.running_var is not None and self.num_batches_tracked is not None
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weights of one, biases of zero, fresh statistics."""
        self.reset_running_stats()
        _identity(self.weight, self.bias)

    def _check(self, input: Tensor) -> None:
        if len(input.shape) not in self.ranks:
            wanted = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__} takes {wanted} axes, got shape {list(input.shape)}"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    """Zero mean and unit variance by channel over the batch, or over running statistics."""

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        momentum: Any = self.momentum
        tracking = self.training and self.track_running_stats
        if tracking and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:  # a plain average over all batches
                momentum = 1.0 / self.num_batches_tracked.to(dtype=dtypes.float64)
        # statistics that are there may be switched off by attribute, and are left as they are then
        used = tracking or not self.training
        return functional.batch_norm(
            input,
            self.running_mean if used else None,
            self.running_var if used else None,
            self.weight,
            self.bias,
            self.training or (self.running_mean is None and self.running_var is None),
            0.0 if momentum is None else momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch norm of [n, c] or [n, c, l]."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of [n, c, h, w]."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of [n, c, d, h, w]."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm for any number of axes, over the batches of all ranks of a process group."""

    ranks = (2, 3, 4, 5)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
        device: Any = None, dtype: dtypes.DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every batch norm replaced by one over all ranks, of the same tensors."""
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group,
            )  # fmt: skip
            for name in ("weight", "bias"):
                made.register_parameter(name, getattr(module, name))
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                made.register_buffer(name, getattr(module, name))
            made.training = module.training
        for name, child in list(module.named_children()):
            setattr(made, name, cls.convert_sync_batchnorm(child, process_group))
        return made

    def forward(self, input: Tensor) -> Tensor:
        group = communicator_of(self.process_group) if is_initialized() else None
        by_batch = self.training or self.running_mean is None
        if group is None or group.size == 1 or not by_batch or is_mesh(input.device):
            return super().forward(input)  # what is on a mesh is the whole batch already
        self._check(input)
        mean, variance, count = _over_ranks(input, group)
        if self.training and self.track_running_stats:
            self._track(mean.detach(), variance.detach() * (count / (count - 1).clamp(min=1)))
        shape = (1, -1, *[1] * (len(input.shape) - 2))
        scale = (variance + self.eps).rsqrt()
        wide = input.to(mean.dtype)
        result = (wide - mean.reshape(shape)) * scale.reshape(shape)
        if self.weight is not None:
            result = result * self.weight.reshape(shape)
        if self.bias is not None:
            result = result + self.bias.reshape(shape)
        return result.to(input.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum: Any = self.momentum
        if momentum is None:  # a plain average over all batches
            momentum = 1.0 / self.num_batches_tracked.to(mean.dtype)
        with no_grad():
            for kept, new in ((self.running_mean, mean), (self.running_var, variance)):
                kept.copy_(kept + momentum * (new - kept))


def _over_ranks(input: Tensor, group: Communicator) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance by channel of the batches of all ranks, and how many elements these have.

    One collective: each rank's own mean, variance and count, which all of them combine.
    """
    wide = input.to(dtypes.float32) if input.dtype.itemsize < 4 else input
    rows = wide.movedim(1, 0).flatten(1)
    channels, count = map(int, rows.shape)
    if count:
        own, spread = rows.mean(1), rows.var(1, correction=0)
    else:  # a rank may have no samples
        own, spread = rows.sum(1), rows.sum(1)
    told = all_gather(cat([own, spread, full((1,), float(count), dtype=own.dtype)]), group=group)
    told = told.reshape(group.size, 2 * channels + 1)
    weight = told[:, -1:]
    total = weight.sum()
    means, spreads = told[:, :channels], told[:, channels:-1]
    mean = (weight * means).sum(0) / total
    variance = (weight * (spreads + (means - mean).square())).sum(0) / total
    return mean, variance, total


class _InstanceNorm(_RunningNorm):
    """Zero mean and unit variance by sample and channel."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: dtypes.DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        settings = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *settings, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        alone = len(input.shape) == self.ranks[0]  # one sample without a batch axis
        result = functional.instance_norm(
            input.unsqueeze(0) if alone else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum,
            self.eps,
        )
        return result.squeeze(0) if alone else result


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of [n, c, l] or [c, l]."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of [n, c, h, w] or [c, h, w]."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of [n, c, d, h, w] or [c, d, h, w]."""

    ranks = (4, 5)


class LocalResponseNorm(Applied):
    """Division by a power of the mean square over neighbouring channels."""

    function = "local_response_norm"
    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """The older form of `LocalResponseNorm`: an odd window, and torch's running sum.

    As in torch, the first channel stays in the sum once the window has passed it.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ShapeError(f"CrossMapLRN2d takes [n, c, h, w], got {list(input.shape)}")
        reach, channels = (self.size - 1) // 2, int(input.shape[1])
        square = input * input
        padded = pad(square, (0, 0, 0, 0, reach, reach))
        total = padded.narrow(1, 0, channels)
        for shift in range(1, 2 * reach + 1):
            total = total + padded.narrow(1, shift, channels)
        passed = arange(channels).reshape((-1, 1, 1)) > reach
        total = total + choose(passed, square.narrow(1, 0, 1), 0.0)
        return input / (total * (self.alpha / self.size) + self.k) ** self.beta


def _affine(
    layer: Module, count: int, affine: bool, bias: bool, dtype: dtypes.DType | None, device: Any
) -> None:
    """Register a weight and a bias by channel, as far as they are wanted."""
    for name, wanted in (("weight", affine), ("bias", affine and bias)):
        value = empty_parameter((count,), dtype, device) if wanted else None
        layer.register_parameter(name, value)


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else whole_numbers(shape)


def _identity(weight: Tensor | None, bias: Tensor | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
