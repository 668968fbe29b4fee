"""The workloads, one file each: a module here with `WORKLOAD` is found by its name.

A module with `WORKLOADS` holds a set of them, named `SET:NAME`; `SET` stands for all of it, or
`SET:` where a workload has that name itself.
"""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.workload import Workload

ORDER = (
    "gelu", "softmax", "layer_norm", "gemm", "linear_gelu", "attention", "lenet_step",
    "lenet_inference", "gpt_step", "resnet18_inference",
)  # fmt: skip


def _found() -> dict[str, Workload]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = {m.WORKLOAD.name: m.WORKLOAD for m in modules if hasattr(m, "WORKLOAD")}
    sets = {w.name: w for m in modules for w in getattr(m, "WORKLOADS", ())}
    known = [name for name in ORDER if name in found]
    return {name: found[name] for name in [*known, *sorted(set(found) - set(known))]} | sets


WORKLOADS: dict[str, Workload] = _found()


def named(name: str) -> list[str]:
    """The workloads that a name stands for: one, or all of a set."""
    if name in WORKLOADS:
        return [name]
    return [full for full in WORKLOADS if full.startswith(f"{name.removesuffix(':')}:")]
