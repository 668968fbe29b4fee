"""PyTorch's face of differentiation: backward(), grad(), Function, no_grad and friends.

Names load on first use: tensors are below this package, and all of it is above tensors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.autograd import functional as functional
    from ridgeline.autograd.anomaly import (
        AnomalyError as AnomalyError,
        detect_anomaly as detect_anomaly,
        set_detect_anomaly as set_detect_anomaly,
    )
    from ridgeline.autograd.engine import (
        HookHandle as HookHandle,
        backward as backward,
        grad as grad,
    )
    from ridgeline.autograd.function import (
        Function as Function,
        FunctionContext as FunctionContext,
    )
    from ridgeline.autograd.gradchecks import (
        gradcheck as gradcheck,
        gradgradcheck as gradgradcheck,
    )
    from ridgeline.tensors.modes import (
        enable_grad as enable_grad,
        inference_mode as inference_mode,
        is_grad_enabled as is_grad_enabled,
        no_grad as no_grad,
        set_grad_enabled as set_grad_enabled,
    )

_HOMES = {
    "autograd.anomaly": ("AnomalyError", "detect_anomaly", "set_detect_anomaly"),
    "autograd.engine": ("HookHandle", "backward", "grad"),
    "autograd.function": ("Function", "FunctionContext"),
    "autograd.gradchecks": ("gradcheck", "gradgradcheck"),
    "tensors.modes": (
        "enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled",
    ),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["functional", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module("ridgeline.autograd.functional")
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"ridgeline.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ridgeline.autograd' has no attribute {name!r}")
