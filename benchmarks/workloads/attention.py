"""Causal attention, 1×12×512×64 (batch, heads, positions, width)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks import everywhere
from benchmarks.workload import Arrays, Workload, generator

BATCH, HEADS, LENGTH, WIDTH = 1, 12, 512, 64


def inputs() -> Arrays:
    """Queries, keys and values of normal numbers."""
    source = generator()
    shape = (BATCH, HEADS, LENGTH, WIDTH)
    return {name: source.standard_normal(shape, np.float32) for name in ("q", "k", "v")}


def formula(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy, in the precision of its operands."""
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(WIDTH**-0.5)
    later = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
    scores = np.where(later, q.dtype.type(-np.inf), scores)
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: NDArray[Any] = raised / raised.sum(axis=-1, keepdims=True) @ v
    return result


def torch_like(lib: Any) -> Callable[..., Any]:
    """For torch and ridgeline."""
    attend = lib.nn.functional.scaled_dot_product_attention
    return lambda q, k, v: attend(q, k, v, is_causal=True)


def for_jax(jax: Any) -> Callable[..., Any]:
    """For JAX, whose attention wants positions before heads."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (t.swapaxes(1, 2) for t in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)

    return attend


WORKLOAD = Workload(
    name="attention",
    title="attention 1×12×512×64 causal",
    inputs=inputs,
    reference=lambda i: {"out0": formula(*(v.astype(np.float64) for v in i.values()))},
    builders=everywhere(torch_like, for_jax, formula),
    tolerance=1e-5,
    flops=4.0 * BATCH * HEADS * LENGTH * LENGTH * WIDTH / 2,
    bytes=16.0 * BATCH * HEADS * LENGTH * WIDTH,
)
