"""gelu(x*a + b) over 2²⁴ elements, tanh form: a chain that should run at memory speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks import everywhere
from benchmarks.workload import Arrays, Workload, normal

COUNT = 1 << 24


def inputs() -> Arrays:
    """x, and a and b as vectors of one element, so that no framework folds them in."""
    return {"x": normal(COUNT), "a": np.full(1, 1.5, np.float32), "b": np.full(1, 0.5, np.float32)}


def formula(x: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy, in the precision of its operands."""
    y = x * a + b
    kind = y.dtype.type
    inner = kind(np.sqrt(2 / np.pi)) * (y + kind(0.044715) * y * y * y)
    result: NDArray[Any] = kind(0.5) * y * (1 + np.tanh(inner))
    return result


def torch_like(lib: Any) -> Callable[..., Any]:
    """For torch and ridgeline."""
    return lambda x, a, b: lib.nn.functional.gelu(x * a + b, approximate="tanh")


def for_jax(jax: Any) -> Callable[..., Any]:
    """For JAX."""
    return lambda x, a, b: jax.nn.gelu(x * a + b, approximate=True)


WORKLOAD = Workload(
    name="gelu",
    title="gelu(x*a+b) 2²⁴",
    inputs=inputs,
    reference=lambda i: {"out0": formula(*(v.astype(np.float64) for v in i.values()))},
    builders=everywhere(torch_like, for_jax, formula),
    tolerance=5e-6,
    bytes=8.0 * COUNT,
)
