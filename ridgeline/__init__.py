# ruff: noqa: F401, F403  (a namespace)
"""Ridgeline: deep learning, from a line of Python to the roofline.

The public namespace, with torch's names, defaults and semantics. Functions come from one table
(`ridgeline/functions`); `nn`, `optim`, `data` and what needs the compiler load on first use.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ridgeline.loops as _loops
from ridgeline import autograd as autograd
from ridgeline.config import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    config as config,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from ridgeline.devices import device as device
from ridgeline.dtypes import (
    DType as DType,
    bfloat16 as bfloat16,
    bool_ as bool,
    complex64 as complex64,
    complex128 as complex128,
    float8_e4m3fn as float8_e4m3fn,
    float8_e5m2 as float8_e5m2,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from ridgeline.errors import (
    OutOfMemoryError as OutOfMemoryError,
    RidgelineError as RidgelineError,
)
from ridgeline.execution.flush_log import (
    explain_last as explain_last,
    record_flushes as record_flushes,
)
from ridgeline.functions.creation import finfo as finfo, iinfo as iinfo
from ridgeline.interop.arrays import asarray as asarray
from ridgeline.interop.dlpack import from_dlpack as from_dlpack
from ridgeline.random import (
    Generator as Generator,
    default_generator as default_generator,
    get_rng_state as get_rng_state,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    seed as seed,
    set_rng_state as set_rng_state,
)
from ridgeline.record.modes import (
    eager as eager,
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from ridgeline.record.upcalls import upcalls
from ridgeline.tensors import dispatch as dispatch
from ridgeline.tensors.autocast import (
    autocast as autocast,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_enabled as is_autocast_enabled,
)
from ridgeline.tensors.creation import as_tensor as as_tensor, from_numpy as from_numpy
from ridgeline.tensors.handle import Size as Size
from ridgeline.tensors.namespace import (
    get_default_dtype as get_default_dtype,
    is_tensor as is_tensor,
    result_type as result_type,
    set_default_dtype as set_default_dtype,
)
from ridgeline.tensors.tensor import Tensor as Tensor, tensor as tensor
from ridgeline.tracing.control_flow import (
    cond as cond,
    scan as scan,
    while_loop as while_loop,
)
from ridgeline.tracing.jit import jit as jit

__version__ = "0.1.0"

dtype = DType
half, float, double, long, int, short = float16, float32, float64, int64, int32, int16

_SUBMODULES = frozenset((
    "amp", "array_api", "cuda", "data", "distributions", "fft", "learn", "linalg", "masked",
    "models", "nn", "optim", "profile", "signal", "special", "train",
))  # fmt: skip
_LAZY = {
    "isdtype": "ridgeline.array_api.types",
    "grad": "ridgeline.autograd.transforms",
    "value_and_grad": "ridgeline.autograd.transforms",
    "vjp": "ridgeline.autograd.transforms",
    "jvp": "ridgeline.autograd.transforms",
    "linearize": "ridgeline.autograd.transforms",
    "vmap": "ridgeline.autograd.vectorize",
    "jacobian": "ridgeline.autograd.jacobians",
    "jacrev": "ridgeline.autograd.jacobians",
    "jacfwd": "ridgeline.autograd.jacobians",
    "hessian": "ridgeline.autograd.jacobians",
    "load": "ridgeline.serialization",
    "save": "ridgeline.serialization",
}
globals().update(dispatch.FUNCTIONS)
upcalls.array_namespace = partial(importlib.import_module, "ridgeline.array_api")


class _LoopsModule(ModuleType):
    """The package of the loop IR, which can also be called: `rl.loops(function, *examples)`."""

    def __call__(self, function: Any, *examples: Tensor) -> Any:
        """The loop nest of an expression of tensors, to print, schedule by hand and run."""
        from ridgeline.kernel import loops as build

        return build(function, *examples)


_loops.__class__ = _LoopsModule


if TYPE_CHECKING:
    from ridgeline.array_api.types import isdtype as isdtype
    from ridgeline.autograd.jacobians import (
        hessian as hessian,
        jacfwd as jacfwd,
        jacobian as jacobian,
        jacrev as jacrev,
    )
    from ridgeline.autograd.transforms import (
        grad as grad,
        jvp as jvp,
        linearize as linearize,
        value_and_grad as value_and_grad,
        vjp as vjp,
    )
    from ridgeline.autograd.vectorize import vmap as vmap
    from ridgeline.kernel import loops as loops
    from ridgeline.tensors.public import *


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"ridgeline.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ridgeline' has no attribute {name!r}")
