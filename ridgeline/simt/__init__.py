"""Kernels in typed Python: the CUDA programming model on a GPU, on a CPU, and in a simulator."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from ridgeline.simt import language, tile
from ridgeline.simt.autotuning import autotune
from ridgeline.simt.cuda_source import cuda
from ridgeline.simt.kernel import device, kernel

if TYPE_CHECKING:
    from ridgeline.simt.language import (
        blockDim as blockDim,
        blockIdx as blockIdx,
        cdiv as cdiv,
        cluster_rank as cluster_rank,
        constant as constant,
        dynamic as dynamic,
        gridDim as gridDim,
        lane as lane,
        threadIdx as threadIdx,
        warp as warp,
        wmma as wmma,
    )
    from ridgeline.simt.types import (
        bf16 as bf16,
        bool_ as bool_,
        const as const,
        e4m3 as e4m3,
        e5m2 as e5m2,
        f16 as f16,
        f32 as f32,
        f64 as f64,
        i8 as i8,
        i16 as i16,
        i32 as i32,
        i64 as i64,
        inout as inout,
        out as out,
        typevar as typevar,
        u8 as u8,
        u16 as u16,
        u32 as u32,
        u64 as u64,
    )

# `import *` brings the whole language, but what Python has under the same name (any, all, pow)
__all__ = ["autotune", "cuda", "device", "kernel", "tile"]
__all__ += sorted(name for name in language.NAMES if not hasattr(builtins, name))


def __getattr__(name: str) -> Any:
    if name in language.NAMES:
        return language.NAMES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *language.NAMES})
