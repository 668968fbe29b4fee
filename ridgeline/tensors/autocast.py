"""autocast: inside, matrix products run in a narrow floating type, and what needs range in float32.

The lists are torch's. A function on the first list gets its floating operands in the narrow type,
one on the second in float32, one on the third in the widest type among them; all others take what
they are given. Parameters keep their own type, so gradients and updates do too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import repeat
from typing import Any

from ridgeline import dtypes
from ridgeline.devices import CPU, device
from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError, DTypeError
from ridgeline.functions.operands import promote_types
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast
from ridgeline.record.modes import Mode, called, modes
from ridgeline.tensors.tensor import Tensor

_PRODUCTS = frozenset((
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "linear",
    "matmul", "mm", "multi_dot", "mv", "scaled_dot_product_attention",
))  # fmt: skip
_NARROW = {
    "cuda": _PRODUCTS | {"prelu"},
    "cpu": _PRODUCTS - {"addmv", "addr", "mv", "prelu"},
}
_LOSSES = frozenset((
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "ctc_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "poisson_nll_loss",
    "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
))  # fmt: skip
_WIDE = {
    "cuda": _LOSSES | frozenset((
        "acos", "asin", "cdist", "cosh", "cosine_similarity", "cumprod", "cumsum", "dist",
        "erfinv", "exp", "expm1", "gaussian_nll_loss", "group_norm", "gumbel_softmax",
        "layer_norm", "local_response_norm", "log", "log10", "log1p", "log2", "log_softmax",
        "logsumexp", "multilabel_soft_margin_loss", "norm", "normalize", "pdist", "pow", "prod",
        "reciprocal", "renorm", "rms_norm", "rsqrt", "sinh", "softmax", "softmin", "softplus",
        "sum", "tan",
    )),
    "cpu": _LOSSES | frozenset((
        "adaptive_avg_pool3d", "avg_pool3d", "binary_cross_entropy", "cdist", "grid_sample",
        "max_pool3d", "nanquantile", "polar", "prod", "quantile", "stft", "trace",
        "view_as_complex",
    )),
}  # fmt: skip
_WIDEST = {
    "cuda": frozenset((
        "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "grid_sample",
        "index_put", "scatter_add", "stack", "tensordot",
    )),
    "cpu": frozenset(("cat", "index_copy", "stack")),
}  # fmt: skip
_FORBIDDEN = {"cuda": frozenset(("binary_cross_entropy",)), "cpu": frozenset[str]()}
_TYPES = (dtypes.bfloat16, dtypes.float16)


class autocast(Mode):
    """`with autocast("cuda", dtype=bfloat16):`, or a decorator."""

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        """`cache_enabled` changes nothing: equal casts are one node in any case."""
        self._kind = device(device_type).type
        self._dtype = dtype or (dtypes.float16 if self._kind == "cuda" else dtypes.bfloat16)
        if enabled and self._dtype not in _TYPES:
            raise DTypeError(
                f"autocast takes bfloat16 or float16, not {self._dtype.name}",
                help="use autocast(..., enabled=False) to switch it off",
            )
        self._enabled = enabled
        self._before: list[tuple[tuple[str, DType], ...]] = []
        popped = map(list.pop, repeat(self._before))
        self.leaving = map(setattr, repeat(modes), repeat("autocast"), popped)

    def __enter__(self) -> autocast:
        self._before.append(modes.autocast)
        others = tuple(row for row in modes.autocast if row[0] != self._kind)
        modes.autocast = (*others, (self._kind, self._dtype)) if self._enabled else others
        return self

    def _another(self) -> autocast:
        return autocast(self._kind, self._dtype, self._enabled)


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """True inside `autocast` for that kind of device."""
    return any(kind == device(device_type).type for kind, _ in modes.autocast)


def is_autocast_cpu_enabled() -> bool:
    """True inside `autocast` for the host."""
    return is_autocast_enabled("cpu")


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a kind of device."""
    return device_type in _NARROW


def get_autocast_dtype(device_type: str) -> DType:
    """The narrow type for a kind of device: that of the block, or the default."""
    kind = device(device_type).type
    default = dtypes.float16 if kind == "cuda" else dtypes.bfloat16
    return dict(modes.autocast).get(kind, default)


def get_autocast_gpu_dtype() -> DType:
    """The narrow type on GPUs.

    >>> rl.get_autocast_gpu_dtype()
    ridgeline.float16
    """
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> DType:
    """The narrow type on the CPU.

    >>> rl.get_autocast_cpu_dtype()
    ridgeline.bfloat16
    """
    return get_autocast_dtype("cpu")


def autocasting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors under autocast's rules; inside it nothing more is converted."""
    if not any(name in names for table in (_NARROW, _WIDE, _WIDEST, _FORBIDDEN)
               for names in table.values()):  # fmt: skip
        return function

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not modes.autocast:
            return called(function)(*args, **kwargs)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        device = next((t.device for t in tensors if t.device != CPU), CPU)
        narrow = dict(modes.autocast).get(device.type)
        nodes = [t._cell.node for t in tensors]
        wanted = None if narrow is None else _wanted(name, device.type, narrow, nodes)

        def as_wanted(value: Any) -> Any:
            fits = isinstance(value, Tensor) and _eligible(value._cell.node)
            return value.to(wanted) if fits else value

        if wanted is None:
            return called(function)(*args, **kwargs)
        with autocast(device.type, enabled=False):
            return called(function)(
                *map(as_wanted, args), **{k: as_wanted(v) for k, v in kwargs.items()}
            )

    return run


def narrowed(
    name: str, device_type: str, values: Sequence[Any], named: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The operands of a function as autocast wants them on a device."""
    kind = device(device_type).type
    narrow = dict(modes.autocast).get(kind)
    wanted = None if narrow is None else _wanted(name, kind, narrow, [*values, *named.values()])
    if wanted is None:
        return list(values), named
    return [_as(v, wanted) for v in values], {k: _as(v, wanted) for k, v in named.items()}


def _wanted(name: str, kind: str, narrow: DType, operands: Sequence[Any]) -> DType | None:
    if name in _FORBIDDEN[kind]:
        raise ArgumentError(
            f"{name} is not safe inside autocast: its values leave the range of {narrow.name}",
            help=f"use {name}_with_logits, which takes scores before the sigmoid",
        )
    if name in _NARROW[kind]:
        return narrow
    if name in _WIDE[kind]:
        return dtypes.float32
    if name not in _WIDEST[kind]:
        return None
    found: DType | None = None
    for node in _nodes(operands):
        found = node.dtype if found is None else promote_types(found, node.dtype)
    return found


def _nodes(operands: Sequence[Any]) -> list[Node]:
    flat = [p for o in operands for p in (o if isinstance(o, list) else [o])]
    return [part for part in flat if isinstance(part, Node) and _eligible(part)]


def _eligible(node: Node) -> bool:
    return node.dtype in (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def _as(value: Any, wanted: DType) -> Any:
    if isinstance(value, list):
        return [_as(part, wanted) for part in value]
    return cast(value, wanted) if isinstance(value, Node) and _eligible(value) else value
