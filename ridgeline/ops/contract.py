"""Contraction: the one op behind matmul, einsum and convolution, and its own gradients.

out[o…] = sum over the other axes of left[…] * right[…], where each index of an operand is an
affine map of the iteration axes: `x[n, c, 2*h + r, w + s] * weight[k, c, r, s]` is a strided
convolution. The family is closed under differentiation: solving an operand's index map for the
axis of the output gradient gives a contraction again, over a padded gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import scalars
from ridgeline.dtypes import DType
from ridgeline.errors import DTypeError, ShapeError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import Attrs, Node, Op, TensorType, hashed_once, leaf, node
from ridgeline.graph.sizes import Size, remembered
from ridgeline.index.polynomial import Affine
from ridgeline.ops.complex import conj
from ridgeline.ops.elementwise import add
from ridgeline.ops.movement import pad, slice_
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


class AxisMap(Affine[int]):
    """One index of an operand: an affine map of the iteration axes, sorted by axis."""

    __slots__ = ()

    def __str__(self) -> str:
        parts = [f"a{a}" if c == 1 else f"{c}*a{a}" for a, c in self.terms]
        return " + ".join([*parts, *([str(self.offset)] if self.offset or not parts else [])])


@hashed_once
@dataclass(frozen=True, slots=True)
class ContractAttrs(Attrs):
    """Sizes of the iteration axes, which of them the output has, and the operands' index maps."""

    extents: tuple[Size, ...]
    output: tuple[int, ...]
    left: tuple[AxisMap, ...]
    right: tuple[AxisMap, ...]


def axis(number: int) -> AxisMap:
    """The index map that is one axis."""
    return AxisMap(((number, 1),))


def contract(left: Node, right: Node, attrs: ContractAttrs) -> Node:
    """A contraction; every axis must occur in an operand, and every output axis in its place."""
    return node(CONTRACT, (left, right), attrs)


def matmul(a: Node, b: Node) -> Node:
    """Batched matrix product of operands with equal batch axes: [..., m, k] @ [..., k, n]."""
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"shapes {list(a.shape)} and {list(b.shape)} do not multiply")
    batch = len(a.shape) - 2
    m, n, k = batch, batch + 1, batch + 2
    axes = tuple(range(batch))
    extents = (*a.shape[:batch], a.shape[-2], b.shape[-1], a.shape[-1])
    left = tuple(map(axis, (*axes, m, k)))
    right = tuple(map(axis, (*axes, k, n)))
    return contract(a, b, ContractAttrs(extents, (*axes, m, n), left, right))


def _infer(types: Sequence[TensorType], attrs: ContractAttrs) -> tuple[TensorType, ...]:
    return _checked(types[0], types[1], attrs)


@lru_cache(maxsize=512)
def _checked(left: TensorType, right: TensorType, attrs: ContractAttrs) -> tuple[TensorType, ...]:
    if left.dtype is not right.dtype:
        raise DTypeError(f"cannot multiply {left.dtype.name} by {right.dtype.name}")
    for operand, maps in ((left, attrs.left), (right, attrs.right)):
        if len(operand.shape) != len(maps):
            raise ShapeError(f"expected {len(maps)} axes, got shape {list(operand.shape)}")
        for size, index_map in zip(operand.shape, maps):
            if 0 in attrs.extents:  # no index is ever formed
                break
            reached = index_range(index_map, attrs.extents)
            if isinstance(size, int) and reached and not 0 <= reached[0] <= reached[1] < size:
                raise ShapeError(
                    f"shapes {list(left.shape)} and {list(right.shape)} do not fit together: "
                    f"an index runs over {reached[0]}…{reached[1]} along an axis of size {size}"
                )
    shape = tuple(attrs.extents[a] for a in attrs.output)
    return (TensorType(shape, left.dtype, left.device),)


def index_range(index_map: AxisMap, extents: Sequence[Size]) -> tuple[int, int] | None:
    """The least and greatest index a map reaches; None where sizes are symbolic."""
    spans = [(0, max(extent - 1, 0) if isinstance(extent, int) else inf) for extent in extents]
    low, high = index_map.interval(spans.__getitem__)
    return (int(low), int(high)) if isfinite(high - low) else None


