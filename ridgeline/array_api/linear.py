"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.array_api.array import Array, SizeError, as_array, call, need_array, together
from ridgeline.array_api.types import NUMERIC
from ridgeline.tensors.tensor import Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Array:
    """The matrix product, batched over the leading axes."""
    a, b = together("matmul", NUMERIC, need_array("matmul", x1), need_array("matmul", x2))
    if a.ndim == 0 or b.ndim == 0:
        raise SizeError("matmul needs operands with at least one axis")
    return call("matmul", a, b)


def matrix_transpose(x: Tensor, /) -> Array:
    """The last two axes exchanged."""
    if need_array("matrix_transpose", x).ndim < 2:
        raise SizeError(f"matrix_transpose needs at least 2 axes, got shape {list(x.shape)}")
    return as_array(x.transpose(-2, -1))


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """The sum of products over some axes of both operands."""
    a, b = together("tensordot", NUMERIC, x1, x2)
    return call("tensordot", a, b, axes if isinstance(axes, int) else [list(one) for one in axes])


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """The dot product of vectors along an axis; the first operand is conjugated."""
    a, b = together("vecdot", NUMERIC, need_array("vecdot", x1), need_array("vecdot", x2))
    if not -min(a.ndim, b.ndim) <= axis < 0 and not (axis >= 0 and a.ndim == b.ndim > axis):
        raise SizeError(f"vecdot: axis {axis} does not exist in both operands")
    if a.shape[axis] != b.shape[axis]:
        raise SizeError(f"vecdot: {list(a.shape)} and {list(b.shape)} differ along axis {axis}")
    left = call("conj", a) if a.dtype.kind == "complex" else a
    from_end = axis if axis < 0 else axis - a.ndim
    products = call("mul", left, b)
    return call("sum", products, from_end, dtype=products.dtype)
