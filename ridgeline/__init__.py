# ruff: noqa: F401, F403  (a namespace)
"""Ridgeline: deep learning, from a line of Python to the roofline.

The public namespace, with torch's names, defaults and semantics. Functions come from one table
(`ridgeline/functions`); `nn`, `optim`, `data` and what needs the compiler load on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ridgeline.loops
from ridgeline import autograd, dispatch
from ridgeline.config import config
from ridgeline.dtypes import (
    DType,
    bfloat16,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ridgeline.dtypes import bool_ as bool
from ridgeline.errors import RidgelineError
from ridgeline.functions.creation import finfo, iinfo
from ridgeline.interop.arrays import asarray
from ridgeline.interop.dlpack import from_dlpack
from ridgeline.jit import jit
from ridgeline.modes import (
    eager,
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from ridgeline.namespace import get_default_dtype, is_tensor, result_type, set_default_dtype
from ridgeline.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from ridgeline.tensor import Size, Tensor, as_tensor, from_numpy, tensor

__version__ = "0.1.0"

dtype = DType
half, float, double, long, int, short = float16, float32, float64, int64, int32, int16

_SUBMODULES = frozenset((
    "array_api", "data", "fft", "linalg", "masked", "models", "nn", "optim", "profile", "signal",
    "special",
))  # fmt: skip
_LAZY = {
    "isdtype": "ridgeline.array_api.types",
    "grad": "ridgeline.transforms",
    "value_and_grad": "ridgeline.transforms",
    "vjp": "ridgeline.transforms",
    "jvp": "ridgeline.transforms",
    "linearize": "ridgeline.transforms",
    "vmap": "ridgeline.vectorize",
    "jacobian": "ridgeline.jacobians",
    "jacrev": "ridgeline.jacobians",
    "jacfwd": "ridgeline.jacobians",
    "hessian": "ridgeline.jacobians",
}
globals().update(dispatch.FUNCTIONS)


class _LoopsModule(ModuleType):
    """The package of the loop IR, which can also be called: `rl.loops(function, *examples)`."""

    def __call__(self, function: Any, *examples: Tensor) -> Any:
        """The loop nest of an expression of tensors, to print, schedule by hand and run."""
        from ridgeline.kernel import loops as build

        return build(function, *examples)


sys.modules["ridgeline.loops"].__class__ = _LoopsModule


if TYPE_CHECKING:
    from ridgeline.array_api.types import isdtype
    from ridgeline.jacobians import hessian, jacfwd, jacobian, jacrev
    from ridgeline.public import *
    from ridgeline.transforms import grad, jvp, linearize, value_and_grad, vjp
    from ridgeline.vectorize import vmap


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"ridgeline.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ridgeline' has no attribute {name!r}")
