"""Array parameters in the GPU's memory: arguments that share memory are one piece of it.

A caller may pass one array twice, or two views that overlap: threads that meet there race, by
whichever name they reach it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ridgeline.simt.ir import ThreadArray
from ridgeline.simt.launch import LaunchError, array_shape
from ridgeline.simt.simulator.lanes import AnyArray
from ridgeline.simt.simulator.shadow import Shadow
from ridgeline.simt.simulator.storage import HeldArray


@dataclass
class _Piece:
    """Arrays whose bytes overlap, from the first to past the last."""

    arrays: list[ThreadArray]
    low: int
    high: int


def place_arrays(
    arrays: Iterable[ThreadArray], given: Mapping[str, AnyArray], sizes: Mapping[str, int],
    shadow_of: Callable[[list[ThreadArray], int], Shadow | None],
) -> dict[str, HeldArray]:  # fmt: skip
    """Copies of the arguments, and fresh `out` arrays; `shadow_of` tells which are watched."""
    found: dict[str, HeldArray] = {}
    address = 0
    for piece in _pieces(list(arrays), given, sizes):
        held = _one_piece(piece, given, sizes, shadow_of)
        for part in held.values():
            part.address = address
        found |= held
        address += -(-next(iter(held.values())).data.nbytes // 512) * 512
    return found


def _pieces(
    arrays: list[ThreadArray], given: Mapping[str, AnyArray], sizes: Mapping[str, int]
) -> list[_Piece]:
    """Arrays by the memory they lie in; what was not given, or lies in strides, lies alone."""
    found: list[_Piece] = []
    for array in arrays:
        value = given.get(array.name)
        if value is None or not value.flags.c_contiguous or not value.size:
            found.append(_Piece([array], 0, 0))
            continue
        low = value.__array_interface__["data"][0]
        piece = _Piece([array], low, low + value.nbytes)
        for other in [p for p in found if p.low < piece.high and piece.low < p.high]:
            found.remove(other)
            piece = _Piece([*other.arrays, *piece.arrays],
                           min(low, other.low, piece.low), max(other.high, piece.high))  # fmt: skip
        found.append(piece)
    return found


def _one_piece(
    piece: _Piece, given: Mapping[str, AnyArray], sizes: Mapping[str, int],
    shadow_of: Callable[[list[ThreadArray], int], Shadow | None],
) -> dict[str, HeldArray]:  # fmt: skip
    first = piece.arrays[0]
    width = first.dtype.itemsize
    if len(piece.arrays) == 1:
        shape = array_shape(first, sizes)
        size = math.prod(shape)
        written, data = None, np.zeros(size, first.dtype.numpy)
        if first.access == "out":
            written = np.zeros(size, np.uint8)
        else:
            data[:] = np.asarray(given[first.name], first.dtype.numpy).reshape(-1)
        shadow = shadow_of(piece.arrays, size)
        return {first.name: HeldArray(first, shape, data, None, written, shadow)}
    return _shared_piece(piece, given, sizes, shadow_of((piece.arrays), _length(piece, width)))


def _length(piece: _Piece, width: int) -> int:
    return (piece.high - piece.low) // width


def _shared_piece(
    piece: _Piece, given: Mapping[str, AnyArray], sizes: Mapping[str, int], shadow: Shadow | None
) -> dict[str, HeldArray]:
    """One buffer of elements that several arrays look into, each from its own first one."""
    first = piece.arrays[0]
    width = first.dtype.itemsize
    memory = np.zeros(piece.high - piece.low, np.uint8)
    every_out = all(array.access == "out" for array in piece.arrays)
    written = np.zeros(_length(piece, width), np.uint8) if every_out else None
    found = {}
    for array in piece.arrays:
        value = given[array.name]
        offset = value.__array_interface__["data"][0] - piece.low
        if array.dtype.itemsize != width or offset % width:
            raise LaunchError(
                f"{first.name} and {array.name} share memory, with elements that do not coincide",
                help="pass a copy of one of them",
            )
        if array.access != "out":
            memory[offset : offset + value.nbytes] = value.reshape(-1).view(np.uint8)
        held = HeldArray(array, array_shape(array, sizes), memory.view(array.dtype.numpy), None,
                         written, shadow, base=offset // width, memory=first.name)  # fmt: skip
        found[array.name] = held
    return found
