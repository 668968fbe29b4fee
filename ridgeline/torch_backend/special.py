"""Calls of torch that are made in another way here: modes, attributes, fused layers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

import ridgeline as rl
from ridgeline.record.modes import modes
from ridgeline.torch_backend.aten import seen_as
from ridgeline.torch_backend.aten_layers import weight_norm
from ridgeline.torch_backend.aten_recurrent import RECURRENT

F = rl.nn.functional


def _set_gradients(enabled: bool) -> None:
    modes.gradients = enabled


def _enter_autocast(device: str, dtype: Any = None, enabled: bool = True, cache: Any = None) -> Any:
    block = rl.autocast(device, dtype=dtype, enabled=enabled)
    block.__enter__()
    return block


def _exit_autocast(block: Any) -> None:
    block.__exit__(None, None, None)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What changes no value: profiler marks, checks of what guards hold."""


def _check(holds: Any, message: Any = None) -> None:
    """What is known not to hold is torch's to say."""
    if holds is False:
        raise ValueError("a check that does not hold")


def _fma(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any,
    norm_bias_1: Any, norm_weight_2: Any, norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any,
    ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """A transformer's encoder layer at inference, which torch gives as one call."""
    if mask is not None:
        raise NotImplementedError("an encoder layer with a mask")

    def attention(x: Any) -> Any:
        batch, length, _ = x.shape
        joined = F.linear(x, qkv_weight, qkv_bias)
        parts = joined.reshape(batch, length, 3, num_heads, embed_dim // num_heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return F.linear(mixed.transpose(1, 2).reshape(x.shape), proj_weight, proj_bias)

    def feed_forward(x: Any) -> Any:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        src = src + attention(norm(src, norm_weight_1, norm_bias_1))
        return src + feed_forward(norm(src, norm_weight_2, norm_bias_2))
    src = norm(src + attention(src), norm_weight_1, norm_bias_1)
    return norm(src + feed_forward(src), norm_weight_2, norm_bias_2)


def _cast(name: str) -> Callable[..., Any]:
    """A method that changes the element type, with an order of memory that it may be told."""

    def call(x: Any, memory_format: Any = None) -> Any:
        made = getattr(x, name)()
        return made if memory_format is None else made.contiguous(memory_format=memory_format)

    return call


def _with_indices(name: str) -> Callable[..., Any]:
    """A pool that tells where its maxima are, as `*_with_indices` of torch's always do."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(F, name)(*args, **kwargs | {"return_indices": True})

    return call


def _lu(A: Any, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    found = rl.linalg.lu_factor_ex(A, pivot=pivot)
    return tuple(found) if get_infos else tuple(found)[:2]


def _of_number(name: str) -> Callable[..., Any]:
    """A function of Python's `math`, for a number or a tensor that stands for one."""

    def call(x: Any) -> Any:
        return getattr(rl if isinstance(x, rl.Tensor) else math, name)(x)

    return call


def _loss(name: str) -> Callable[..., Any]:
    """A loss without torch's deprecated `size_average` and `reduce`, which may come by place."""
    theirs, ours = getattr(torch.nn.functional, name), getattr(F, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature(theirs).bind(*args, **kwargs).arguments
        if given.pop("size_average", None) is not None or given.pop("reduce", None) is not None:
            raise NotImplementedError("size_average and reduce")
        return ours(**given)

    return call


# by the names that `names.name_of` gives
SPECIAL: dict[str, Callable[..., Any]] = {
    "torch._C._set_grad_enabled": _set_gradients,
    "torch._set_grad_enabled": _set_gradients,
    "torch.amp.autocast_mode._enter_autocast": _enter_autocast,
    "torch.amp.autocast_mode._exit_autocast": _exit_autocast,
    **{
        f"torch.nn.functional.{name}": _loss(name)
        for name in ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "binary_cross_entropy")
    },
    **{
        f"Tensor.{name}": _cast(name)
        for name in (
            "bfloat16",
            "bool",
            "byte",
            "char",
            "double",
            "float",
            "half",
            "int",
            "long",
            "short",
            "cdouble",
            "cfloat",
        )
    },
    **{
        f"torch.nn.functional.{name}_with_indices": _with_indices(name)
        for name in (
            *(f"max_pool{n}d" for n in (1, 2, 3)),
            *(f"adaptive_max_pool{n}d" for n in (1, 2, 3)),
            "fractional_max_pool2d",
            "fractional_max_pool3d",
        )
    },
    **{
        f"torch._sym_{name}": _of_number(name)
        for name in (
            "sqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "log2",
        )
    },
    "torch._weight_norm": weight_norm,
    **{f"torch.{name}": call for name, call in RECURRENT.items()},
    "torch.lu": _lu,
    "torch._C._log_api_usage_once": _nothing,
    "torch._transformer_encoder_layer_fwd": _encoder_layer,
    "Tensor.view": seen_as,
    "torch._assert_async": _nothing,
    "torch._check": _check,
    "torch.sym_sum": sum,
    "torch.sym_int": int,
    "torch.nn.functional._sym_int": int,
    "Tensor.__round__": round,
    "torch.sym_float": float,
    "torch.sym_not": operator.not_,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "prims.fma.default": _fma,
}
# calls that change how later ones are made, and nothing else
MODES = frozenset((
    "torch._C._set_grad_enabled", "torch._set_grad_enabled",
    "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast",
))  # fmt: skip
