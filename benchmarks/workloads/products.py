"""Twenty products: square, skinny, batched, transposed and odd.

`python -m benchmarks products` runs them all and closes with the geometric mean of the ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from benchmarks.frameworks import everywhere
from benchmarks.workload import COMPILED, DEFERRED, Arrays, Workload, generator

# letters of the operands as they lie in memory: b batch, m and n rows and columns, k summed
SHAPES = (
    ("mk,kn", {"m": 128, "n": 128, "k": 128}),
    ("mk,kn", {"m": 256, "n": 256, "k": 256}),
    ("mk,kn", {"m": 512, "n": 512, "k": 512}),
    ("mk,kn", {"m": 1024, "n": 1024, "k": 1024}),
    ("mk,kn", {"m": 2048, "n": 2048, "k": 2048}),
    ("mk,kn", {"m": 1000, "n": 1000, "k": 1000}),
    ("mk,kn", {"m": 333, "n": 777, "k": 555}),
    ("mk,nk", {"m": 512, "n": 3072, "k": 768}),
    ("km,kn", {"m": 768, "n": 3072, "k": 512}),
    ("km,nk", {"m": 600, "n": 700, "k": 500}),
    ("mk,nk", {"m": 1, "n": 4096, "k": 4096}),
    ("mk,kn", {"m": 1, "n": 4096, "k": 4096}),
    ("mk,nk", {"m": 8, "n": 4096, "k": 1024}),
    ("mk,kn", {"m": 4096, "n": 16, "k": 1024}),
    ("mk,kn", {"m": 64, "n": 64, "k": 16384}),
    ("mk,kn", {"m": 4096, "n": 4096, "k": 32}),
    ("bmk,bnk", {"b": 96, "m": 128, "n": 128, "k": 64}),
    ("bmk,bkn", {"b": 12, "m": 512, "n": 64, "k": 512}),
    ("bkm,bkn", {"b": 48, "m": 64, "n": 64, "k": 256}),
    ("bmk,bkn", {"b": 1000, "m": 16, "n": 16, "k": 16}),
)  # fmt: skip


def inputs(left: str, right: str, sizes: dict[str, int]) -> Arrays:
    """Two operands of normal numbers."""
    source = generator()
    shapes = [tuple(sizes[c] for c in letters) for letters in (left, right)]
    return {n: source.standard_normal(s, np.float32) for n, s in zip(("a", "b"), shapes)}


def multiplied(left: str, right: str, swap: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The product as one writes it: operands transposed where they lie the other way round."""

    def product(a: Any, b: Any) -> Any:
        return (a if left[-1] == "k" else swap(a)) @ (b if right[-1] == "n" else swap(b))

    return product


def _swapped(array: Any) -> Any:
    return array.swapaxes(-1, -2)


def _workload(form: str, sizes: dict[str, int]) -> Workload:
    left, right = form.split(",")
    product = multiplied(left, right, _swapped)
    builders = everywhere(lambda lib: product, lambda jax: product, product)
    shape = "×".join(str(sizes[c]) for c in "bmnk" if c in sizes)
    kind = ("T" if left[-1] != "k" else "N") + ("T" if right[-1] != "n" else "N")
    elements = sum(prod(sizes[c] for c in letters) for letters in (left, right))
    rows = prod(sizes[c] for c in "bmn" if c in sizes)
    return Workload(
        name=f"products:{kind}-{shape.replace('×', 'x')}",
        title=f"product {kind} {shape}",
        inputs=partial(inputs, left, right, sizes),
        reference=lambda i: {"out0": product(*(v.astype(np.float64) for v in i.values()))},
        builders={n: b for n, b in builders.items() if n not in (COMPILED, DEFERRED)},
        tolerance=1e-5,
        flops=2.0 * rows * sizes["k"],
        bytes=4.0 * (elements + rows),
    )


WORKLOADS = [_workload(form, sizes) for form, sizes in SHAPES]
