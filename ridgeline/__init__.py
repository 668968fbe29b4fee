# ruff: noqa: F401, F403  (a namespace)
"""Ridgeline: deep learning, from a line of Python to the roofline.

The public namespace, with torch's names, defaults and semantics. Functions come from one table
(`ridgeline/functions`); `nn`, `optim`, `data` and what needs the compiler load on first use.
"""

from __future__ import annotations

import importlib
import math
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ridgeline.compiler as _compiler
import ridgeline.loops as _loops
from ridgeline import autograd as autograd, module_paths
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
from ridgeline.layouts import (
    channels_last as channels_last,
    channels_last_3d as channels_last_3d,
    contiguous_format as contiguous_format,
    layout as layout,
    legacy_contiguous_format as legacy_contiguous_format,
    memory_format as memory_format,
    preserve_format as preserve_format,
    sparse_coo as sparse_coo,
    sparse_csc as sparse_csc,
    sparse_csr as sparse_csr,
    strided as strided,
)
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
from ridgeline.reference import describe, names_in
from ridgeline.tape import tape_recorder as _tape_recorder
from ridgeline.tensors import dispatch as dispatch, typed
from ridgeline.tensors.autocast import (
    autocast as autocast,
    get_autocast_cpu_dtype as get_autocast_cpu_dtype,
    get_autocast_dtype as get_autocast_dtype,
    get_autocast_gpu_dtype as get_autocast_gpu_dtype,
    is_autocast_cpu_enabled as is_autocast_cpu_enabled,
    is_autocast_enabled as is_autocast_enabled,
)
from ridgeline.tensors.creation import (
    as_tensor as as_tensor,
    from_numpy as from_numpy,
    frombuffer as frombuffer,
)
from ridgeline.tensors.foreach import foreach
from ridgeline.tensors.handle import Size as Size
from ridgeline.tensors.namespace import (
    _assert as _assert,
    get_default_dtype as get_default_dtype,
    is_tensor as is_tensor,
    result_type as result_type,
    set_default_dtype as set_default_dtype,
)
from ridgeline.tensors.tensor import Tensor as Tensor, tensor as tensor
from ridgeline.tensors.typed import set_default_tensor_type as set_default_tensor_type
from ridgeline.tracing.control_flow import (
    cond as cond,
    scan as scan,
    while_loop as while_loop,
)
from ridgeline.tracing.torch_jit import jit as jit

__version__ = "0.1.0"

dtype = DType
half, float, double, long, int, short = float16, float32, float64, int64, int32, int16
cfloat, cdouble = complex64, complex128
pi, inf, nan, e, newaxis = math.pi, math.inf, math.nan, math.e, None

