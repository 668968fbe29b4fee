"""The workloads, one file each: a module here with `WORKLOAD` is found by its name."""

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
    known = [name for name in ORDER if name in found]
    return {name: found[name] for name in [*known, *sorted(set(found) - set(known))]}


WORKLOADS: dict[str, Workload] = _found()
