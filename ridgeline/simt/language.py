"""The names a kernel is written with: CUDA's own where CUDA has one.

Outside kernels these are inert objects; the front end gives them their meaning when it finds them
in a kernel's source. `INTRINSICS` lists the callable ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline import dtypes
from ridgeline.errors import BadTypeError
from ridgeline.simt.types import ELEMENTS, const, inout, out, typevar


@dataclass(frozen=True)
class Intrinsic:
    """A function that exists inside kernels only."""

    name: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise BadTypeError(
            f"{self.name} is part of the kernel language and has no value outside a kernel",
            help="call it in a function decorated with @simt.kernel or @simt.device",
        )

    def __iter__(self) -> Iterator[Any]:
        raise BadTypeError(f"{self.name} is part of the kernel language")

    def __repr__(self) -> str:
        return f"simt.{self.name}"


@dataclass(frozen=True)
class Triple:
    """threadIdx, blockIdx, blockDim or gridDim, with members x, y and z."""

    name: str

    def __repr__(self) -> str:
        return f"simt.{self.name}"


@dataclass(frozen=True)
class WarpNumber:
    """The thread's lane in its warp, its warp in the block, or its block's rank in the cluster."""

    name: str

    def __repr__(self) -> str:
        return f"simt.{self.name}"


@dataclass(frozen=True)
class ConstantArray:
    """An array in constant memory: its elements are compiled into the kernels that read it."""

    values: np.ndarray[Any, Any]

    def __repr__(self) -> str:
        return f"simt.constant({self.values.dtype}{list(self.values.shape)})"


def constant(values: Any) -> ConstantArray:
    """An array for constant memory, to be read by kernels that mention it."""
    array = np.array(values)
    if array.dtype == np.float64 and not isinstance(values, np.ndarray):
        array = array.astype(np.float32)  # a Python float is an f32
    if array.dtype == np.int64 and not isinstance(values, np.ndarray):
        array = array.astype(np.int32)
    if dtypes.from_numpy(array.dtype) is None or array.dtype.kind == "c" or not array.ndim:
        raise BadTypeError(f"constant memory holds arrays of numbers, not {values!r:.40}")
    array.setflags(write=False)
    return ConstantArray(array)


def cdiv(a: int, b: int) -> int:
    """How many pieces of `b` cover `a`: the quotient rounded up."""
    return -(-a // b)


threadIdx, blockIdx = Triple("threadIdx"), Triple("blockIdx")
blockDim, gridDim = Triple("blockDim"), Triple("gridDim")
lane, warp = WarpNumber("laneid"), WarpNumber("warpid")
cluster_rank = WarpNumber("cluster_rank")


class Dynamic:
    """The length of a shared array that the launch decides."""

    def __repr__(self) -> str:
        return "simt.dynamic"


dynamic = Dynamic()

# Math functions of one operand by the row of `ridgeline/scalars.py` or `simt/intrinsics.py`.
UNARY_MATH = {
    name: name
    for name in (
        "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "tanh",
        "erf", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "sqrt", "rsqrt",
        "floor", "ceil", "trunc", "isnan", "isinf", "erfc", "lgamma",
        "fast_exp", "fast_log", "fast_sin", "fast_cos", "fast_reciprocal", "fast_rsqrt",
    )
} | {"rint": "round", "fabs": "abs"}  # fmt: skip
BINARY_MATH = {
    "pow": "pow", "fmod": "fmod", "atan2": "atan2", "hypot": "hypot", "copysign": "copysign",
    "fast_divide": "fast_divide", "fast_pow": "fast_pow",
}  # fmt: skip
BIT_FUNCTIONS = ("popc", "clz", "ffs", "brev", "mulhi")
WARP_SHUFFLES = ("shfl", "shfl_up", "shfl_down", "shfl_xor")
WARP_VOTES = ("ballot", "any", "all", "match")
WARP_REDUCTIONS = {
    f"warp_{name}": name for name in ("sum", "min", "max", "and", "or", "xor")
}  # fmt: skip
ATOMICS = (
    "atomic_add", "atomic_sub", "atomic_min", "atomic_max", "atomic_and", "atomic_or",
    "atomic_xor", "atomic_inc", "atomic_dec", "atomic_exch", "atomic_cas", "atomic_load",
    "atomic_store", "volatile_load", "volatile_store",
)  # fmt: skip
_OTHERS = (
    "syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "syncwarp",
    "activemask", "grid_sync", "cluster_sync", "fence", "threadfence", "threadfence_block",
    "threadfence_system", "shared", "local", "unroll", "grid_stride", "grid", "fma", "bitcast",
    "load2", "load4", "load8", "store2", "store4", "store8", "cp_async",
    "cp_async_commit", "cp_async_wait", "remote",
)  # fmt: skip
INTRINSICS: dict[str, Intrinsic] = {
    name: Intrinsic(name)
    for name in (
        *UNARY_MATH, *BINARY_MATH, *BIT_FUNCTIONS, *WARP_SHUFFLES, *WARP_VOTES, *WARP_REDUCTIONS,
        *ATOMICS, *_OTHERS,
    )
}  # fmt: skip
# What CUDA has and this language refuses, with what to use instead.
REFUSED = {
    "wgmma": "use simt.wmma fragments, or tile.dot",
    "tma": "use cp_async, which copies without the tensor memory accelerator",
    "malloc": "pass an array, or use simt.local(shape, type)",
}


class WarpMatrix:
    """`simt.wmma`: tensor-core fragments, with nvcuda::wmma's names."""

    fragment = Intrinsic("wmma.fragment")
    fill_fragment = Intrinsic("wmma.fill_fragment")
    load_matrix_sync = Intrinsic("wmma.load_matrix_sync")
    mma_sync = Intrinsic("wmma.mma_sync")
    store_matrix_sync = Intrinsic("wmma.store_matrix_sync")


wmma = WarpMatrix()
# Every name that means something in a kernel, by what it means there.
NAMES: dict[str, Any] = {
    **INTRINSICS, **{element.name: element for element in ELEMENTS},
    "threadIdx": threadIdx, "blockIdx": blockIdx, "blockDim": blockDim, "gridDim": gridDim,
    "lane": lane, "warp": warp, "cluster_rank": cluster_rank, "cdiv": cdiv, "dynamic": dynamic,
    "constant": constant, "wmma": wmma, "out": out, "inout": inout, "const": const,
    "typevar": typevar,
}  # fmt: skip


def __getattr__(name: str) -> Intrinsic:
    if name in INTRINSICS:
        return INTRINSICS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
