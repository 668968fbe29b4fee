"""Where elements are: extremes, order, membership; and elements by their indices."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from ridgeline import dtypes
from ridgeline.array_api.array import (
    Array,
    SizeError,
    as_array,
    call,
    converted,
    need_array,
    together,
)
from ridgeline.array_api.types import (
    ANY,
    BOOL,
    INTEGER,
    REAL,
    KindError,
    default_for,
    is_number,
    require,
    result_type,
)
from ridgeline.record.values import read_array
from ridgeline.scalars import Array as Values
from ridgeline.tensors.dispatch import FUNCTIONS
from ridgeline.tensors.tensor import Tensor, tensor


def _extreme(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Array:
    require(name, need_array(name, x).dtype, REAL)
    if axis is not None and x.ndim == 0:
        raise SizeError(f"{name}: a 0-d array has no axis {axis}")
    return call(name, x, axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the largest element stands, the first if there are several."""
    return _extreme("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the smallest element stands, the first if there are several."""
    return _extreme("argmin", x, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Array, ...]:
    """The indices of the elements that are not zero, one array for each axis."""
    if need_array("nonzero", x).ndim == 0:
        raise SizeError("nonzero needs at least one axis")
    return tuple(as_array(part) for part in FUNCTIONS["nonzero"](x, as_tuple=True))


def searchsorted(
    x1: Tensor,
    x2: Any,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: Tensor | None = None,
) -> Array:
    """Where to insert values so that a sorted vector stays sorted."""
    if need_array("searchsorted", x1).ndim != 1:
        raise SizeError(f"searchsorted needs a vector, got shape {list(x1.shape)}")
    if side not in ("left", "right"):
        raise SizeError(f'side is "left" or "right", not {side!r}')
    ordered, values = together("searchsorted", REAL, x1, x2)
    if sorter is not None:
        require("searchsorted", sorter.dtype, INTEGER)
        ordered = take(ordered, sorter)
    return call("searchsorted", ordered, values, right=side == "right")


def where(condition: Tensor, x1: Any, x2: Any, /) -> Array:
    """`x1` where the condition holds, `x2` elsewhere."""
    require("where", need_array("where", condition).dtype, BOOL)
    if is_number(x1) and is_number(x2):
        kinds = result_type(default_for(x1), default_for(x2))
        return call("where", condition, converted(x1, kinds), converted(x2, kinds))
    return call("where", condition, *together("where", ANY, x1, x2))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Array:
    """The slices at some indices along an axis."""
    require("take", need_array("take", indices).dtype, INTEGER)
    if axis is None:
        if need_array("take", x).ndim != 1:
            raise SizeError(f"take needs an axis for an array of shape {list(x.shape)}")
        axis = 0
    flat = indices.to(dtypes.int64).reshape((indices.numel(),))
    position = axis % x.ndim
    picked = call("index_select", x, position, _counted(flat, x.shape[position]))
    if indices.ndim == 1:
        return picked
    return as_array(picked.reshape([*x.shape[:position], *indices.shape, *x.shape[position + 1 :]]))


def _counted(indices: Tensor, size: int) -> Tensor:
    """Indices of which negative ones count from the end, as non-negative ones."""
    shifted: Tensor = FUNCTIONS["where"](indices < 0, indices + size, indices)
    return shifted


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Array:
    """Elements along an axis at indices that differ from place to place."""
    require("take_along_axis", need_array("take_along_axis", indices).dtype, INTEGER)
    if indices.ndim != need_array("take_along_axis", x).ndim:
        raise SizeError("take_along_axis needs an array and indices with as many axes")
    picks = _counted(indices.to(dtypes.int64), x.shape[axis])
    return call("take_along_dim", x, picks, axis)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The values in order along an axis."""
    require("sort", need_array("sort", x).dtype, REAL)
    return as_array(FUNCTIONS["sort"](x, dim=axis, descending=descending, stable=stable)[0])


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Array:
    """The indices that put the values in order along an axis."""
    require("argsort", need_array("argsort", x).dtype, REAL)
    return as_array(FUNCTIONS["sort"](x, dim=axis, descending=descending, stable=stable)[1])


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Array:
    """For each element of `x1`, whether it is in `x2`."""
    elements, tests = together("isin", ANY, x1, x2)
    flat = tests.reshape((tests.numel(),))
    found = call("any", elements.unsqueeze(-1) == flat, -1)
    return call("logical_not", found) if invert else found


# ---- sets ----------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """Distinct values, where each is first, which one each element is, and how many there are."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Distinct values and how many there are of each."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Distinct values and which one each element is."""

    values: Array
    inverse_indices: Array


def _indices(values: Values, shape: tuple[int, ...]) -> Array:
    return as_array(tensor(values.astype(np.int64).reshape(shape)))


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct values in order (each NaN is one of its own), and how they lie in the array."""
    if not isinstance(x, Tensor):
        raise KindError(f"unique_all needs an array, not {type(x).__name__}")
    array = read_array(x.detach(), "unique_all").reshape(-1)
    _, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    indices = _indices(first, first.shape)
    values = take(x.reshape((x.numel(),)), indices)
    return UniqueAll(
        values, indices, _indices(inverse, tuple(x.shape)), _indices(counts, counts.shape)
    )


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct values and how many there are of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct values and which one each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Array:
    """The distinct values."""
    return unique_all(x).values
