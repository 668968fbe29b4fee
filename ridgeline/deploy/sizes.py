"""Sizes in a manifest: numbers, names, and expressions over these in postfix form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ridgeline.errors import BadValueError


class SizeError(BadValueError):
    """Shapes that a program is not for."""


_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}


def evaluate(length: Any, sizes: Mapping[str, int]) -> int:
    """The length of an axis at some sizes."""
    if isinstance(length, int):
        return length
    if isinstance(length, str):
        return sizes[length]
    stack: list[int] = []
    for word in length:
        if isinstance(word, str) and word in _BINARY:
            right, left = stack.pop(), stack.pop()
            stack.append(_BINARY[word](left, right))
        else:
            stack.append(word if isinstance(word, int) else sizes[word])
    return stack[0]


def solve(
    names: Sequence[str],
    expected: Sequence[tuple[str, tuple[Any, ...]]],
    shapes: Sequence[tuple[int, ...]],
) -> dict[str, int]:
    """The sizes for which inputs have these shapes, in order of names."""
    found: dict[str, int] = {}
    for (name, shape), given in zip(expected, shapes):
        if len(shape) != len(given):
            raise SizeError(f"{name} has {len(given)} axes, not {len(shape)}")
        for axis, (length, here) in enumerate(zip(shape, given)):
            wanted = found.setdefault(length, here) if isinstance(length, str) else length
            if wanted != here:
                raise SizeError(f"axis {axis} of {name} is {here} long, not {wanted}")
    return {name: found[name] for name in names}
