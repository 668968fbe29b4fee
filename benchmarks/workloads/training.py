"""Training where Python counts most: many small tensors, and a network with little to compute.

torch's AdamW is as it comes (several tensors a kernel) and, as a workload of its own, fused; ours
is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.frameworks import torch_module
from benchmarks.workload import (
    DEFERRED,
    OURS,
    TORCH,
    Arrays,
    Builder,
    Runner,
    Workload,
    generator,
    once_called,
)

TENSORS, SHAPE = 148, (16, 16)
BATCH, FEATURES, CLASSES = 32, 64, 10
LR = 1e-3
Step = Callable[[], Any]
Made = tuple[Step, Callable[[], Arrays]]  # one step, and what it leaves behind


def _update_inputs() -> Arrays:
    source = generator()
    shape = (TENSORS, *SHAPE)
    return {name: source.standard_normal(shape, np.float32) for name in ("values", "gradients")}


def _update(lib: Any, arrays: Arrays, dtype: Any, fused: bool) -> Made:
    members = [lib.nn.Parameter(lib.tensor(value, dtype=dtype)) for value in arrays["values"]]
    for member, gradient in zip(members, arrays["gradients"]):
        member.grad = lib.tensor(gradient, dtype=dtype)
    optimizer = lib.optim.AdamW(members, lr=LR, **({"fused": True} if fused else {}))
    return optimizer.step, lambda: {"values": np.stack([m.detach().numpy() for m in members])}


def _network_inputs() -> Arrays:
    source = generator()
    sizes = (FEATURES, FEATURES, FEATURES, CLASSES)
    arrays: Arrays = {
        "x": source.standard_normal((BATCH, FEATURES), np.float32),
        "y": source.integers(0, CLASSES, BATCH),
    }
    for number, (before, after) in enumerate(pairwise(sizes)):
        arrays[f"{2 * number}.weight"] = source.standard_normal((after, before), np.float32) / 8
        arrays[f"{2 * number}.bias"] = np.zeros(after, np.float32)
    return arrays


def _network(lib: Any, arrays: Arrays, dtype: Any, fused: bool) -> Made:
    nn, wide = lib.nn, FEATURES
    model = nn.Sequential(
        nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, CLASSES)
    )
    tensors = {name: lib.tensor(array) for name, array in arrays.items()}
    model.load_state_dict({name: t for name, t in tensors.items() if name not in "xy"})
    model = model.to(dtype)
    x, y = tensors["x"].to(dtype), tensors["y"]
    optimizer = lib.optim.AdamW(model.parameters(), lr=LR, **({"fused": True} if fused else {}))

    def step() -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def left() -> Arrays:
        return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}

    return step, left


def _runner(step: Step, left: Callable[[], Arrays]) -> Runner:
    """What the first step leaves is what is compared."""
    kept: Arrays = {}

    def call() -> None:
        step()
        if not kept:
            kept.update({name: np.array(value) for name, value in left().items()})

    return Runner(call, lambda: kept)


def _torch(make: Callable[..., Made], fused: bool, dtype: str = "float32") -> Builder:
    def build(arrays: Arrays) -> Runner:
        torch = torch_module()
        return _runner(*make(torch, arrays, getattr(torch, dtype), fused))

    return build


def _ridgeline(make: Callable[..., Made], jit: bool) -> Builder:
    def build(arrays: Arrays) -> Runner:
        import ridgeline as rl

        step, left = make(rl, arrays, rl.float32, False)
        return _runner(rl.jit(lambda: step()) if jit else step, left)

    return build


def _workload(
    name: str, title: str, inputs: Callable[[], Arrays], make: Callable[..., Made], fused: bool
) -> Workload:
    return Workload(
        name=f"training:{name}",
        title=title,
        inputs=inputs,
        reference=once_called(_torch(make, False, "float64")),
        builders={
            OURS: _ridgeline(make, jit=True),
            DEFERRED: _ridgeline(make, jit=False),
            TORCH: _torch(make, fused),
        },
        tolerance=1e-5,
    )


WORKLOADS = [
    _workload("adamw", f"AdamW, {TENSORS} of 16x16", _update_inputs, _update, False),
    _workload("adamw_fused", f"AdamW, {TENSORS}, torch fused", _update_inputs, _update, True),
    _workload("mlp", "MLP B32 and AdamW", _network_inputs, _network, False),
    _workload("mlp_fused", "MLP B32, torch fused", _network_inputs, _network, True),
]
