"""Calls that count elements in memory, where that lies as torch's does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node as FxNode

from ridgeline.graph.sizes import Size
from ridgeline.record.cells import strides_of
from ridgeline.record.strided import Strided
from ridgeline.tensors.tensor import Tensor, alias
from ridgeline.torch_backend.names import called
from ridgeline.torch_backend.scalars import shown
from ridgeline.torch_backend.symbols import Symbols

_BY_STRIDES = ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter")
# methods after which a tensor is seen in another shape
_RESHAPING = frozenset((
    "as_strided_", "resize_", "resize_as_", "squeeze_", "swapaxes_", "swapdims_", "t_",
    "transpose_", "unsqueeze_",
))  # fmt: skip


def counts_elements(name: str) -> bool:
    """True for a call that says places in memory."""
    return name.removesuffix(".default").endswith(_BY_STRIDES)


def is_reshaped_later(node: FxNode) -> bool:
    """True for a tensor that a later call shows in another shape, as torch does from the start."""
    return any(
        user.args and user.args[0] is node and _plain_name(user) in _RESHAPING
        for user in node.users
    )


def with_memory(node: FxNode) -> list[FxNode]:
    """A call, and if it counts elements in memory all that show it that memory.

    What one of them gets from a program of ours is memory of its own.
    """
    found = [node]
    while counts_elements(called(found[-1])):
        source = found[-1].args[0]
        theirs = shown(source) if isinstance(source, FxNode) else None
        if not isinstance(theirs, torch.Tensor) or source.op == "placeholder":
            break
        if not theirs._is_view() and theirs.is_contiguous() and theirs.storage_offset() == 0:
            break
        found.append(source)
    return found


def _plain_name(node: FxNode) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return str(name).split(".")[0]


def on_memory(function: Callable[..., Any], node: FxNode, symbols: Symbols) -> Callable[..., Any]:
    """Such a call, made on all of the memory of which its argument is a view."""
    given = node.args[0] if node.args else None
    theirs = shown(given) if isinstance(given, FxNode) else None

    def call(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
        offset = _checked(x, theirs, symbols)
        if offset is None:
            return function(x, size, stride, storage_offset)
        whole = alias(x)
        whole._steps, whole._seen = (), None
        return function(whole, size, stride, offset if storage_offset is None else storage_offset)

    def scatter(x: Any, src: Any, *rest: Any, **options: Any) -> Any:
        if _checked(x, theirs, symbols) is not None:
            raise NotImplementedError("places in memory that is seen in part")
        return function(x, src, *rest, **options)

    return scatter if _plain_name(node) == "as_strided_scatter" else call


def _checked(x: Tensor, theirs: Any, symbols: Symbols) -> Size | None:
    """Where a view begins in its memory; None for what is no view.

    Raises where memory lies otherwise than torch's does.
    """
    if not isinstance(theirs, torch.Tensor):
        return None
    shape, steps = x._cell.node.shape, x._steps
    strides, offset = strides_of(shape, steps), offset_of(shape, steps)
    if strides is None or offset is None or x.dtype is not x._cell.node.dtype:
        raise NotImplementedError("places in memory that lies otherwise here")
    lengths = zip(symbols.sizes(theirs.stride()), strides, x.shape)
    same = all(mine == own or length == 1 for mine, own, length in lengths)
    if not same or symbols.size(theirs.storage_offset()) != offset:
        raise NotImplementedError("places in memory that lies otherwise here")
    if steps and x.requires_grad:
        raise NotImplementedError("places in memory of which a part has gradients")
    return offset if steps else None


def offset_of(shape: Sequence[Any], steps: Sequence[Any]) -> Size | None:
    """Where a view begins in memory, in elements; None where only a gather says it."""
    offset: Size = 0
    for count, (op, attrs) in enumerate(steps):
        if isinstance(attrs, Strided) and all(op.name == "reshape" for op, _ in steps[:count]):
            offset = attrs.offset
        elif op.name == "slice":
            strides = strides_of(tuple(shape), steps[:count])
            if strides is None:
                return None
            offset += sum(start * by for start, by in zip(attrs.starts, strides))
        elif op.name not in ("reshape", "permute", "broadcast"):
            return None
    return offset
