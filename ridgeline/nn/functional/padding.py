"""Padding in all modes: with a constant, mirrored, repeated or from the other end."""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.dispatch import FUNCTIONS
from ridgeline.errors import RidgelineError, ShapeError
from ridgeline.public import cat
from ridgeline.tensor import Tensor


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Elements put around an input; pairs (before, after) from the last axis backwards."""
    if mode == "constant":
        result: Tensor = FUNCTIONS["pad"](input, tuple(pad), mode, value)
        return result
    if mode not in _SIDES:
        raise RidgelineError(
            f"pad has no mode {mode!r}", help=f"modes: constant, {', '.join(_SIDES)}"
        )
    if len(pad) % 2 or len(pad) // 2 > len(input.shape) - 1:
        raise ShapeError(
            f"pad={tuple(pad)} does not fit shape {list(input.shape)} in mode {mode!r}"
        )
    for place in range(len(pad) // 2):
        input = _grown(input, -1 - place, pad[2 * place], pad[2 * place + 1], mode)
    return input


def _grown(input: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """One axis padded; negative amounts take elements away first."""
    size = int(input.shape[axis])
    start, end = max(-before, 0), size - max(-after, 0)
    if (start, end) != (0, size):
        input = input.narrow(axis, start, end - start)
    before, after = max(before, 0), max(after, 0)
    size = end - start
    limit = {"reflect": size - 1, "circular": size}.get(mode, max(before, after))
    if max(before, after) > limit or size < 1:
        raise ShapeError(f"cannot pad an axis of {size} by ({before}, {after}) in mode {mode!r}")
    first, last = _SIDES[mode](input, axis, size, before, after)
    parts = [part for part in (first, input, last) if part is not None]
    return cat(parts, axis) if len(parts) > 1 else input


def _reflected(
    input: Tensor, axis: int, size: int, before: int, after: int
) -> tuple[Tensor | None, Tensor | None]:
    first = input.narrow(axis, 1, before).flip(axis) if before else None
    last = input.narrow(axis, size - 1 - after, after).flip(axis) if after else None
    return first, last


def _repeated(
    input: Tensor, axis: int, size: int, before: int, after: int
) -> tuple[Tensor | None, Tensor | None]:
    def edge(place: int, count: int) -> Tensor | None:
        shape = list(input.shape)
        shape[axis] = count
        return input.narrow(axis, place, 1).expand(tuple(shape)) if count else None

    return edge(0, before), edge(size - 1, after)


def _wrapped(
    input: Tensor, axis: int, size: int, before: int, after: int
) -> tuple[Tensor | None, Tensor | None]:
    first = input.narrow(axis, size - before, before) if before else None
    return first, input.narrow(axis, 0, after) if after else None


_SIDES = {"reflect": _reflected, "replicate": _repeated, "circular": _wrapped}
