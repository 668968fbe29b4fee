"""Interval arithmetic on integer operations: bounds of a result from bounds of its operands."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.loops.ir import Op

Interval = tuple[int | None, int | None]
_UNKNOWN: Interval = (None, None)
_INT64 = np.iinfo(np.int64)


def fits(interval: Interval) -> bool:
    """True when both ends are known and within int64."""
    low, high = interval
    return low is not None and high is not None and low >= _INT64.min and high <= _INT64.max


def of_type(dtype: DType) -> Interval:
    """What the element type alone says; int64 says nothing, since it may wrap around."""
    if dtype is dtypes.bool_:
        return 0, 1
    if dtype.is_integer and dtype is not dtypes.int64:
        limits = np.iinfo(dtype.numpy)
        return int(limits.min), int(limits.max)
    return _UNKNOWN


def of_op(op: Op, operands: list[Interval]) -> Interval:
    """Bounds of an int64 operation."""
    if op.name == "cast":
        return operands[0] if fits(operands[0]) else _UNKNOWN
    if op.name == "select":
        return _union(operands[1], operands[2])
    if op.name == "sign":
        return -1, 1
    rule = _RULES.get(op.name)
    return rule(*operands) if rule is not None else _UNKNOWN


def _union(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def _known(*values: int | None) -> list[int]:
    return [value for value in values if value is not None]


def _minimum(a: Interval, b: Interval) -> Interval:
    return _union(a, b)[0], min(_known(a[1], b[1]), default=None)


def _maximum(a: Interval, b: Interval) -> Interval:
    return max(_known(a[0], b[0]), default=None), _union(a, b)[1]


def _multiply(a: Interval, b: Interval) -> Interval:
    ends = _known(*a, *b)
    if len(ends) == 4:
        corners = [x * y for x, y in product(ends[:2], ends[2:])]
        return min(corners), max(corners)
    if a[0] is not None and b[0] is not None and min(a[0], b[0]) >= 0:
        return a[0] * b[0], None
    return _UNKNOWN


def _floor_divide(a: Interval, b: Interval) -> Interval:
    if b[0] is None or b[0] <= 0:
        return _UNKNOWN
    # dividing by more moves the quotient towards 0 from above and towards -1 from below
    low, high = a
    if low is not None:
        low = low // b[0] if low < 0 else 0 if b[1] is None else low // b[1]
    if high is not None:
        high = high // b[0] if high >= 0 else -1 if b[1] is None else high // b[1]
    return low, high


def _modulo(a: Interval, b: Interval) -> Interval:
    if b[0] is None or b[0] <= 0:
        return _UNKNOWN
    most = None if b[1] is None else b[1] - 1
    if a[0] is not None and a[0] >= 0:
        most = min(_known(most, a[1]), default=None)
    return 0, most


def _absolute(a: Interval) -> Interval:
    ends = _known(*a)
    if len(ends) < 2:
        return _UNKNOWN
    low = 0 if ends[0] <= 0 <= ends[1] else min(abs(ends[0]), abs(ends[1]))
    return low, max(abs(ends[0]), abs(ends[1]))


def _bit_and(a: Interval, b: Interval) -> Interval:
    masks = [high for low, high in (a, b) if low is not None and low >= 0 and high is not None]
    return (0, min(masks)) if masks else _UNKNOWN


_RULES: dict[str, Callable[..., Interval]] = {
    "min": _minimum, "max": _maximum, "mul": _multiply, "floordiv": _floor_divide, "mod": _modulo,
    "abs": _absolute, "and": _bit_and,
}  # fmt: skip
