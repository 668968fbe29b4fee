"""Norms by the name of their kind, and those that are no layer of `nn`."""

from __future__ import annotations

from ridgeline import nn
from ridgeline.models.parts import Norm, Parts
from ridgeline.nn.functional import layer_norm, rms_norm
from ridgeline.tensors.public import ones, zeros
from ridgeline.tensors.tensor import Tensor


class ShiftedNorm(nn.Module):
    """A norm whose weights are kept as their distance from one."""

    def __init__(self, size: int, eps: float, centred: bool) -> None:
        super().__init__()
        self.weight, self.eps, self.centred = nn.Parameter(zeros((size,))), eps, centred
        self.bias = nn.Parameter(zeros((size,))) if centred else None

    def forward(self, x: Tensor) -> Tensor:
        shape, weight = tuple(self.weight.shape), 1.0 + self.weight
        if self.centred:
            return layer_norm(x, shape, weight, self.bias, self.eps)
        return rms_norm(x, shape, weight, self.eps)


class HeadNorm(nn.Module):
    """LayerNorm over the elements of a head, with weights of its own for each head."""

    def __init__(self, heads: int, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(ones((heads, size))), eps

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, (int(x.shape[-1]),), eps=self.eps) * self.weight.unsqueeze(1)


def norm(
    parts: Parts, size: int | None = None, kind: Norm | None = None, bias: bool | None = None
) -> nn.Module:
    """The stack's norm over its width, or another's."""
    size, kind = size or parts.width, kind or parts.norm
    if kind.endswith("+1"):
        return ShiftedNorm(size, parts.eps, kind == "layer+1")
    if kind == "rms":
        return nn.RMSNorm(size, parts.eps)
    biased = parts.norm_bias if bias is None else bias
    return nn.LayerNorm(size, parts.eps, parts.norm_weight, biased)
