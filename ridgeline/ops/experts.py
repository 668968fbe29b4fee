"""Rows on their way to experts and back, and products with the weights of the expert of each row.

    rows = to_experts(x, chosen, counts)        [tokens, choices, width] to [all choices, width]
    y = grouped_product(rows, weights, counts)  rows of expert e times weights[e], [out, width]
    x = from_experts(y, chosen, counts)         back, each row in its place

`chosen` says which expert each choice of a token is for; those of no expert have a number behind
the last. Rows lie by expert, those of one expert in the order of the tokens, those of none last.
`counts` are the rows of each expert; it may have several such lists one behind the other, of rows
that came from several ranks. Products are computed for rows of experts alone, and others are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ridgeline import dtypes
from ridgeline.communicators.current import joined_rank
from ridgeline.errors import ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.sizes import product
from ridgeline.ops.movement import concat, permute, reshape, slice_
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class ExpertsAttrs(Attrs):
    """How many experts there are."""

    experts: int


# ---- builders ------------------------------------------------------------------------------------


def expert_counts(chosen: Node, experts: int) -> Node:
    """How many choices each expert was given."""
    return node(EXPERT_COUNTS, (chosen,), ExpertsAttrs(experts))


def to_experts(x: Node, chosen: Node, counts: Node) -> Node:
    """The choices of tokens, laid by expert."""
    return node(TO_EXPERTS, (x, chosen, counts))


def from_experts(rows: Node, chosen: Node, counts: Node) -> Node:
    """Rows that lie by expert, where the tokens are that they belong to."""
    return node(FROM_EXPERTS, (rows, chosen, counts))


def grouped_product(rows: Node, weights: Node, counts: Node) -> Node:
    """Rows times the transposed weights of their experts, [experts, out, in]."""
    return node(GROUPED_PRODUCT, (rows, weights, counts))


def grouped_outer(rows: Node, columns: Node, counts: Node, experts: int) -> Node:
    """For each expert the sum over its rows of columns by rows: [experts, out, in]."""
    return node(GROUPED_OUTER, (rows, columns, counts), ExpertsAttrs(experts))


# ---- types ---------------------------------------------------------------------------------------


def _infer_counts(types: Sequence[TensorType], attrs: ExpertsAttrs) -> tuple[TensorType, ...]:
    return (TensorType((attrs.experts,), dtypes.int64, types[0].device),)


def _infer_to(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    x, chosen, _ = types
    if len(x.shape) != 3 or x.shape[:2] != chosen.shape:
        raise ShapeError(f"rows {x} do not go to experts chosen by {chosen}")
    rows = product(x.shape[:2])
    return (TensorType((rows, x.shape[2]), x.dtype, x.device),)


def _infer_from(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    rows, chosen, _ = types
    if len(rows.shape) != 2 or rows.shape[0] != product(chosen.shape):
        raise ShapeError(f"rows {rows} do not come from experts chosen by {chosen}")
    return (TensorType((*chosen.shape, rows.shape[1]), rows.dtype, rows.device),)


def _infer_product(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    rows, weights, counts = types
    if (len(rows.shape), len(weights.shape), len(counts.shape)) != (2, 3, 1):
        raise ShapeError(f"a grouped product takes no {rows}, {weights} and {counts}")
    if rows.shape[1] != weights.shape[2]:
        raise ShapeError(f"rows of {rows} do not fit weights {weights}")
    return (TensorType((rows.shape[0], weights.shape[1]), rows.dtype, rows.device),)


def _infer_outer(types: Sequence[TensorType], attrs: ExpertsAttrs) -> tuple[TensorType, ...]:
    rows, columns, _ = types
    if rows.shape[0] != columns.shape[0]:
        raise ShapeError(f"{rows} and {columns} do not have the same rows")
    return (TensorType((attrs.experts, columns.shape[1], rows.shape[1]), rows.dtype, rows.device),)


# ---- values --------------------------------------------------------------------------------------


def _counted(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    experts = current.attrs.experts
    return (np.bincount(inputs[0].reshape(-1), minlength=experts)[:experts].astype(np.int64),)


def _sent(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    x, chosen, _ = inputs
    order = np.argsort(chosen.reshape(-1), kind="stable")
    return (x.reshape(-1, x.shape[-1])[order],)


def _returned(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    rows, chosen, counts = inputs
    order = np.argsort(chosen.reshape(-1), kind="stable")
    found = np.zeros_like(rows)
    kept = int(counts.sum())
    found[order[:kept]] = rows[:kept]
    return (found.reshape(*chosen.shape, rows.shape[-1]),)


def _segments(counts: Array, experts: int) -> Iterator[tuple[int, slice]]:
    """The rows of each expert that has any, with its number."""
    at = 0
    for number, count in enumerate(counts.tolist()):
        if count:
            yield number % experts, slice(at, at + count)
        at += count


def _wide(array: Array) -> Array:
    """Sums of 16-bit products are added up in float32."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array


