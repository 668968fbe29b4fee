"""Softmax over the rows of a 4096×4096 matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks import everywhere
from benchmarks.workload import Workload, normal

SIZE = 4096


def formula(x: NDArray[Any]) -> NDArray[Any]:
    """The same in NumPy, in the precision of its operand."""
    raised = np.exp(x - x.max(axis=1, keepdims=True))
    result: NDArray[Any] = raised / raised.sum(axis=1, keepdims=True)
    return result


WORKLOAD = Workload(
    name="softmax",
    title="softmax 4096²",
    inputs=lambda: {"x": normal(SIZE, SIZE, scale=3.0)},
    reference=lambda i: {"out0": formula(i["x"].astype(np.float64))},
    builders=everywhere(
        lambda lib: lambda x: lib.nn.functional.softmax(x, dim=1),
        lambda jax: lambda x: jax.nn.softmax(x, axis=1),
        formula,
    ),
    tolerance=5e-6,
    bytes=8.0 * SIZE * SIZE,
)
