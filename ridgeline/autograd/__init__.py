"""Differentiation as PyTorch has it: backward(), grad(), Function, no_grad and friends.

What only some programs use loads on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ridgeline.autograd.engine import backward as backward, grad as grad
from ridgeline.module_paths import unknown as _unknown
from ridgeline.record.modes import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from ridgeline.reference import describe as _describe
from ridgeline.tensors.differentiable import HookHandle as HookHandle

if TYPE_CHECKING:
    from ridgeline.autograd import functional as functional
    from ridgeline.autograd.anomaly import (
        AnomalyError as AnomalyError,
        detect_anomaly as detect_anomaly,
        set_detect_anomaly as set_detect_anomaly,
    )
    from ridgeline.autograd.function import (
        Function as Function,
        FunctionContext as FunctionContext,
    )
    from ridgeline.autograd.gradchecks import (
        gradcheck as gradcheck,
        gradgradcheck as gradgradcheck,
    )
    from ridgeline.autograd.variable import Variable as Variable

_HOMES = {
    "anomaly": ("AnomalyError", "detect_anomaly", "set_detect_anomaly"),
    "function": ("Function", "FunctionContext"),
    "gradchecks": ("gradcheck", "gradgradcheck"),
    "variable": ("Variable",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [
    "HookHandle", "backward", "enable_grad", "functional", "grad", "inference_mode",
    "is_grad_enabled", "no_grad", "set_grad_enabled", *_HOME_OF,
]  # fmt: skip


_find = _unknown(__name__)


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module("ridgeline.autograd.functional")
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"ridgeline.autograd.{_HOME_OF[name]}"), name)
        _describe("autograd", {name: value})
        globals()[name] = value
        return value
    return _find(name)


_describe("autograd", {"backward": backward, "grad": grad})
