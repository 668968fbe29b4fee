"""Attention as an op, with a gradient that keeps no matrix of scores.

    out = softmax(q kᵀ * scale + mask) v        lse = log of the sum of each row's exponentials

Operands are [..., heads, length, width]; several heads of queries may share one of keys and values.
A boolean mask keeps where it is True, a floating one is added; `causal` keeps what is not later.
Operands of 16 bits are multiplied as they are and summed in float32, weights are rounded to the
operands' type before they multiply values, and all else is float32 (float64 for float64 operands).
A row that keeps nothing gives zeros, and its `lse` is +inf, so that its weights are zero again
when the gradient computes them as exp(score - lse). Where a mask adds so large a negative number to
a whole row that `lse` is that number, the row's weights are equal: `lost_factor` is one of them.

Backends that have no kernel for these ops get them written out (`written.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node, proj
from ridgeline.graph.sizes import Size, bounds, product
from ridgeline.ops.attention import values, written
from ridgeline.ops.batching import outputs_of
from ridgeline.ops.elementwise import cast, full_like
from ridgeline.ops.expansion import jvp_through, vjp_through
from ridgeline.ops.movement import reshape, spread
from ridgeline.ops.reduce import expand_back, sum_
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


TYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)


@dataclass(frozen=True, slots=True)
class AttentionAttrs(Attrs):
    """What scores are multiplied by, and whether a query sees only keys that are not later.

    With `beside`, results but for `lse` are [..., length, heads, width], so that the heads of a
    row lie side by side. With `joined`, the gradients are one result, [..., length, 3, heads,
    width], to which 0 was added as a sum of padded parts would. Passes of the compiler choose both.
    """

    scale: float
    causal: bool
    beside: bool = False
    joined: bool = False


def attention(
    q: Node, k: Node, v: Node, mask: Node | None, scale: float, causal: bool
) -> tuple[Node, Node]:
    """The weighted values and `lse`.

    A mask has as many axes as q, each as long as that of the scores or of length 1.
    """
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    both = node(ATTENTION, operands, AttentionAttrs(scale, causal))
    return proj(both, 0), proj(both, 1)


def attention_gradient(
    operands: Sequence[Node], lse: Node, delta: Node, ct: Node, attrs: AttentionAttrs
) -> tuple[Node, Node, Node]:
    """The gradients by q, k and v. `operands` are those of the attention, `ct` is the cotangent of
    its result; `delta` is the sum of ct * out over each row, less the cotangent of `lse`."""
    made = node(ATTENTION_GRADIENT, (*operands, lse, delta, ct), attrs)
    return proj(made, 0), proj(made, 1), proj(made, 2)


def products(current: Node) -> int:
    """Products of numbers that either op computes, masked ones included."""
    q, k, v = (i.shape for i in current.inputs[:3])
    inner = [int(bounds(s)[1]) for s in (q[-1], v[-1])]
    pairs = bounds(product((*q[:-1], k[-2])))[1]
    if len(current.types) == 2:  # a result and `lse`
        return pairs * (inner[0] + inner[1])
    return pairs * (3 * inner[0] + 2 * inner[1])


# ---- types ---------------------------------------------------------------------------------------


def fits(q: TensorType, k: TensorType, v: TensorType) -> bool:
    """True for operands that the op takes."""
    shapes = q.shape, k.shape, v.shape
    if q.dtype not in TYPES or k.dtype is not q.dtype or v.dtype is not q.dtype:
        return False
    if len(q.shape) < 3 or any(len(s) != len(q.shape) for s in shapes) or 0 in q.shape + k.shape:
        return False
    if q.shape[:-3] != k.shape[:-3] or k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        return False
    heads, shared = q.shape[-3], k.shape[-3]
    return heads == shared or bool(
        isinstance(heads, int) and isinstance(shared, int) and heads % shared == 0
    )


def mask_fits(mask: TensorType, q: TensorType, k: TensorType) -> bool:
    """True for a mask that the op takes beside these operands."""
    full = (*q.shape[:-1], k.shape[-2])
    if mask.dtype not in (dtypes.bool_, q.dtype, wide(q.dtype)):
        return False
    return len(mask.shape) == len(full) and all(
        m == 1 or m == size for m, size in zip(mask.shape, full)
    )


def wide(dtype: DType) -> DType:
    """The type between the products."""
    return dtypes.float32 if dtype.itemsize < 4 else dtype


def _infer(types: Sequence[TensorType], attrs: AttentionAttrs) -> tuple[TensorType, ...]:
    q, k, v, *mask = types
    if not fits(q, k, v) or (mask and not mask_fits(mask[0], q, k)):
        shown = ", ".join(map(repr, types))
        kind = ShapeError if all(t.dtype in TYPES for t in (q, k, v)) else DTypeError
        raise kind(f"attention does not take operands of types {shown}")
    if mask and attrs.causal:
        raise ShapeError("attention takes a mask or is causal, not both")
    rows: tuple[Size, ...] = q.shape[:-1]
    out = TensorType((*rows, v.shape[-1]), q.dtype, q.device)
    return _laid(out, attrs), TensorType(rows, wide(q.dtype), q.device)


def _infer_gradient(types: Sequence[TensorType], attrs: AttentionAttrs) -> tuple[TensorType, ...]:
    *operands, lse, delta, ct = types
    out, rows = _infer(operands, replace(attrs, beside=False))
    if ct != out or lse != rows or delta != rows:
        raise ShapeError(f"attention's gradient got {ct}, {lse} and {delta} for {out} and {rows}")
    if attrs.joined:
        *lead, heads, length, width = operands[0].shape
        return (TensorType((*lead, length, 3, heads, width), ct.dtype, ct.device),)
    return tuple(_laid(operand, attrs) for operand in operands[:3])


def _laid(made: TensorType, attrs: AttentionAttrs) -> TensorType:
    """The type of a result, by where its heads lie."""
    if not attrs.beside:
        return made
    *lead, heads, length, width = made.shape
    return TensorType((*lead, length, heads, width), made.dtype, made.device)


# ---- values --------------------------------------------------------------------------------------


def _operands(current: Node, inputs: Sequence[Array]) -> tuple[list[Array], Array | None, Array]:
    """Queries by group and keys and values beside them, the mask, and the scores."""
    q, k, v = (a.astype(wide(current.inputs[0].dtype).numpy) for a in inputs[:3])
    mask = _grouped(inputs[3], k.shape[-3]) if written.is_masked(current) else None
    q, k, v = _grouped(q, k.shape[-3]), np.expand_dims(k, -3), np.expand_dims(v, -3)
    with float_errors_ignored():
        found = values.scores(q, k, mask, current.attrs.scale, current.attrs.causal)
    return [q, k, v], mask, found


def _grouped(array: Array, shared: int, tail: int = 2) -> Array:
    """An array with its axis of heads cut in two: heads of keys, queries of each."""
    lead = array.shape[: array.ndim - tail - 1]
    heads, rest = array.shape[array.ndim - tail - 1], array.shape[array.ndim - tail :]
    return array.reshape(*lead, *((1, 1) if heads == 1 else (shared, heads // shared)), *rest)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    (_, _, v), _, found = _operands(current, inputs)
    out, lse = values.attention(found, v, inputs[0].dtype)
    rows = inputs[0].shape[:-1]
    whole = out.astype(inputs[0].dtype).reshape(*rows, v.shape[-1])
    return _placed(whole, current), lse.reshape(rows)


def _gradient_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    (q, k, v), _, found = _operands(current, inputs)
    shared, own = k.shape[-4], inputs[0].dtype
    lse, delta = (_grouped(a, shared, 1) for a in inputs[-3:-1])
    ct = _grouped(inputs[-1].astype(q.dtype), shared)
    made = values.attention_gradient(found, q, k, v, lse, delta, ct, current.attrs.scale, own)
    parts = [_placed(a.astype(own).reshape(i.shape), current) for a, i in zip(made, inputs[:3])]
    return (np.stack(parts, -3) + own.type(0),) if current.attrs.joined else tuple(parts)


def _placed(array: Array, current: Node) -> Array:
    return np.swapaxes(array, -2, -3) if current.attrs.beside else array


# ---- rules ---------------------------------------------------------------------------------------


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, of_sum = cotangents
    if ct is None and of_sum is None:
        return [None] * len(current.inputs)
    out, lse = outputs_of(current)
    if ct is None:
        ct = full_like(out, 0)
    added = len(current.inputs) == 4 and current.inputs[3].dtype is not dtypes.bool_
    columns = (len(ct.shape) - 1,)
    if added:  # the gradient is linear in `ct`, so what its weights lack may be a factor of that
        factor = written.lost_factor(current, lse)
        ct = ct * cast(expand_back(factor, ct.shape, columns), ct.dtype)
        of_sum = None if of_sum is None else of_sum * factor
    delta = sum_(cast(ct, lse.dtype) * cast(out, lse.dtype), columns)
    if of_sum is not None:
        delta = delta - of_sum
    parts = attention_gradient(current.inputs, lse, delta, ct, current.attrs)
    by_mask = [None] * (len(current.inputs) - 3)
    return [*parts, written.mask_gradient(current, lse, delta, ct)] if added else [*parts, *by_mask]


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """One more axis in front; a mask that is the same for all elements has length 1 there."""
    at = 3 if written.is_masked(current) else -1
    given = [
        a if has else reshape(a, (1, *a.shape)) if index == at else spread(a, batching.size)
        for index, (a, has) in enumerate(zip(inputs, batched))
    ]
    return outputs_of(node(current.op, given, current.attrs))


ATTENTION = Op("attention", "library", _infer, _value, _vjp, jvp_through(written.attention), _batch)
ATTENTION_GRADIENT = Op(
    "attention_gradient", "library", _infer_gradient, _gradient_value,
    vjp_through(written.gradient), jvp_through(written.gradient), _batch,
)  # fmt: skip
