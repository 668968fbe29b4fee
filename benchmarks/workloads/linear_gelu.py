"""A linear layer and its activation, gelu(x @ w.T + b, tanh), 512×3072×768."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks import everywhere
from benchmarks.workload import Arrays, Workload, generator
from benchmarks.workloads.gelu import formula as gelu

ROWS, OUT, IN = 512, 3072, 768


def inputs() -> Arrays:
    """Inputs of unit variance, weights such that outputs have it too."""
    source = generator()
    x = source.standard_normal((ROWS, IN), np.float32)
    weight = source.standard_normal((OUT, IN), np.float32) * np.float32(IN**-0.5)
    return {"x": x, "weight": weight, "bias": source.standard_normal(OUT, np.float32)}


def formula(x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy, in the precision of its operands."""
    kind = x.dtype.type
    return gelu(x @ weight.T + bias, kind(1), kind(0))


def torch_like(lib: Any) -> Callable[..., Any]:
    """For torch and ridgeline."""
    function = lib.nn.functional
    return lambda x, w, b: function.gelu(function.linear(x, w, b), approximate="tanh")


def for_jax(jax: Any) -> Callable[..., Any]:
    """For JAX."""
    return lambda x, w, b: jax.nn.gelu(x @ w.T + b, approximate=True)


WORKLOAD = Workload(
    name="linear_gelu",
    title="linear+gelu 512×3072×768",
    inputs=inputs,
    reference=lambda i: {"out0": formula(*(v.astype(np.float64) for v in i.values()))},
    builders=everywhere(torch_like, for_jax, formula),
    tolerance=1e-5,
    flops=2.0 * ROWS * OUT * IN,
    bytes=4.0 * (ROWS * IN + OUT * IN + ROWS * OUT),
)
