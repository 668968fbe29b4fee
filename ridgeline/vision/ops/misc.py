"""torchvision.ops.misc: parts that several vision models are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.nn import functional
from ridgeline.tensors.public import bernoulli, full, rand
from ridgeline.tensors.tensor import Tensor

Layer = Callable[..., nn.Module]


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation by statistics and weights that stay as they were loaded."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0),
                            ("running_var", 1.0)):  # fmt: skip
            self.register_buffer(name, full((num_features,), value))

        self.register_load_state_dict_pre_hook(_without_count)

    def forward(self, x: Tensor) -> Tensor:
        """Scaled and moved, channel by channel."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        moved = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + moved.reshape(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"FrozenBatchNorm2d({self.weight.shape[0]}, eps={self.eps})"


def _without_count(module: Any, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
    """Files of layers that were trained have a count of batches, which is of no use."""
    state_dict.pop(f"{prefix}num_batches_tracked", None)


class ConvNormActivation(nn.Sequential):
    """A convolution, a normalisation and an activation, where they are not None."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Layer | None = nn.BatchNorm2d,
        activation_layer: Layer | None = nn.ReLU,
        dilation: Any = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
        conv_layer: Layer = nn.Conv2d,
    ) -> None:
        if padding is None:
            padding = _same(kernel_size, dilation)
        convolution = conv_layer(
            in_channels, out_channels, kernel_size, stride, padding, dilation=dilation,
            groups=groups, bias=norm_layer is None if bias is None else bias,
        )  # fmt: skip
        layers = [convolution]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


def _same(kernel_size: Any, dilation: Any) -> Any:
    """Margins that keep the size of what has a stride of 1."""
    if isinstance(kernel_size, int) and isinstance(dilation, int):
        return (kernel_size - 1) // 2 * dilation
    axes = len(kernel_size) if isinstance(kernel_size, Sequence) else len(dilation)
    kernels = kernel_size if isinstance(kernel_size, Sequence) else (kernel_size,) * axes
    steps = dilation if isinstance(dilation, Sequence) else (dilation,) * axes
    return tuple((k - 1) // 2 * d for k, d in zip(kernels, steps))


class Conv2dNormActivation(ConvNormActivation):
    """The same for pictures."""


class Conv3dNormActivation(ConvNormActivation):
    """The same for volumes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        given = {"norm_layer": nn.BatchNorm3d, "conv_layer": nn.Conv3d, **options}
        super().__init__(*args, **given)


class SqueezeExcitation(nn.Module):
    """Channels weighted by what the whole picture says of them."""

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Layer = nn.ReLU,
        scale_activation: Layer = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        """The input times the weights of its channels."""
        scale = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        weighted: Tensor = self.scale_activation(scale) * input
        return weighted


class MLP(nn.Sequential):
    """Linear layers with normalisations, activations and dropout between them."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: list[int],
        norm_layer: Layer | None = None,
        activation_layer: Layer | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        width = in_channels
        for number, size in enumerate(hidden_channels):
            layers.append(nn.Linear(width, size, bias=bias))
            if number < len(hidden_channels) - 1:
                if norm_layer is not None:
                    layers.append(norm_layer(size))
                if activation_layer is not None:
                    layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            width = size
        super().__init__(*layers)


class Permute(nn.Module):
    """Axes in another order, as a layer."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = list(dims)

    def forward(self, x: Tensor) -> Tensor:
        """The input with its axes in that order."""
        return x.permute(*self.dims)


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Drop whole samples (`mode="row"`) or all (`"batch"`), and scale the others up."""
    if not 0 <= p <= 1 or mode not in ("batch", "row"):
        raise BadValueError(f"stochastic_depth: p in 0…1 and batch or row, not {p}, {mode!r}")
    if not training or p == 0:
        return input
    rows = (input.shape[0] if mode == "row" else 1, *[1] * (input.dim() - 1))
    kept = bernoulli(full(rows, 1 - p, dtype=input.dtype, device=input.device))
    return input * (kept / (1 - p) if p < 1 else kept)


class StochasticDepth(nn.Module):
    """`stochastic_depth` as a layer."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        """The input, or nothing of it."""
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"StochasticDepth(p={self.p}, mode={self.mode})"


def drop_block2d(
    input: Tensor,
    p: float,
    block_size: int,
    inplace: bool = False,
    eps: float = 1e-06,
    training: bool = True,
) -> Tensor:
    """Drop square blocks of feature maps, and scale the rest up."""
    if not training or p == 0:
        return input
    n, c, h, w = input.shape
    side = min(block_size, h, w)
    rate = (p * h * w) / (side**2 * ((h - side + 1) * (w - side + 1)))
    seeds = (rand((n, c, h - side + 1, w - side + 1), device=input.device) < rate).to(input.dtype)
    seeds = functional.pad(seeds, [side // 2] * 4)
    kept = 1 - functional.max_pool2d(seeds, side, 1, side // 2)[..., :h, :w]
    made = input * kept * (kept.numel() / (eps + kept.sum()))
    return input.copy_(made) if inplace else made
