"""Results written into existing tensors: in-place methods, and `out=`."""

from __future__ import annotations

from typing import Any

from ridgeline.dtypes import DType
from ridgeline.errors import BadTypeError, DTypeError, GradientError
from ridgeline.functions.operands import promote_types
from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast
from ridgeline.record.values import read, write
from ridgeline.tensors.tensor import Tensor


def written_into(out: Any, result: Any, name: str) -> Any:
    """What `out=` asks for: the result in the memory of given tensors, which take its shape."""
    if out is None:
        return result
    if isinstance(result, tuple):
        if not isinstance(out, tuple | list) or len(out) != len(result):
            raise BadTypeError(f"{name}: out= takes {len(result)} tensors, not {out!r:.40}")
        parts = [written_into(*pair, name) for pair in zip(out, result)]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    kind_of(out, name)
    if out.requires_grad or result.requires_grad:
        raise GradientError(f"{name}: out= takes no part in gradients", help="use no_grad()")
    if out.shape != result.shape:
        out.resize_(result.shape)
    value = fitted(read(result), out, name)
    return write(out, value, result._resolved()[1].mode, name)  # without gradients it may be cut


def kind_of(out: Any, name: str) -> DType:
    """The element type of a tensor that was given as `out=`."""
    if not isinstance(out, Tensor):
        raise BadTypeError(f"{name}: out= takes a tensor, not {out!r:.40}")
    return out.dtype


def fitted(result: Node, target: Tensor, name: str) -> Node:
    """A result in the target's element type, if torch would let it be written there."""
    own, found = target.dtype, result.dtype
    if own is found:
        return result
    kept = promote_types(own, found)
    higher = kept.kind != own.kind and not (own.kind in ("int", "uint") and kept.is_integer)
    if higher:
        raise DTypeError(
            f"{name}: a result of {found.name} cannot be written into {own.name}",
            help=f"convert the tensor first, such as with .to(ridgeline.{found.name})",
        )
    return cast(result, own)
