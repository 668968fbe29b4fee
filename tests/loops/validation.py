"""Translation validation: two kernels run in the loop interpreter on the same random memory."""

from __future__ import annotations

import ctypes
from typing import Literal

import numpy as np

from ridgeline.codegen.llvm.emit import module_text
from ridgeline.codegen.llvm.machine_code import Library, compile_ir, target
from ridgeline.loops import ir
from ridgeline.loops.analysis.counts import bound_to, useful
from ridgeline.loops.interpreter.interpret import interpret
from ridgeline.loops.ir import Kernel, named
from ridgeline.runtime.cpu.backend import task_count
from ridgeline.scalars import Array

_MOST_SHUFFLED = 2000  # operations; a shuffled run takes them one by one


def memory_for(kernel: Kernel, sizes: dict[str, int], seed: int = 0) -> dict[int, Array]:
    """Random arrays for a kernel's slots; integers are small enough to serve as indices."""
    rng = np.random.default_rng(seed)
    found: dict[int, Array] = {}
    for param in bound_to(kernel, sizes).params:
        shape = [int(s.value) for s in param.shape if isinstance(s, ir.Const)]
        if param.dtype.kind == "float":
            raw = rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape)
        elif param.dtype.kind == "bool":
            raw = rng.random(shape) < 0.5
        else:
            raw = rng.integers(0, 3, shape)
        size = found[param.slot].size if param.slot in found else 0
        if np.size(raw) > size:
            found[param.slot] = np.asarray(raw).astype(param.dtype.numpy)
    return found


def run_native(kernel: Kernel, memory: dict[int, Array]) -> dict[int, Array]:
    """What the machine code of a kernel leaves in copies of the given memory."""
    final = named(kernel)
    code = compile_ir(module_text([final], target().vector_bits // 8))
    address = Library.load(code).address(final.name)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    found = {slot: array.copy() for slot, array in memory.items()}
    addresses = (ctypes.c_void_p * len(final.params))(
        *(found[p.slot].ctypes.data for p in final.params)
    )
    call(addresses, 0, task_count(final))
    return found


def same_results(
    before: Kernel,
    after: Kernel,
    sizes: dict[str, int] | None = None,
    memory: dict[int, Array] | None = None,
    tolerance: float = 2e-5,
    native: bool = False,
) -> None:
    """Fail unless both kernels leave the same memory, small ones in any order of iterations.

    The interpreter also fails on accesses out of bounds, uninitialised reads and races. With
    `native`, so must the machine code of the second kernel.
    """
    sizes = sizes or {}
    start = memory if memory is not None else memory_for(before, sizes)
    expected = {slot: array.copy() for slot, array in start.items()}
    interpret(before, expected, sizes)
    small = (
        sum(n.at(sizes.__getitem__) for n in useful(before).operations.values()) < _MOST_SHUFFLED
    )
    orders: list[Literal["program", "shuffled"]] = ["program", "shuffled"] if small else ["program"]
    for order in orders:
        found = {slot: array.copy() for slot, array in start.items()}
        interpret(after, found, sizes, order=order, seed=1)
        _agree(found, expected, tolerance)
    if native:
        _agree(run_native(after, start), expected, tolerance)


def _agree(found: dict[int, Array], expected: dict[int, Array], tolerance: float) -> None:
    for slot, array in expected.items():
        wide = np.float64 if array.dtype.kind in "fV" else array.dtype
        np.testing.assert_allclose(
            found[slot].astype(wide), array.astype(wide), rtol=tolerance, atol=tolerance
        )
