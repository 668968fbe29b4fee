"""Layer norm with weight and bias over the rows of a 4096×4096 matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks import everywhere
from benchmarks.workload import Arrays, Workload, normal

SIZE = 4096
EPS = 1e-5


def inputs() -> Arrays:
    """The matrix, and a weight and a bias that change it."""
    return {
        "x": normal(SIZE, SIZE) + np.float32(0.5),
        "weight": 1 + normal(SIZE, scale=0.1),
        "bias": normal(SIZE, scale=0.1),
    }


def formula(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy, in the precision of its operands."""
    away = x - x.mean(axis=1, keepdims=True)
    spread = (away * away).mean(axis=1, keepdims=True)
    result: NDArray[Any] = away / np.sqrt(spread + x.dtype.type(EPS)) * weight + bias
    return result


def torch_like(lib: Any) -> Callable[..., Any]:
    """For torch and ridgeline."""
    return lambda x, weight, bias: lib.nn.functional.layer_norm(x, (SIZE,), weight, bias, EPS)


def for_jax(jax: Any) -> Callable[..., Any]:
    """For JAX."""

    def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
        mean = x.mean(axis=1, keepdims=True)
        spread = jax.numpy.square(x - mean).mean(axis=1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(spread + EPS) * weight + bias

    return layer_norm


WORKLOAD = Workload(
    name="layer_norm",
    title="layer norm 4096²",
    inputs=inputs,
    reference=lambda i: {"out0": formula(*(v.astype(np.float64) for v in i.values()))},
    builders=everywhere(torch_like, for_jax, formula),
    tolerance=5e-6,
    bytes=8.0 * SIZE * SIZE,
)
