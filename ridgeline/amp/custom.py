"""`custom_fwd` and `custom_bwd`: the element types of an `autograd.Function` under autocast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.record.modes import called
from ridgeline.tensors.autocast import autocast, is_autocast_enabled
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str = "cuda",
    cast_inputs: DType | None = None,
) -> Any:
    """A `forward` that runs as around it, or with inputs of one type and without autocast."""
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def run(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._autocast = is_autocast_enabled(device_type) and cast_inputs is None
        if cast_inputs is None or not is_autocast_enabled(device_type):
            return called(fwd)(ctx, *args, **kwargs)
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        floating = [isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves]
        given = [leaf.to(cast_inputs) if f else leaf for leaf, f in zip(leaves, floating)]
        args, kwargs = unflatten(structure, given)
        with autocast(device_type, enabled=False):
            return called(fwd)(ctx, *args, **kwargs)

    return run


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cuda") -> Any:
    """A `backward` that runs with autocast as its `forward` did."""
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def run(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=getattr(ctx, "_autocast", False)):
            return called(bwd)(ctx, *args, **kwargs)

    return run
