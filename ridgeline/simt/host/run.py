"""Programs of threads as machine code of the host, compiled once and run over the thread pool."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ridgeline.codegen.llvm.machine_code import Library, compile_optimized
from ridgeline.config import config
from ridgeline.errors import RidgelineError
from ridgeline.ops.kernel_launch import ThreadLaunch
from ridgeline.runtime.cpu.executor import NativePlan, NativeStep
from ridgeline.scalars import Array
from ridgeline.simt import ir
from ridgeline.simt.host.accesses import ASSERTION, DIVERGENT, OUT_OF_BOUNDS
from ridgeline.simt.host.analysis import analysed
from ridgeline.simt.host.apart import run_apart
from ridgeline.simt.host.blocks import BlockFunction, extents
from ridgeline.simt.traversal import walk
from ridgeline.weak import Recent, fingerprint

_MOST_KERNELS = 256
_STOPPED = 1 << 62  # in the word that loops look at: no error, but they are to end
_TASKS_A_THREAD = 8
_SAYS = {
    OUT_OF_BOUNDS: ("an index is out of bounds", "guard it: `if i < a.shape[0]:`, or a.get(i, 0)"),
    ASSERTION: ("an assertion does not hold", ""),
    DIVERGENT: (
        "some threads of a block reach a barrier and others do not",
        "move the barrier out of the branch, or make its condition the same for the whole block",
    ),
}


class LaunchFault(RidgelineError, IndexError):
    """A launch on the host did what a kernel must not do; the line is named."""

    code = "RL0843"


@dataclass(frozen=True, slots=True)
class HostKernel:
    """Machine code for blocks of one shape, and the places its reports name."""

    program: ir.ThreadProgram
    library: Library
    address: int
    places: tuple[ir.SourcePlace, ...]
    may_loop: bool  # it has loops whose end is not known, which look whether they are to stop

    def run(self, grid: ThreadLaunch, arrays: Sequence[Array]) -> None:
        """Run all blocks over the arrays and scalars of the parameters, in their order."""
        sizes = [
            arrays[self.program.parameters.index(array)].shape[axis]
            for array, axis in extents(self.program)
        ]
        numbers = np.array([*grid.grid, *sizes], np.int64)
        fault = np.zeros(1, np.int64)
        held = [*arrays, numbers, fault]
        threads = max(config.threads, 1)
        grain = max(1, grid.blocks // (threads * _TASKS_A_THREAD))
        step = NativeStep(self.address, tuple(range(len(held))), grid.blocks, grain, self.library)
        if grid.blocks:
            plan, addresses = NativePlan([step], len(held)), [a.ctypes.data for a in held]
            if self.may_loop and threading.current_thread() is threading.main_thread():
                run_apart(partial(plan.run, addresses), partial(fault.fill, _STOPPED))
            else:
                plan.run(addresses)
        if fault[0]:
            self._raise(int(fault[0]))

    def _raise(self, code: int) -> None:
        what, number = code >> 32, code & 0xFFFFFFFF
        place = self.places[number - 1]
        text = self.program.source.lines[place.line - self.program.source.first].strip()
        sentence, help = _SAYS[what]
        raise LaunchFault(
            f"{sentence} in {self.program.name}, {place.path}:{place.line}", note=text, help=help
        )


_kernels: Recent[str, HostKernel] = Recent(_MOST_KERNELS)
_lock = threading.Lock()


def host_kernel(program: ir.ThreadProgram, key: str, grid: ThreadLaunch) -> HostKernel:
    """The machine code of a program for a launch's blocks; `NotForHost` where there is none."""
    name = f"{key} {grid.block} {grid.shared_bytes}"
    with _lock:
        found = _kernels.get(name)
    if found is None:
        found = _compiled(program, f"simt_{program.name}_{fingerprint(name, 8)}", grid)
        with _lock:
            _kernels.keep(name, found)
    return found


def source(program: ir.ThreadProgram, grid: ThreadLaunch, symbol: str = "") -> str:
    """The LLVM IR of a program."""
    of = analysed(program, grid.block, grid.shared_bytes)
    return BlockFunction(of, symbol or program.name).text()


def _compiled(program: ir.ThreadProgram, symbol: str, grid: ThreadLaunch) -> HostKernel:
    of = analysed(program, grid.block, grid.shared_bytes)
    text = BlockFunction(of, symbol).text()
    library = Library.load(compile_optimized(text), lasting=False)
    may_loop = any(isinstance(s, ir.WhileLoop) for s in walk(program.body))
    return HostKernel(program, library, library.address(symbol), tuple(of.places), may_loop)
