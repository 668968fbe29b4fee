"""Subscripts: `x[1:3]`, `x[idx]`, `x[mask]`, `x[0, :, idx] = v`, by torch's rules.

One of ints, slices, None and ... alone is a view. With tensors in it, a subscript is split in two:
that basic part, and index tensors for the axes of its view. Reading gathers from the view,
assigning writes through it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.devices import CPU, device
from ridgeline.errors import AxisKindError, IndexKindError, RidgelineError
from ridgeline.functions.indexing import fill_ellipsis, getitem, is_basic
from ridgeline.record.modes import modes
from ridgeline.record.recorder import taped
from ridgeline.record.values import read
from ridgeline.tensors import literals
from ridgeline.tensors.arguments import annotated
from ridgeline.tensors.tensor import Tensor, as_view, tensor

Picks = list[Tensor | None]


def get(self: Tensor, index: Any) -> Tensor:
    """`self[index]`."""
    if not is_basic(index):
        return _pick(self, index)
    source = read(self)
    try:
        picked = getitem(source, index)
    except RidgelineError as error:
        raise annotated(error, "indexing", (self,)) from None
    return as_view(self, source, picked)


def set(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`."""
    if not is_basic(index):
        _assign(self, index, value)
        return
    view = self[index]
    if isinstance(value, Tensor) and value.dim() > view.dim():
        value = value.squeeze(tuple(range(value.dim() - view.dim())))
    view.copy_(value)


def _pick(source: Tensor, index: Any) -> Tensor:
    """A subscript with tensors in it."""
    basic, picks = _parsed(source, index)
    view = source[basic]
    found: Tensor = view._pick(picks) if any(p is not None for p in picks) else view
    return found


def _assign(target: Tensor, index: Any, value: Any) -> None:
    """A value for a subscript with tensors in it."""
    basic, picks = _parsed(target, index)
    view = target[basic]
    if not isinstance(value, Tensor):
        value = tensor(value, dtype=target.dtype, device=target.device)
    listed = [p for p in picks if p is not None]
    if not listed:
        view.copy_(value)
    elif len(listed) == 1 and _is_mask(listed[0]) and _covers(view, picks, value):
        mask = listed[0]
        after = view.dim() - picks.index(mask) - mask.dim() if mask.dim() else 0
        spread = mask.bool().reshape(*mask.shape, *(1,) * after)
        view._masked_write_(spread, value)
    else:
        view.index_put_(picks, value.to(target.dtype))


def _covers(view: Tensor, picks: Picks, value: Tensor) -> bool:
    """True where a value has no axis along the elements that a mask picks."""
    index = next(axis for axis, p in enumerate(picks) if p is not None)
    mask = picks[index]
    assert mask is not None
    fits = tuple(mask.shape) == tuple(view.shape[index : index + mask.dim()])
    return fits and value.dim() <= view.dim() - index - mask.dim()


def _is_mask(part: Tensor) -> bool:
    return part.dtype in (dtypes.bool_, dtypes.uint8)


def _parsed(source: Tensor, index: Any) -> tuple[tuple[Any, ...], Picks]:
    """The basic part of a subscript, and an index or None for each axis that it leaves."""
    given = index if isinstance(index, tuple) else (index,)
    parts = [_plain(part, source.device) for part in given]
    parts = fill_ellipsis(parts, sum(map(_consumed, parts)), source.dim())
    basic: list[Any] = []
    picks: Picks = []
    for part in parts:
        if isinstance(part, Tensor):
            axes = _consumed(part)
            if axes:
                basic += [slice(None)] * axes
                picks.append(part)
            else:  # a mask without axes: a new axis, kept or emptied
                basic.append(None)
                picks.append(part.reshape(1))
        else:
            basic.append(part)
            if part is None or isinstance(part, slice):
                picks.append(None)
    return tuple(basic), picks


def _consumed(part: Any) -> int:
    """How many axes a part of a subscript uses up."""
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, Tensor) and _is_mask(part):
        return part.dim()
    return 1