def _window(
    array: Array, maps: Sequence[AxisMap], extents: Sequence[int]
) -> tuple[Array, list[int]]:
    """A strided view of an operand with one axis per iteration axis that it uses."""
    strides: dict[int, int] = {}
    start = 0
    for index_map, stride in zip(maps, array.strides):
        start += index_map.offset * stride
        for number, coefficient in index_map.terms:
            strides[number] = strides.get(number, 0) + coefficient * stride
    axes = sorted(strides)
    shape = [extents[a] for a in axes]
    if 0 in shape or 0 in array.shape:
        return np.zeros(shape, array.dtype), axes
    base = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array)
    flat = base.reshape(-1)[start // array.itemsize :]
    view = np.lib.stride_tricks.as_strided(flat, shape, [strides[a] for a in axes], writeable=False)
    return view, axes


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    narrow = current.dtype.kind == "float" and current.dtype.itemsize < 4
    operands = [array.astype(np.float32) if narrow else array for array in inputs]
    return (scalars.cast(summed(current.attrs, operands), current.dtype),)


def summed(attrs: ContractAttrs, inputs: Sequence[Array]) -> Array:
    """The contraction of two arrays in their own type; a sum starts from 0, so it is never -0."""
    operands: list[Any] = []
    for array, maps in zip(inputs, (attrs.left, attrs.right)):
        view, axes = _window(np.ascontiguousarray(array), maps, attrs.extents)  # type: ignore[arg-type]
        operands += [view, axes]
    with float_errors_ignored():
        total = np.asarray(np.einsum(*operands, list(attrs.output), optimize=True))
    return np.asarray(total + total.dtype.type(0))


def _vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct = cotangents[0]
    if ct is None:
        return [None, None]
    (left, right), attrs = current.inputs, current.attrs
    return [
        operand_gradient(attrs, 0, left.shape, conj(right), ct),
        operand_gradient(attrs, 1, right.shape, conj(left), ct),
    ]


def _jvp(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    (left, right), (dleft, dright) = current.inputs, tangents
    parts = []
    if dleft is not None:
        parts.append(contract(dleft, right, current.attrs))
    if dright is not None:
        parts.append(contract(left, dright, current.attrs))
    return [add(*parts) if len(parts) == 2 else parts[0] if parts else None]


def operand_gradient(
    attrs: ContractAttrs, which: int, shape: tuple[Size, ...], other: Node, ct: Node
) -> Node:
    """The gradient by one operand, as a contraction of the output gradient with the other."""
    views, solved = _solved(attrs, which, shape, ct.types[0])
    for op, settings in views:
        ct = node(op, (ct,), settings)
    return contract(ct, other, solved)


@remembered
def _solved(
    attrs: ContractAttrs, which: int, shape: tuple[Size, ...], kind: TensorType
) -> tuple[tuple[tuple[Op, Any], ...], ContractAttrs]:
    """What is done to the output gradient first, and the contraction that it then enters."""
    own, other = (attrs.left, attrs.right) if which == 0 else (attrs.right, attrs.left)
    start = ct = leaf(kind)
    extents = list(attrs.extents)
    ct_maps = [axis(a) for a in attrs.output]
    output: list[int] = []
    for size, index_map in zip(shape, own):
        plain = index_map.plain
        if plain is not None and extents[plain] == size and plain not in output:
            output.append(plain)
            continue
        extents.append(size)
        output.append(len(extents) - 1)
        pivot = _pivot(index_map, attrs, own, other)
        ct, ct_maps[pivot] = _solve(ct, pivot, index_map, attrs, len(extents) - 1, size)
    remaining = _renumber(output, ct_maps, other)
    new = {old: i for i, old in enumerate(remaining)}
    solved = ContractAttrs(
        tuple(extents[a] for a in remaining),
        tuple(new[a] for a in output),
        tuple(_renamed(m, new) for m in ct_maps),
        tuple(_renamed(m, new) for m in other),
    )
    views = []
    while ct is not start:
        views.append((ct.op, ct.attrs))
        (ct,) = ct.inputs
    return tuple(reversed(views)), solved


def _pivot(
    index_map: AxisMap, attrs: ContractAttrs, own: Sequence[AxisMap], other: Sequence[AxisMap]
) -> int:
    """The place in the output of an axis that only this index of this operand uses."""
    for number, _ in index_map.terms:
        uses = sum(number == t for m in (*own, *other) for t, _ in m.terms)
        if number in attrs.output and uses == 1:
            return attrs.output.index(number)
    raise AssertionError("a window index has an output axis of its own by construction")


def _solve(
    ct: Node, axis: int, index_map: AxisMap, attrs: ContractAttrs, fresh: int, size: Size
) -> tuple[Node, AxisMap]:
    """Pad the output gradient along `place` so that an operand's index addresses it.

    q = step*o + rest gives position q - rest in the gradient spread out by `step`.
    """
    pivot = attrs.output[axis]
    step = dict(index_map.terms)[pivot]
    rank, length, size = len(ct.shape), int(ct.shape[axis]), int(size)
    offset = index_map.offset
    if step < 0:  # turn the gradient round, so that positions grow with the index
        starts = tuple(length - 1 if a == axis else 0 for a in range(rank))
        steps = tuple(-1 if a == axis else 1 for a in range(rank))
        ct = slice_(ct, starts, ct.shape, steps)
        offset += step * (length - 1)
        step = -step
    rest = [(a, c) for a, c in index_map.terms if a != pivot]
    position = AxisMap(tuple(sorted([(fresh, 1), *((a, -c) for a, c in rest)])), -offset)
    reached = index_range(position, (*attrs.extents, *[size] * (fresh + 1 - len(attrs.extents))))
    assert reached is not None
    low, high = reached
    before, after = max(0, -low), max(0, high - step * (length - 1))
    at = [int(a == axis) for a in range(rank)]
    padded = pad(
        ct,
        tuple(before * f for f in at),
        tuple(after * f for f in at),
        tuple((step - 1) * f for f in at),
    )
    return padded, AxisMap(position.terms, position.offset + before)


def _renumber(output: Sequence[int], *maps: Sequence[AxisMap]) -> list[int]:
    used = set(output)
    for group in maps:
        for index_map in group:
            used.update(number for number, _ in index_map.terms)
    return sorted(used)


def _renamed(index_map: AxisMap, new: dict[int, int]) -> AxisMap:
    terms = tuple(sorted((new[number], c) for number, c in index_map.terms))
    return AxisMap(terms, index_map.offset)


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """A new first axis of the iteration, which the operands that have it share."""
    attrs: ContractAttrs = current.attrs
    later = {a: a + 1 for a in range(len(attrs.extents))}
    left, right = (
        (*([axis(0)] if has else []), *(_renamed(m, later) for m in maps))
        for has, maps in zip(batched, (attrs.left, attrs.right))
    )
    extents = (batching.size, *attrs.extents)
    output = (0, *(a + 1 for a in attrs.output))
    return [contract(inputs[0], inputs[1], ContractAttrs(extents, output, left, right))]


CONTRACT = Op("contract", "contract", _infer, _value, _vjp, _jvp, _batch, linear=((0,), (1,)))


# ---- a contraction as a library computes it: summed wide, plus a vector, rounded once ------------
# No program is written in this op. Where a device's library computes a contraction, with what is
# added to every row of it and the conversions around it, a pass puts this op in their place
# (`graph/passes/libraries/product_calls.py`).


@dataclass(frozen=True, slots=True)
class ProductAttrs(Attrs):
    """The contraction, and the element type to which its sums are rounded."""

    contraction: ContractAttrs
    dtype: DType


def product(
    left: Node, right: Node, contraction: ContractAttrs, dtype: DType, bias: Node | None = None
) -> Node:
    """The contraction of two operands of one type, plus a vector along its last axis if given."""
    operands = (left, right) if bias is None else (left, right, bias)
    return node(PRODUCT, operands, ProductAttrs(contraction, dtype))


def _infer_product(types: Sequence[TensorType], attrs: ProductAttrs) -> tuple[TensorType, ...]:
    left, right, *bias = types
    (summed_up,) = CONTRACT.infer((left, right), attrs.contraction)
    made = TensorType(summed_up.shape, attrs.dtype, summed_up.device)
    wanted = TensorType(made.shape[-1:], made.dtype, made.device)
    assert all(vector == wanted for vector in bias), "a bias for the last axis"
    return (made,)


def _product_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    wide = np.result_type(np.float32, *(a.dtype for a in inputs if a.dtype.itemsize > 2))
    left, right, *bias = (array.astype(wide) for array in inputs)
    total = summed(current.attrs.contraction, (left, right))
    return (scalars.cast(total + bias[0] if bias else total, current.dtype),)


PRODUCT = Op("product", "library", _infer_product, _product_value)
PRODUCTS = (CONTRACT, PRODUCT)
