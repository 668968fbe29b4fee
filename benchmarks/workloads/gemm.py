"""The product of two 1024×1024 matrices."""

from __future__ import annotations

import numpy as np

from benchmarks.frameworks import everywhere
from benchmarks.workload import Arrays, Workload, generator

SIZE = 1024


def inputs() -> Arrays:
    """Two different matrices of normal numbers."""
    source = generator()
    a = source.standard_normal((SIZE, SIZE), np.float32)
    return {"a": a, "b": source.standard_normal((SIZE, SIZE), np.float32)}


WORKLOAD = Workload(
    name="gemm",
    title="GEMM 1024³",
    inputs=inputs,
    reference=lambda i: {"out0": i["a"].astype(np.float64) @ i["b"].astype(np.float64)},
    builders=everywhere(lambda lib: lambda a, b: a @ b, lambda jax: lambda a, b: a @ b, np.matmul),
    tolerance=1e-5,
    flops=2.0 * SIZE**3,
    bytes=12.0 * SIZE * SIZE,
)
