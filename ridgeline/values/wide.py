"""The precision in which special functions are defined: more digits than their results have.

Functions of `values/` compute in the type of their operands and round nothing themselves. They are
given the widest float that NumPy has where float64 is wanted (64 bits of mantissa or more on Linux;
where it is float64 itself, the last digits are lost), and float64 for narrower types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PI = "3.14159265358979323846264338327950288"
EULER = "0.577215664901532860606512090082402431"
LOG2 = "0.693147180559945309417232121458176568"
ROOT2 = "1.41421356237309504880168872420969808"
ROOT_PI = "1.77245385090551602729816748334114518"


def number(text: str, like: Array) -> np.floating[Any]:
    """A constant with all the digits of an array's type."""
    constant: np.floating[Any] = like.dtype.type(text)
    return constant


def widened(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of real numbers in a wider type, rounded once to the type of its operands."""

    def value(*operands: Array) -> Array:
        own = operands[0].dtype
        wide = np.longdouble if own == np.float64 else np.float64
        result = function(*(operand.astype(wide) for operand in operands))
        return np.asarray(result).astype(own)

    return value
