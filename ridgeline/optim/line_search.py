"""A line search for the strong Wolfe conditions, by bracketing and cubic interpolation.

After Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6: step lengths grow until a
bracket holds an acceptable one, then the bracket shrinks around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
DECREASE, CURVATURE = 1e-4, 0.9
MOST = 25  # evaluations


@dataclass(frozen=True, slots=True)
class Point:
    """A step length, the loss there, its slope along the direction, and the gradient."""

    length: float
    loss: float
    slope: float
    gradient: Vector


def minimum_of_cubic(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two losses and slopes is least, held within bounds."""
    if not all(map(math.isfinite, (a.loss, b.loss, a.slope, b.slope))):
        return (low + high) / 2
    if a.length > b.length:
        a, b = b, a
    width = b.length - a.length
    if width == 0:
        return (low + high) / 2
    first = a.slope + b.slope - 3 * (b.loss - a.loss) / width
    square = first * first - a.slope * b.slope
    if square < 0:
        return (low + high) / 2
    root = math.sqrt(square)
    denominator = b.slope - a.slope + 2 * root
    if denominator == 0:
        return (low + high) / 2
    return min(max(b.length - width * (b.slope + root - first) / denominator, low), high)


def strong_wolfe(
    evaluate: Callable[[float], tuple[float, Vector]],
    direction: Vector,
    start: Point,
    length: float,
    least_change: float,
) -> tuple[Point, int]:
    """An acceptable point along a direction, and how many evaluations it took.

    `evaluate(length)` gives the loss and the gradient after a step of that length.
    """
    count = 0

    def at(where: float) -> Point:
        nonlocal count
        count += 1
        loss, gradient = evaluate(where)
        return Point(where, loss, float(gradient @ direction), gradient)

    def too_high(point: Point, best: float) -> bool:
        limit = start.loss + DECREASE * point.length * start.slope
        return not point.loss <= limit or point.loss >= best

    before, here = start, at(length)
    while count < MOST:
        if too_high(here, before.loss if before is not start else math.inf):
            return _shrunk(at, too_high, start, before, here, direction, least_change, count)
        if abs(here.slope) <= -CURVATURE * start.slope:
            return here, count
        if here.slope >= 0:
            return _shrunk(at, too_high, start, here, before, direction, least_change, count)
        least = here.length + 0.01 * (here.length - before.length)
        following = minimum_of_cubic(before, here, least, here.length * 10)
        before, here = here, at(following)
    return here, count


def _shrunk(
    at: Callable[[float], Point],
    too_high: Callable[[Point, float], bool],
    start: Point,
    low: Point,
    high: Point,
    direction: Vector,
    least_change: float,
    count: int,
) -> tuple[Point, int]:
    """Shrink a bracket whose `low` end has the smaller loss."""
    if high.loss < low.loss:
        low, high = high, low
    largest = float(np.max(np.abs(direction)))
    while count < MOST:
        left, right = sorted((low.length, high.length))
        if (right - left) * largest < least_change:
            break
        margin = 0.1 * (right - left)  # keeps the bracket shrinking
        point = at(minimum_of_cubic(low, high, left + margin, right - margin))
        count += 1
        if too_high(point, low.loss):
            high = point
            continue
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point, count
        if point.slope * (high.length - low.length) >= 0:
            high = low
        low = point
    return low, count
