"""Kernels in typed Python: the CUDA programming model on a GPU, on a CPU, and in a simulator."""

from __future__ import annotations

from typing import Any

from ridgeline.simt import language, tile
from ridgeline.simt.autotuning import autotune
from ridgeline.simt.cuda_source import cuda
from ridgeline.simt.kernel import device, kernel
from ridgeline.simt.language import (
    blockDim,
    blockIdx,
    cdiv,
    cluster_rank,
    constant,
    dynamic,
    gridDim,
    lane,
    threadIdx,
    warp,
    wmma,
)
from ridgeline.simt.types import (
    bf16,
    bool_,
    const,
    e4m3,
    e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    inout,
    out,
    typevar,
    u8,
    u16,
    u32,
    u64,
)

__all__ = [
    "autotune",
    "bf16",
    "blockDim",
    "blockIdx",
    "bool_",
    "cdiv",
    "cluster_rank",
    "const",
    "constant",
    "cuda",
    "device",
    "dynamic",
    "e4m3",
    "e5m2",
    "f16",
    "f32",
    "f64",
    "gridDim",
    "i8",
    "i16",
    "i32",
    "i64",
    "inout",
    "kernel",
    "lane",
    "out",
    "threadIdx",
    "tile",
    "typevar",
    "u8",
    "u16",
    "u32",
    "u64",
    "warp",
    "wmma",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in language.INTRINSICS:
        return language.INTRINSICS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *language.INTRINSICS])
