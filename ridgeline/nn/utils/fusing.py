"""A batch norm folded into the convolution or linear layer before it, and layers left unfilled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from ridgeline.errors import BadValueError
from ridgeline.nn.module import Module
from ridgeline.nn.parameter import Parameter
from ridgeline.record.modes import no_grad
from ridgeline.tensors.public import rsqrt, zeros_like
from ridgeline.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of a convolution that also does what a batch norm behind it does."""
    axis = 1 if transpose else 0
    with no_grad():
        scale = rsqrt(bn_rv + bn_eps)
        if bn_w is not None:
            scale = scale * bn_w
        shape = [1] * conv_w.dim()
        shape[axis] = -1
        bias = ((zeros_like(bn_rm) if conv_b is None else conv_b) - bn_rm) * scale
        bias = bias if bn_b is None else bias + bn_b
        weight = (conv_w * scale.reshape(shape)).to(dtype=conv_w.dtype)
        return Parameter(weight, conv_w.requires_grad), Parameter(bias.to(dtype=conv_w.dtype))


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of a linear layer that also does what a batch norm behind it does."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of a layer with the batch norm behind it folded in; both are in evaluation mode."""
    if conv.training or bn.training:
        raise BadValueError("only layers in evaluation mode can be fused", help="call eval() first")
    fused: Any = copy.deepcopy(conv)
    if bn.running_mean is None or bn.running_var is None:
        raise BadValueError("a batch norm without running statistics cannot be fused")
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias,
        transpose,
    )  # fmt: skip
    made: M = fused
    return made


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of a linear layer with the batch norm behind it folded in."""
    return fuse_conv_bn_eval(linear, bn)


def skip_init(module_cls: Callable[..., M], *args: Any, **kwargs: Any) -> M:
    """A module as its constructor makes it: tensors take no time until they are read."""
    return module_cls(*args, **kwargs)