def _product_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    rows, weights, counts = inputs
    found = np.zeros((rows.shape[0], weights.shape[1]), rows.dtype)
    for expert, part in _segments(counts, weights.shape[0]):
        found[part] = _wide(rows[part]) @ _wide(weights[expert]).T
    _count_products(counts, weights.shape[1] * weights.shape[2])
    return (found,)


def _outer_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    rows, columns, counts = inputs
    experts = current.attrs.experts
    found = np.zeros((experts, columns.shape[1], rows.shape[1]), _wide(rows[:0]).dtype)
    for expert, part in _segments(counts, experts):
        found[expert] += _wide(columns[part]).T @ _wide(rows[part])
    _count_products(counts, columns.shape[1] * rows.shape[1])
    return (found.astype(rows.dtype),)


def _count_products(counts: Array, each: int) -> None:
    """How much there is to compute is known only now: a rank that counts its work is told."""
    rank = joined_rank()
    if rank is not None:
        rank.grouped_flops += 2 * int(counts.sum()) * each


# ---- derivatives ---------------------------------------------------------------------------------

_Parts = Sequence[Node | None]


def _to_vjp(current: Node, cotangents: _Parts) -> list[Node | None]:
    ct, (_, chosen, counts) = cotangents[0], current.inputs
    return [None if ct is None else from_experts(ct, chosen, counts), None, None]


def _from_vjp(current: Node, cotangents: _Parts) -> list[Node | None]:
    ct, (_, chosen, counts) = cotangents[0], current.inputs
    return [None if ct is None else to_experts(ct, chosen, counts), None, None]


def _again(current: Node, tangents: _Parts) -> list[Node | None]:
    t, rest = tangents[0], current.inputs[1:]
    return [None if t is None else node(current.op, (t, *rest), current.attrs)]


def _no_derivative(current: Node, parts: _Parts) -> list[Node | None]:
    return [None] * len(current.inputs)


def _no_tangent(current: Node, parts: _Parts) -> list[Node | None]:
    return [None]


def _transposed(weights: Node) -> Node:
    return permute(weights, (0, 2, 1))


def _product_vjp(current: Node, cotangents: _Parts) -> list[Node | None]:
    ct, (rows, weights, counts) = cotangents[0], current.inputs
    if ct is None:
        return [None] * 3
    experts = int(weights.shape[0])
    by_rows = grouped_product(ct, _transposed(weights), counts)
    return [by_rows, grouped_outer(rows, ct, counts, experts), None]


def _outer_vjp(current: Node, cotangents: _Parts) -> list[Node | None]:
    ct, (rows, columns, counts) = cotangents[0], current.inputs
    if ct is None:
        return [None] * 3
    by_columns = grouped_product(rows, ct, counts)
    return [grouped_product(columns, _transposed(ct), counts), by_columns, None]


def _bilinear_jvp(current: Node, tangents: _Parts) -> list[Node | None]:
    (a, b, counts), (by_a, by_b) = current.inputs, tangents[:2]
    parts = []
    if by_a is not None:
        parts.append(node(current.op, (by_a, b, counts), current.attrs))
    if by_b is not None:
        parts.append(node(current.op, (a, by_b, counts), current.attrs))
    return [parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else None]


# ---- batching ------------------------------------------------------------------------------------


def _one_by_one(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """Each element of the new axis by itself: how many rows an expert has differs among them."""
    size = batching.size
    if not isinstance(size, int):
        raise ShapeError(f"{current.op.name} needs to know how many elements vmap goes over")
    made = []
    for number in range(size):
        operands = [_element(a, number) if has else a for a, has in zip(inputs, batched)]
        part = node(current.op, operands, current.attrs)
        made.append(reshape(part, (1, *part.shape)))
    return [concat(made, 0)]


def _element(a: Node, number: int) -> Node:
    rest = a.shape[1:]
    part = slice_(a, (number, *[0] * len(rest)), (1, *rest), (1,) * len(a.shape))
    return reshape(part, rest)


# ---- the rows ------------------------------------------------------------------------------------

EXPERT_COUNTS = Op(
    "expert_counts", "library", _infer_counts, _counted, _no_derivative, _no_tangent, _one_by_one
)
TO_EXPERTS = Op(
    "to_experts", "library", _infer_to, _sent, _to_vjp, _again, _one_by_one, linear=((0,),)
)
FROM_EXPERTS = Op(
    "from_experts", "library", _infer_from, _returned, _from_vjp, _again, _one_by_one,
    linear=((0,),),
)  # fmt: skip
GROUPED_PRODUCT = Op(
    "grouped_product", "library", _infer_product, _product_value, _product_vjp, _bilinear_jvp,
    _one_by_one, linear=((0,), (1,)),
)  # fmt: skip
GROUPED_OUTER = Op(
    "grouped_outer", "library", _infer_outer, _outer_value, _outer_vjp, _bilinear_jvp,
    _one_by_one, linear=((0,), (1,)),
)  # fmt: skip
