"""Products of narrow numbers: bfloat16, float16, and bytes summed in int32.

`python -m benchmarks low_precision` runs them all, next to torch, whose `_int_mm` multiplies bytes.
Inputs are rounded to their type first, so the float64 reference is of what is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from benchmarks.frameworks import ready_function, torch_module
from benchmarks.workload import OURS, TORCH, Arrays, Builder, Runner, Workload, generator, once
from benchmarks.workloads.products import multiplied

Function = Callable[[Any, Any], Any]

# letters of the operands as they lie in memory: b batch, m and n rows and columns, k summed
FLOATS = (
    ("mk,kn", {"m": 1024, "n": 1024, "k": 1024}),
    ("mk,nk", {"m": 1024, "n": 1024, "k": 1024}),
    ("km,kn", {"m": 1024, "n": 1024, "k": 1024}),
    ("km,nk", {"m": 512, "n": 512, "k": 512}),
    ("mk,kn", {"m": 777, "n": 511, "k": 333}),
    ("mk,kn", {"m": 1024, "n": 1000, "k": 1024}),
    ("mk,nk", {"m": 512, "n": 3072, "k": 768}),
    ("km,kn", {"m": 768, "n": 3072, "k": 512}),
    ("mk,nk", {"m": 16, "n": 2048, "k": 2048}),
    ("mk,nk", {"m": 1, "n": 4096, "k": 4096}),
    ("bmk,bkn", {"b": 32, "m": 128, "n": 128, "k": 64}),
    ("bmk,bnk", {"b": 32, "m": 128, "n": 128, "k": 64}),
)  # fmt: skip
BYTES = (
    ("mk,kn", {"m": 1024, "n": 1024, "k": 1024}),
    ("mk,nk", {"m": 1024, "n": 1024, "k": 1024}),
    ("km,kn", {"m": 512, "n": 512, "k": 512}),
    ("mk,kn", {"m": 777, "n": 511, "k": 333}),
    ("mk,nk", {"m": 512, "n": 3072, "k": 768}),
    ("mk,nk", {"m": 32, "n": 2048, "k": 2048}),
)  # fmt: skip
TOLERANCES = {"bfloat16": 2.0**-8, "float16": 2.0**-10, "int8": 0.0}


def inputs(left: str, right: str, sizes: dict[str, int], dtype: str) -> Arrays:
    """Two operands, normal or any bytes; floats are given as float32."""
    source = generator()
    shapes = [tuple(sizes[c] for c in letters) for letters in (left, right)]
    if dtype == "int8":
        arrays = [source.integers(-128, 128, s, np.int8) for s in shapes]
    else:
        arrays = [_rounded(source.standard_normal(s, np.float32), dtype) for s in shapes]
    return dict(zip(("a", "b"), arrays))


def _rounded(array: Any, dtype: str) -> Any:
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float32)
    bits = array.view(np.uint32)
    even = (bits >> 16) & 1
    return ((bits + 0x7FFF + even) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def _swapped(array: Any) -> Any:
    return array.swapaxes(-1, -2)


def _torch(product: Callable[[Any], Function], dtype: str) -> Builder:
    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        a, b = (torch.from_numpy(v).to(getattr(torch, dtype)) for v in arrays.values())
        run = product(torch)

        def call() -> Any:
            with torch.no_grad():
                return run(a, b)

        return once(call, lambda out: {"out0": (out if dtype == "int8" else out.float()).numpy()})

    return build


def _ours(product: Function, dtype: str) -> Builder:
    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        a, b = (rl.tensor(v).to(getattr(rl, dtype)) for v in arrays.values())
        run, ready = rl.jit(product), ready_function()

        def call() -> Any:
            with rl.no_grad():
                return ready(run(a, b))

        return once(call, lambda out: {"out0": (out if dtype == "int8" else out.float()).numpy()})

    return build


def _workload(dtype: str, form: str, sizes: dict[str, int]) -> Workload:
    left, right = form.split(",")
    product = multiplied(left, right, _swapped)
    shape = "×".join(str(sizes[c]) for c in "bmnk" if c in sizes)
    kind = ("T" if left[-1] != "k" else "N") + ("T" if right[-1] != "n" else "N")
    rows = prod(sizes[c] for c in "bmn" if c in sizes)
    whole = dtype == "int8"

    def of_bytes(a: Any, b: Any) -> Any:
        import ridgeline as rl

        return product(a.to(rl.int32), b.to(rl.int32))

    def torch_product(torch: Any) -> Function:
        return multiplied_bytes(torch, left, right) if whole else product

    return Workload(
        name=f"low_precision:{dtype}-{kind}-{shape.replace('×', 'x')}",
        title=f"{dtype} {kind} {shape}",
        inputs=partial(inputs, left, right, sizes, dtype),
        reference=lambda i: {"out0": product(*(v.astype(np.float64) for v in i.values()))},
        builders={
            OURS: _ours(of_bytes if whole else product, dtype),
            TORCH: _torch(torch_product, dtype),
        },
        tolerance=TOLERANCES[dtype],
        flops=2.0 * rows * sizes["k"],
    )


def multiplied_bytes(torch: Any, left: str, right: str) -> Function:
    """torch's product of bytes in int32."""

    def product(a: Any, b: Any) -> Any:
        a, b = (a if left[-1] == "k" else a.mT), (b if right[-1] == "n" else b.mT)
        return torch._int_mm(a, b)

    return product


WORKLOADS = [
    *(_workload("bfloat16", form, sizes) for form, sizes in FLOATS),
    *(_workload("float16", form, sizes) for form, sizes in (*FLOATS[:3], FLOATS[8])),
    *(_workload("int8", form, sizes) for form, sizes in BYTES),
]
