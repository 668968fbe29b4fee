"""Feed-forward layers, and activations by the names that configurations use."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline import nn
from ridgeline.errors import BadValueError
from ridgeline.models.parts import Parts
from ridgeline.nn.functional import gelu, relu, sigmoid, silu, tanh
from ridgeline.tensors.tensor import Tensor

Activation = Callable[[Tensor], Tensor]


def _gelu_tanh(x: Tensor) -> Tensor:
    return gelu(x, approximate="tanh")


def _quick_gelu(x: Tensor) -> Tensor:
    return x * sigmoid(1.702 * x)


def _relu_squared(x: Tensor) -> Tensor:
    return relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "gelu": gelu, "gelu_fast": _gelu_tanh, "gelu_new": _gelu_tanh, "gelu_python": gelu,
    "gelu_pytorch_tanh": _gelu_tanh, "quick_gelu": _quick_gelu, "relu": relu,
    "relu2": _relu_squared, "sigmoid": sigmoid, "silu": silu, "swish": silu, "tanh": tanh,
}  # fmt: skip


def activation(name: str) -> Activation:
    """An activation by the name that configurations use."""
    if name not in ACTIVATIONS:
        raise BadValueError(
            f"there is no activation {name!r:.60}", help=f"known: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, or with a gate: SwiGLU for SiLU."""

    def __init__(
        self, width: int, inner: int, act: str, gated: bool, bias: bool, down_bias: bool
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias) if gated else None
        self.up, self.down = nn.Linear(width, inner, bias), nn.Linear(inner, width, down_bias)
        self.activation = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        inner = self.activation(up) if self.gate is None else self.activation(self.gate(x)) * up
        result: Tensor = self.down(inner)
        return result


def feed_forward(parts: Parts, inner: int = 0) -> FeedForward:
    """The stack's feed-forward layer, or a narrower one like it."""
    bias = parts.up_bias
    down = bias if parts.down_bias is None else parts.down_bias
    return FeedForward(parts.width, inner or parts.inner, parts.activation, parts.gated, bias, down)
