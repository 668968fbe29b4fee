"""Interval arithmetic: bounds of a result from bounds of its operands.

Bounds are inclusive. An end that nobody knows is infinite; known ends are exact integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, isinf
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
UNKNOWN: Interval = (-inf, inf)


def union(*parts: Interval) -> Interval:
    """The least interval around some others."""
    return min(low for low, _ in parts), max(high for _, high in parts)


def add(a: Interval, b: Interval) -> Interval:
    """a + b."""
    return a[0] + b[0], a[1] + b[1]


def negate(a: Interval) -> Interval:
    """-a."""
    return -a[1], -a[0]


def multiply(a: Interval, b: Interval) -> Interval:
    """a * b."""
    # what is unknown is finite all the same, so that 0 times it is 0
    return _hull(x * y if x and y else 0 for x in a for y in b)


def absolute(a: Interval) -> Interval:
    """|a|."""
    return max(a[0], -a[1], 0), max(-a[0], a[1])


def minimum(a: Interval, b: Interval) -> Interval:
    """The smaller one."""
    return min(a[0], b[0]), min(a[1], b[1])


def maximum(a: Interval, b: Interval) -> Interval:
    """The larger one."""
    return max(a[0], b[0]), max(a[1], b[1])


def floor_divide(a: Interval, b: Interval) -> Interval:
    """a // b; 0 where b is 0."""
    parts: list[Interval] = [(0, 0)] if b[0] <= 0 <= b[1] else []
    if b[1] > 0:
        parts.append(_hull(_quotient(x, y) for x in a for y in (max(b[0], 1), b[1])))
    if b[0] < 0:
        parts.append(_hull(_quotient(-x, y) for x in a for y in (max(-b[1], 1), -b[0])))
    return union(*parts)


def modulo(a: Interval, b: Interval) -> Interval:
    """a % b, with the sign of b; 0 where b is 0."""
    if b[0] > 0 and a[0] >= 0:
        return 0, min(a[1], b[1] - 1)
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def bit_and(a: Interval, b: Interval) -> Interval:
    """a & b: no more than an operand that is not negative."""
    masks = [high for low, high in (a, b) if low >= 0]
    return (0, min(masks)) if masks else UNKNOWN


def _hull(corners: Iterable[float]) -> Interval:
    found = list(corners)
    return min(found), max(found)


def _quotient(x: float, y: float) -> float:
    """x // y for y > 0, in the limit where either is infinite."""
    if isinf(x):
        return x
    return (0 if x >= 0 else -1) if isinf(y) else x // y


# by the names that scalar operations have (`scalars.py`)
RULES: dict[str, Callable[..., Interval]] = {
    "add": add, "sub": lambda a, b: add(a, negate(b)), "neg": negate, "mul": multiply,
    "abs": absolute, "min": minimum, "max": maximum, "floordiv": floor_divide, "mod": modulo,
    "and": bit_and, "sign": lambda _: (-1, 1), "select": lambda _, a, b: union(a, b),
}  # fmt: skip
