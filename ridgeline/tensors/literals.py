"""Tensors for the lists of whole numbers and the numbers that are written in subscripts.

`x[:, [-1]]` and `x[mask] = 0.5` need them as memory, in every step of a loop again. A literal that
comes for the first time since a flush has the tensor that it had after the flush before; one that
comes a second time has another, or what is recorded would depend on whether two happen to be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ridgeline.devices import is_mesh
from ridgeline.functions.operands import defaults
from ridgeline.record.modes import modes
from ridgeline.record.numbers import lifted_since_flush
from ridgeline.tensors.tensor import Tensor, tensor

MOST_KEPT = 1 << 10
_kept: dict[Any, Tensor] = {}


def indices(values: list[int]) -> Tensor:
    """Whole numbers on the default device."""
    device = defaults.device
    return _literal((*values, device), device, lambda: tensor(values))


def number(value: float, like: Tensor) -> Tensor:
    """A number as a tensor of the type of another, where that is."""
    device = like._memory.device
    key = value.hex(), like.dtype.name, device
    return _literal(key, device, lambda: tensor(value, dtype=like.dtype, device=like.device))


def _literal(literal: Any, device: str, make: Callable[[], Tensor]) -> Tensor:
    """The tensor of a literal on a device."""
    if modes.rank is not None or is_mesh(device):  # ranks have memory of their own
        return make()
    used = lifted_since_flush.literals
    times = used[literal] = used.get(literal, 0) + 1
    key = literal, times
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        found = _kept[key] = make()
    return found
