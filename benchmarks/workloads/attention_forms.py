"""Attention in its forms: masks, shared heads, odd lengths, a few queries, and gradients.

`python -m benchmarks attention` runs them all after the causal one of `attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.frameworks import ridgeline_builder, torch_builder
from benchmarks.workload import OURS, TORCH, Arrays, Workload, generator


@dataclass(frozen=True, slots=True)
class Form:
    """Sizes, what is hidden ("", "causal", "bool" or "float"), and whether gradients are asked."""

    name: str
    batch: int
    heads: int
    shared: int  # heads of keys and values
    queries: int
    keys: int
    width: int
    mask: str = ""
    gradient: bool = False


FORWARD = (
    Form("full", 2, 6, 6, 512, 512, 64),
    Form("bool", 2, 6, 6, 512, 512, 64, "bool"),
    Form("float", 2, 6, 6, 512, 512, 64, "float"),
    Form("shared", 1, 8, 2, 512, 512, 64, "causal"),
    Form("odd", 2, 6, 6, 331, 331, 48, "causal"),
    Form("narrow", 2, 6, 6, 512, 512, 32),
    Form("wide", 2, 6, 6, 512, 512, 128, "causal"),
    Form("long", 1, 4, 4, 2048, 2048, 64, "causal"),
)
GRADIENTS = (
    Form("causal", 2, 6, 6, 512, 512, 64, "causal", True),
    Form("full", 2, 6, 6, 512, 512, 64, "", True),
    Form("bool", 2, 6, 6, 512, 512, 64, "bool", True),
    Form("float", 2, 6, 6, 512, 512, 64, "float", True),
    Form("shared", 1, 8, 2, 512, 512, 64, "causal", True),
    Form("odd", 2, 6, 6, 331, 331, 48, "causal", True),
)
DECODING = (
    Form("one", 1, 12, 12, 1, 1024, 64),
    Form("one-shared", 1, 12, 4, 1, 1024, 64),
    Form("four-bool", 1, 12, 12, 4, 1024, 64, "bool"),
)


def inputs(form: Form) -> Arrays:
    """Queries, keys, values, a cotangent, and a mask where there is one."""
    source = generator()
    normal = partial(source.standard_normal, dtype=np.float32)
    asked = (form.batch, form.heads, form.queries, form.width)
    held = (form.batch, form.shared, form.keys, form.width)
    arrays: Arrays = {"q": normal(asked), "k": normal(held), "v": normal(held)}
    if form.gradient:
        arrays["ct"] = normal(asked)
    if form.mask in ("bool", "float"):
        mask = normal((form.batch, 1, form.queries, form.keys))
        arrays["mask"] = mask > -0.5 if form.mask == "bool" else mask
    return arrays


def function(form: Form, lib: Any) -> Callable[..., Any]:
    """For torch and ridgeline."""
    options = {"is_causal": form.mask == "causal", "enable_gqa": form.shared != form.heads}
    attend = partial(lib.nn.functional.scaled_dot_product_attention, **options)

    def forward(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return attend(q, k, v, attn_mask=mask)

    def gradients(q: Any, k: Any, v: Any, ct: Any, mask: Any = None) -> Any:
        with lib.enable_grad():
            given = [t.detach().requires_grad_() for t in (q, k, v)]
            return tuple(lib.autograd.grad(attend(*given, attn_mask=mask), given, ct))

    return gradients if form.gradient else forward


def reference(form: Form, arrays: Arrays) -> Arrays:
    """The same in float64 by torch."""
    wide = {n: a if a.dtype == np.bool_ else a.astype(np.float64) for n, a in arrays.items()}
    runner = torch_builder(partial(function, form))(wide)
    runner.call()
    return runner.read()


def _workload(kind: str, form: Form) -> Workload:
    make = partial(function, form)
    sizes = f"{form.batch}×{form.heads}×{form.queries}×{form.keys}×{form.width}"
    pairs = form.batch * form.heads * form.queries * form.keys
    pairs //= 2 if form.mask == "causal" else 1
    return Workload(
        name=f"attention:{kind}-{form.name}",
        title=f"attention {kind} {form.name} {sizes}",
        inputs=partial(inputs, form),
        reference=partial(reference, form),
        builders={OURS: ridgeline_builder(make, jit=True), TORCH: torch_builder(make)},
        tolerance=1e-5,
        # two products forward; a gradient computes the scores again and has four more
        flops=(14.0 if form.gradient else 4.0) * pairs * form.width,
    )


WORKLOADS = [
    _workload(kind, form)
    for kind, forms in (("forward", FORWARD), ("gradient", GRADIENTS), ("decoding", DECODING))
    for form in forms
]
