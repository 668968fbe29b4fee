"""Scheduled loops to CUDA C++, and CUDA C++ to machine code.

    generate(kernel) -> KernelSource            loops with grid and thread kinds, as CUDA C++ text
    compile_source(text, arch) -> bytes         NVRTC, kept on disk; `begin` does so in a thread
    schedules/gpu/default.py: steps(lowered, gpu) -> list of schedule steps for one kernel

A kernel is one or more launches, to be issued in order on one stream: a loop nest per launch. Every
launch of a kernel takes the same arguments: a pointer for each of `kernel.params` in order (views
of one slot get the same pointer), then a pointer to a workspace of `workspace_bytes` where there is
one, then the kernel's sizes as 64-bit integers. No memory needs to be cleared beforehand.
"""

from ridgeline.codegen.cuda.emit import generate
from ridgeline.codegen.cuda.nvrtc import (
    CudaCompileError,
    NoCudaCompiler,
    begin,
    compile_all,
    compile_source,
)
from ridgeline.codegen.cuda.source import KernelSource, Launch

__all__ = [
    "CudaCompileError", "KernelSource", "Launch", "NoCudaCompiler", "begin", "compile_all",
    "compile_source", "generate",
]  # fmt: skip
