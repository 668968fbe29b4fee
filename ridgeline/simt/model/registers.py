"""A kernel's registers and local memory: from its machine code, or estimated from its variables."""

from __future__ import annotations

import math
from typing import Literal

from ridgeline.codegen.cuda.cubin import KernelResources, kernel_resources
from ridgeline.codegen.cuda.nvrtc import CudaCompileError, NoCudaCompiler, compile_source
from ridgeline.ops.kernel_launch import KERNEL_OPTIONS
from ridgeline.simt.cuda.fragments import NoTensorCoreForm
from ridgeline.simt.cuda.text import NotForGpu, cuda_kernel
from ridgeline.simt.ir import ThreadArray, ThreadProgram
from ridgeline.simt.launch import ThreadLaunch

# registers a thread as somebody says, from NVRTC where it is installed, or estimated
RegisterCount = int | Literal["compiled"] | None
_BASE, _MOST = 14, 255


def estimated_registers(program: ThreadProgram) -> int:
    """Registers a thread: variables and small local arrays live in them, pointers take two."""
    count = _BASE
    for variable in program.variables:
        count += max(1, variable.dtype.itemsize // 4)
    for parameter in program.parameters:
        count += 2 if isinstance(parameter, ThreadArray) else 1
    for array in program.memories:
        if array.space == "local":
            size = math.prod(int(length) for length in array.shape)
            count += min(size * max(1, array.dtype.itemsize // 4), 128)
    for fragment in program.fragments:
        count += max(1, math.prod(fragment.shape) * fragment.dtype.itemsize // 128)
    return min(_MOST, -(-count // 8) * 8)


def compiled_resources(
    program: ThreadProgram, launch: ThreadLaunch, capability: int
) -> KernelResources | None:
    """What NVRTC makes of a kernel for a GPU; None where it cannot, or is not installed."""
    try:
        kernel = cuda_kernel(program, launch)
        cubin = compile_source(kernel.text, f"sm_{capability}", KERNEL_OPTIONS)
    except (NoCudaCompiler, CudaCompileError, NotForGpu, NoTensorCoreForm):
        return None
    return kernel_resources(cubin, kernel.symbol, capability)
