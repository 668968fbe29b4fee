"""CUDA C++ of user kernels run on the CPU, as C++: a thread is a context, a block a system thread.

Contexts of a block take turns where they wait for one another: at barriers, at warp operations, and
in every `while`, for another thread may end it. What PTX instructions do is written out in C++;
tensor cores, clusters and the latency of copies are not there. All kernels of a list are compiled
in one go.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ridgeline.codegen.cuda.prelude import PRELUDE
from ridgeline.ops.kernel_launch import CudaKernel, ThreadLaunch
from ridgeline.simt.cuda.text import cuda_kernel, size_names
from ridgeline.simt.cuda.warp_prelude import WARP_PRELUDE
from ridgeline.simt.ir import ThreadProgram, Variable
from ridgeline.simt.kernel import SimtKernel
from ridgeline.simt.launch import array_shape, thread_launch

_MACHINE = (Path(__file__).parent / "emulated_machine.h").read_text()
_PTX = (  # what is left of PTX without an architecture, in C++
    (r'asm\("cvt\.f32\.f16 .*?\);', "{ _Float16 h; memcpy(&h, &x, 2); y = (float)h; }"),
    (r'asm\("cvt\.rn\.f16\.f32 .*?\);', "{ _Float16 h = (_Float16)x; memcpy(&y, &h, 2); }"),
    (r'asm\("ex2\.approx\.ftz\.f32 .*?\);', "y = exp2f(x);"),
    (r'asm\("sqrt\.approx\.ftz\.f32 .*?\);', "y = sqrtf(x);"),
    (r'asm\("rcp\.approx\.ftz\.f32 .*?\);', "inverse = 1.0f / grown;"),
    (r"asm( volatile)?\(.*?\);", "__trap();"),
)


@dataclass(frozen=True)
class CudaRun:
    """A launch to emulate: its arrays and scalars by name, and the sizes of its arrays."""

    program: ThreadProgram
    launch: ThreadLaunch
    arrays: Mapping[str, Any]
    scalars: Mapping[str, Any]
    sizes: Mapping[str, int]

    @property
    def text(self) -> CudaKernel:
        """What a GPU would be given."""
        return cuda_kernel(self.program, self.launch)


def cuda_run(
    kernel: SimtKernel, grid: Any, block: Any, *arguments: Any, **keywords: Any
) -> CudaRun:
    """A launch as `kernel.simulate` takes it."""
    shared, cluster = keywords.pop("shared", 0), keywords.pop("cluster", 1)
    launch = thread_launch(grid, block, shared, cluster)
    program, *values = kernel.bound(arguments, keywords)
    return CudaRun(program, launch, *values)


def joined_text(runs: Sequence[CudaRun]) -> str:
    """The CUDA C++ of many kernels as one source, as NVRTC takes it."""
    return PRELUDE + WARP_PRELUDE + "".join(_bodies(runs).values())


def _bodies(runs: Sequence[CudaRun]) -> dict[str, str]:
    """Each kernel without the functions that all have, by its symbol."""
    made = {run.text.symbol: run.text.text.split(WARP_PRELUDE)[1] for run in runs}
    return {symbol: f"namespace in_{symbol} {{\n{body}\n}}\n" for symbol, body in made.items()}


class Emulator:
    """The kernels of some launches, compiled as C++."""

    def __init__(self, runs: Sequence[CudaRun], folder: Path) -> None:
        text = PRELUDE + WARP_PRELUDE
        for pattern, replacement in _PTX:
            text = re.sub(pattern, replacement, text, flags=re.DOTALL)
        text += "".join(_as_cpp(body) for body in _bodies(runs).values())
        text += "".join(_entry(run) for run in {run.text.symbol: run for run in runs}.values())
        source = folder / "kernels.cpp"
        source.write_text(_MACHINE + text)
        library = source.with_suffix(".so")
        command = ["g++", "-std=c++20", "-O1", "-w", "-pthread", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", library, source], check=True)
        self.library = ctypes.CDLL(str(library))

    def run(self, one: CudaRun) -> dict[str, np.ndarray[Any, Any]]:
        """The results of a launch, by name."""
        operands: list[np.ndarray[Any, Any]] = []
        for parameter in one.program.parameters:
            if isinstance(parameter, Variable):
                value = np.array([one.scalars[parameter.name]])
            elif parameter.access == "out":
                value = np.zeros(array_shape(parameter, one.sizes))
            else:
                value = np.array(one.arrays[parameter.name])
            operands.append(np.ascontiguousarray(value.astype(parameter.dtype.numpy)))
        pointers = (ctypes.c_void_p * len(operands))(*(a.ctypes.data for a in operands))
        names = size_names(one.program)
        extents = (ctypes.c_int * (len(names) + 1))(*(one.sizes[name] for name in names))
        shape = (ctypes.c_int * 7)(*one.launch.grid, *one.launch.block, self._bytes(one))
        assert getattr(self.library, f"run_{one.text.symbol}")(pointers, extents, shape) == 0
        return {
            parameter.name: value
            for parameter, value in zip(one.program.parameters, operands)
            if not isinstance(parameter, Variable) and parameter.access != "in"
        }

    def _bytes(self, one: CudaRun) -> int:
        return one.launch.shared_bytes + one.text.static_shared

    def printed(self) -> list[str]:
        """What kernels printed since the last time, line by line."""
        length = self.library.printed_length()
        kept = ctypes.create_string_buffer(length + 1)
        self.library.take_printed(kept)
        return kept.value.decode().splitlines()


def _as_cpp(body: str) -> str:
    body = re.sub(r"extern __shared__ .*?;", "unsigned char *shared_memory = block_memory;", body)
    body = re.sub(
        r"^( *)while \((.*)\) \{$", r"\1while (others_first() && (\2)) {", body, flags=re.M
    )
    return re.sub(r"^#line.*$|^ *#pragma.*$", "", body, flags=re.M)


def _entry(run: CudaRun) -> str:
    made = run.text
    given = [f"Any{{operands[{n}]}}" for n in range(len(run.program.parameters))]
    given += [f"extents[{n}]" for n in range(len(size_names(run.program)))]
    given += ["&grid_barrier"] if made.cooperative else []
    return f"""
extern "C" int run_{made.symbol}(void **operands, const int *extents, const int *shape) {{
  unsigned int grid_barrier = 0;
  return launch(shape, [&] {{ in_{made.symbol}::{made.symbol}({", ".join(given)}); }});
}}
"""
