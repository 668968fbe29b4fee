"""Sums in their forms: along each axis and over all, moments, running, scattered, in gradients.

`python -m benchmarks reductions` runs them all. Their tolerance is that of a sum by halves, so that
a faster sum that is less exact gets no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.frameworks import everywhere
from benchmarks.workload import Arrays, Workload, generator

Numbers = Callable[[Any, Any], Any]  # of a library and a matrix


@dataclass(frozen=True, slots=True)
class Form:
    """What is computed from a matrix of so many rows and columns."""

    name: str
    rows: int
    columns: int
    compute: Numbers


def _bias_gradient(lib: Any, x: Any) -> Any:
    with lib.enable_grad():
        bias = lib.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
        (gradient,) = lib.autograd.grad(((x + bias) * x).sum(), [bias])
    return gradient


def _scattered(lib: Any, x: Any) -> Any:
    segments = lib.arange(x.shape[0]) % 64
    return lib.zeros(64, x.shape[1], dtype=x.dtype).index_add(0, segments, x)


FORMS = (
    Form("sum-rows", 4096, 2048, lambda lib, x: x.sum(1)),
    Form("sum-columns", 4096, 2048, lambda lib, x: x.sum(0)),
    Form("sum-tall", 1 << 20, 8, lambda lib, x: x.sum(0)),
    Form("sum-all", 4096, 2048, lambda lib, x: x.sum()),
    Form("mean-columns", 4096, 2048, lambda lib, x: x.mean(0)),
    Form("var-rows", 4096, 2048, lambda lib, x: x.var(1)),
    Form("var-columns", 4096, 2048, lambda lib, x: x.var(0)),
    Form("var-tall", 1 << 20, 8, lambda lib, x: x.var(0)),
    Form("norm-rows", 4096, 2048, lambda lib, x: x.norm(dim=1)),
    Form("logsumexp-columns", 4096, 1024, lambda lib, x: lib.logsumexp(x, 0)),
    Form("cumsum-rows", 2048, 2048, lambda lib, x: x.cumsum(1)),
    Form("cumsum-columns", 2048, 2048, lambda lib, x: x.cumsum(0)),
    Form("bias-gradient", 4096, 2048, _bias_gradient),
    Form("index-add", 16384, 256, _scattered),
)


def _inputs(form: Form) -> Arrays:
    return {"x": generator().random((form.rows, form.columns), np.float32) + np.float32(0.5)}


def _reference(form: Form, arrays: Arrays) -> Arrays:
    """The same in float64 by torch."""
    import torch

    with torch.no_grad():
        result = form.compute(torch, torch.from_numpy(arrays["x"].astype(np.float64)))
    return {"out0": result.numpy()}


def _workload(form: Form) -> Workload:
    return Workload(
        name=f"reductions:{form.name}",
        title=f"{form.name} {form.rows}×{form.columns}",
        inputs=partial(_inputs, form),
        reference=partial(_reference, form),
        builders=everywhere(lambda lib: partial(form.compute, lib), None),
        tolerance=3e-6,
        bytes=4.0 * form.rows * form.columns,
    )


WORKLOADS = [_workload(form) for form in FORMS]