def _plain(part: Any, target: device) -> Any:
    """A part of a subscript as an int, slice, None, ... or tensor; one of the host may move."""
    if isinstance(part, bool | np.bool_):
        return tensor(bool(part), device=target)
    if isinstance(part, list | tuple | range | np.ndarray):
        values = list(part) if isinstance(part, range) else part
        empty = not isinstance(values, np.ndarray) and len(values) == 0
        part = tensor(values, dtype=dtypes.int64 if empty else None, device=target)
    if not isinstance(part, Tensor):
        if part is None or part is Ellipsis or isinstance(part, slice):
            return part
        try:
            return operator.index(part)
        except TypeError:
            raise AxisKindError(
                f"{part!r:.40} of type {type(part).__name__} is no index",
                help="use ints, slices, None, ..., or tensors, arrays and lists of ints or bools",
            ) from None
    if part.dtype.is_differentiable:
        raise IndexKindError(
            f"a tensor of {part.dtype.name} is no index", help="convert with .long() or .bool()"
        )
    # a number, as in torch; inside jit its value is not known, and a gather does as well
    if part.dim() == 0 and not _is_mask(part) and modes.capture is None:
        return int(part)
    return part.to(target) if part.device == CPU else part


# ---- operands: values that decide nothing but results are memory, and no part of a call ---------


def looked_up(self: Tensor, index: Any) -> tuple[Tensor, Any]:
    """The operands of `self[index]`: the places of a mask are looked up by a call of their own.

    What such a call gives is memory like any other to those that follow it, so a tape goes on.
    """
    kind = type(index)
    if kind is int or kind is slice or modes.capture is not None:
        return self, index
    index = _in_memory(index)
    kind = type(index)
    if kind is not Tensor and kind is not tuple:
        return self, index
    parts = index if kind is tuple else (index,)
    masks = any(isinstance(p, Tensor) and p.dtype is dtypes.bool_ and p.dim() for p in parts)
    return self, _with_places(self, parts, index) if masks else index


def assigned(self: Tensor, index: Any, value: Any) -> tuple[Tensor, Any, Any]:
    """The operands of `self[index] = value`: places are looked up where it has a row for each."""
    if modes.capture is not None:
        return self, index, value
    if type(value) is float and self._memory.dtype.kind == "float":
        value = literals.number(value, self)
    index = _in_memory(index)
    mask = index if type(index) is Tensor and index.dtype is dtypes.bool_ else None
    if mask is not None and mask.dim() and isinstance(value, Tensor):
        rows = value.dim() > self.dim() - mask.dim()
        index = _with_places(self, (mask,), mask) if rows else mask
    return self, index, value


def _in_memory(index: Any) -> Any:
    """An index with tensors in the place of arrays and of lists of whole numbers."""
    if type(index) is tuple:
        parts = [_in_memory(part) for part in index]
        return index if all(map(operator.is_, parts, index)) else tuple(parts)
    if type(index) is np.ndarray and index.ndim and index.dtype.kind in "iu":
        return tensor(index)
    if type(index) is list and index and all(type(part) is int for part in index):
        return literals.indices(index)
    return index


def _with_places(source: Tensor, parts: Sequence[Any], index: Any) -> Any:
    """An index in which masks that fit are the places where they hold; others are left to fail."""
    found: list[Any] = []
    left = list(source.shape)
    for part in fill_ellipsis(list(parts), sum(map(_consumed, parts)), source.dim()):
        used = _consumed(part)
        covered, left = tuple(left[:used]), left[used:]
        if isinstance(part, Tensor) and part.dtype is dtypes.bool_ and part.dim():
            if tuple(part.shape) != covered:
                return index
            found += part.nonzero(as_tuple=True)
        else:
            found.append(part)
    return tuple(found)


METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": taped(get, looked_up),
    "__setitem__": taped(set, assigned),
}
