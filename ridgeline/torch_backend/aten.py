"""Operators of torch's registry whose arguments differ from those of the public functions.

`torch.export` gives graphs of these. All others take what the function of their name here takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ridgeline as rl
from ridgeline.errors import ShapeError

F = rl.nn.functional
_REDUCTIONS = ("none", "mean", "sum")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What checks something that holds."""


def _same(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale: bool = False, sparse: bool = False
) -> Any:
    return F.embedding(indices, weight, padding_idx=None if padding_idx < 0 else padding_idx)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float, cudnn: bool = True,
) -> Any:  # fmt: skip
    return F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float, cudnn: bool = True,
) -> Any:  # fmt: skip
    return F.instance_norm(x, mean, var, weight, bias, training, momentum, eps)


def _layer_norm(
    x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:  # fmt: skip
    return F.layer_norm(x, shape, weight, bias, eps)


def _group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    return F.group_norm(x, groups, weight, bias, eps)


def _to(
    x: Any, dtype: Any = None, *rest: Any, copy: bool = False, memory_format: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    found = x if dtype is None else x.to(dtype)
    found = found.clone() if copy and found is x else found
    return found if memory_format is None else found.contiguous(memory_format=memory_format)


def _to_copy(x: Any, **options: Any) -> Any:
    return _to(x, **options, copy=True)


def seen_as(x: Any, *shape: Any, dtype: Any = None, size: Any = None) -> Any:
    """`view`; where memory lies otherwise than torch's would, a copy."""
    if dtype is not None:
        return x.view(dtype)
    shape = shape if size is None else (size,)
    try:
        return x.view(*shape)
    except ShapeError:
        return x.reshape(*shape)


def _slice(
    x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    places: list[Any] = [slice(None)] * x.ndim
    end = None if end is None or (isinstance(end, int) and end >= 2**62) else end
    places[dim] = slice(start, end, step)
    return x[tuple(places)]


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x[_places(indices)]


def _index_put_(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    if accumulate:
        return x.index_put_(tuple(indices), values, accumulate=True)
    x[_places(indices)] = values
    return x


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    return _index_put_(x.clone(), indices, values, accumulate)


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def _size(x: Any, dim: int) -> Any:
    return x.shape[dim]


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    if (scale, input_scale) == (1.0, 1.0):
        return F.elu(x, alpha)
    below = alpha * rl.expm1(x.clamp(max=0) * input_scale)
    return scale * rl.where(x > 0, x, below)


def _loss(name: str) -> Callable[..., Any]:
    """A loss whose reduction is a number."""

    def call(x: Any, target: Any, reduction: int = 1, *rest: Any, **options: Any) -> Any:
        function = getattr(F, name)
        return function(x, target, *rest, reduction=_REDUCTIONS[reduction], **options)

    return call


def _weighted_loss(name: str) -> Callable[..., Any]:
    """The same with weights before the reduction."""

    def call(x: Any, target: Any, weight: Any = None, *rest: Any, **options: Any) -> Any:
        options |= dict(zip(_WEIGHTED[name], rest))
        options["reduction"] = _REDUCTIONS[options.get("reduction", 1)]
        return getattr(F, name)(x, target, weight, **options)

    return call


_WEIGHTED = {
    "cross_entropy": ("reduction", "ignore_index", "label_smoothing"),
    "nll_loss": ("reduction", "ignore_index"),
    "binary_cross_entropy": ("reduction",),
    "binary_cross_entropy_with_logits": ("pos_weight", "reduction"),
}


def _pad(mode: str) -> Callable[..., Any]:
    def call(x: Any, pad: Sequence[int]) -> Any:
        return F.pad(x, tuple(pad), mode)

    return call


def _upsample(mode: str) -> Callable[..., Any]:
    """A resize of an image, `(x, size, align_corners, scale_factors)`; few modes have the third."""
    has_corners = mode != "nearest"

    def call(x: Any, size: Any, *rest: Any, **options: Any) -> Any:
        names = ("align_corners", "scale_factors") if has_corners else ("scale_factors",)
        options |= dict(zip(names, rest))
        scales = options.get("scale_factors")
        return F.interpolate(
            x,
            size=None if size is None else tuple(size),
            scale_factor=None if scales is None or size is not None else tuple(scales),
            mode=mode,
            align_corners=options.get("align_corners"),
        )

    return call


def _moments(name: str) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None, **options: Any) -> Any:
        return getattr(rl, name)(x, dim, **options)

    return call


def _feature_dropout(x: Any, p: float, training: bool) -> Any:
    return F.dropout2d(x, p, training)


ATEN: dict[str, Callable[..., Any]] = {
    "embedding": _embedding, "batch_norm": _batch_norm, "instance_norm": _instance_norm,
    "layer_norm": _layer_norm, "group_norm": _group_norm, "to": _to, "_to_copy": _to_copy,
    "view.default": seen_as, "_unsafe_view": seen_as,
    "slice": _slice, "index": _index, "index_put": _index_put, "index_put_": _index_put_,
    "_unsafe_index": _index, "sym_size": _size, "elu": _elu, "dropout": F.dropout,
    "feature_dropout": _feature_dropout, "cross_entropy_loss": _weighted_loss("cross_entropy"),
    "nll_loss_nd": _weighted_loss("nll_loss"), "nll_loss": _weighted_loss("nll_loss"),
    "binary_cross_entropy": _weighted_loss("binary_cross_entropy"),
    "binary_cross_entropy_with_logits": _weighted_loss("binary_cross_entropy_with_logits"),
    "constant_pad_nd": lambda x, pad, value=0: F.pad(x, tuple(pad), "constant", value),
    "numpy_T": lambda x: x.T, "matrix_H": lambda x: x.mH,
    "alias": _same, "lift_fresh_copy": _same, "lift_fresh": _same,
    "detach_": lambda x: x.detach(), "scalar_tensor": lambda s, **options: rl.tensor(s, **options),
    "_assert_tensor_metadata": _nothing, "_assert_scalar": _nothing, "_assert_async": _nothing,
    "sym_constrain_range_for_size": _nothing, "sym_constrain_range": _nothing,
    **{f"{name}_loss": _loss(f"{name}_loss") for name in (
        "mse", "l1", "smooth_l1", "huber", "soft_margin")},
    **{f"reflection_pad{n}d": _pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _pad("replicate") for n in (1, 2, 3)},
    **{f"upsample_{name}": _upsample(mode) for name, mode in (
        ("nearest1d", "nearest"), ("nearest2d", "nearest"), ("nearest3d", "nearest"),
        ("linear1d", "linear"), ("bilinear2d", "bilinear"), ("bicubic2d", "bicubic"),
        ("trilinear3d", "trilinear"))},
    **{f"{name}.correction": _moments(name) for name in ("std", "var", "std_mean", "var_mean")},
}  # fmt: skip