_SUBMODULES = frozenset((
    "accelerator", "amp", "array_api", "backends", "compiling", "cpu", "cuda", "data",
    "distributed", "distributions", "fft", "func", "fx", "hub", "learn", "linalg", "masked",
    "models", "multiprocessing", "nn", "onnx", "optim", "profile", "profiler", "random",
    "serialization", "signal", "sparse", "special", "testing", "train", "types", "utils", "version",
    "vision",
))  # fmt: skip
# what loads on first use, by the module that has it
_HOMES = {
    "ridgeline.amp": "GradScaler",
    "ridgeline.array_api.types": "isdtype",
    "ridgeline.autograd.checkpoint": "checkpoint",
    "ridgeline.autograd.jacobians": "hessian jacfwd jacobian jacrev",
    "ridgeline.autograd.transforms": "grad jvp linearize value_and_grad vjp",
    "ridgeline.autograd.vectorize": "vmap",
    "ridgeline.compiling": "compile",
    "ridgeline.deploy.load": "load_program",
    "ridgeline.low_rank": "pca_lowrank svd_lowrank",
    "ridgeline.nn.functional": "bilinear celu_ channel_shuffle cosine_embedding_loss hardshrink "
    "hinge_embedding_loss margin_ranking_loss pairwise_distance pixel_shuffle pixel_unshuffle "
    "poisson_nll_loss prelu rrelu rrelu_ selu_ threshold threshold_ triplet_margin_loss",
    "ridgeline.nn.swapped": "embedding",
    "ridgeline.serialization": "load save",
    "ridgeline.tensors.sparse": "sparse_coo_tensor sparse_csr_tensor spmm",
    "ridgeline.torch_backend.exported": "from_torch_export",
    "ridgeline.settings": "can_cast get_default_device get_deterministic_debug_mode "
    "get_float32_matmul_precision get_num_interop_threads get_num_threads is_anomaly_enabled "
    "is_deterministic_algorithms_warn_only_enabled "
    "is_inference_mode_enabled promote_types set_default_device set_deterministic_debug_mode "
    "set_float32_matmul_precision set_flush_denormal set_num_interop_threads set_num_threads "
    "set_printoptions set_warn_always",
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names.split()}
# methods that are functions, too
_METHODS = (
    "clone", "detach", "detach_", "get_device", "is_complex", "is_conj", "is_floating_point",
    "is_inference", "is_neg", "is_nonzero", "is_same_size", "is_signed", "numel", "resize_as_",
    *map("{}_".format, (
        "abs", "acos", "acosh", "arccos", "arcsin", "arctan", "asin", "asinh", "atan", "atanh",
        "ceil", "clamp", "clip", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "fill",
        "fix", "floor", "frac", "index_put", "log", "log10", "log1p", "log2", "logit",
        "nan_to_num", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sin", "sinc",
        "sinh", "sqrt", "square", "tan", "tanh", "trunc", "zero",
    )),
)  # fmt: skip
globals().update(dispatch.FUNCTIONS)
globals().update({name: getattr(Tensor, name) for name in _METHODS})
globals().update(typed.CLASSES["cpu"])
upcalls.sparse_module = partial(importlib.import_module, "ridgeline.tensors.sparse")
upcalls.exporting = partial(importlib.import_module, "ridgeline.deploy.export")
upcalls.array_namespace = partial(importlib.import_module, "ridgeline.array_api")
vars(_compiler)["__getattr__"] = lambda n: getattr(
    importlib.import_module("ridgeline.compiling"), n
)  # torch.compiler is another thing than the folder of that name
module_paths.install()


class _LoopsModule(ModuleType):
    """The package of the loop IR, which can also be called: `rl.loops(function, *examples)`."""

    def __call__(self, function: Any, *examples: Tensor) -> Any:
        """The loop nest of an expression of tensors, to print, schedule by hand and run."""
        from ridgeline.kernel import loops as build

        return build(function, *examples)


_loops.__class__ = _LoopsModule


if TYPE_CHECKING:
    from ridgeline.array_api.types import isdtype as isdtype
    from ridgeline.autograd.checkpoint import checkpoint as checkpoint
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
    from ridgeline.deploy.load import load_program as load_program
    from ridgeline.kernel import loops as loops
    from ridgeline.tensors.public import *
    from ridgeline.torch_backend.exported import from_torch_export as from_torch_export


_unknown = module_paths.unknown(__name__)
_OWN = frozenset((
    "Any", "ModuleType", "TYPE_CHECKING", "annotations", "describe", "dispatch", "foreach",
    "importlib", "math", "names_in",
    "module_paths", "partial", "typed", "upcalls",
))  # fmt: skip
_PUBLIC = {
    name
    for name, value in globals().items()
    if name[0] != "_" and name not in _OWN and not isinstance(value, ModuleType)
} | {"autograd", "compiler", "loops"}
describe("", {name: globals()[name] for name in _PUBLIC - {"loops"}})
describe("Tensor", {name: getattr(Tensor, name) for name in names_in("Tensor")})


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"ridgeline.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        describe("", {name: value})
        globals()[name] = value
        return value
    if name.startswith("_foreach_") and (each := foreach(name)) is not None:
        return each
    return _unknown(name)


def __dir__() -> list[str]:
    """All public names, loaded or not, and none of the package's own parts."""
    return sorted(_PUBLIC | _SUBMODULES | _LAZY.keys())
