"""Launches of user-written kernels as steps of a plan.

An array that a kernel writes in place is copied first: graphs hold values, and the operand is
another one than the result. The copy is a launch too, so the whole joins CUDA graphs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.errors import RidgelineError
from ridgeline.fusion.groups import FusionGroup
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import product
from ridgeline.loops.ir import index
from ridgeline.ops.kernel_launch import (
    KERNEL_LAUNCH,
    KERNEL_OPTIONS,
    CudaKernel,
    LaunchAttrs,
    parameters,
)
from ridgeline.ops.strides import View, itself
from ridgeline.runtime.cuda.driver import function
from ridgeline.runtime.cuda.launches import Starting
from ridgeline.runtime.cuda.module import DeviceFunction
from ridgeline.runtime.cuda.steps import ArgumentWords, KernelStep, LaunchStep

_COPY = """
extern "C" __global__ void {symbol}_copy(const unsigned char *from, unsigned char *to, int n) {{
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  const int words = n / 4;
  if (i < words) ((unsigned int *)to)[i] = ((const unsigned int *)from)[i];
  else if (i - words < n % 4) to[words * 4 + i - words] = from[words * 4 + i - words];
}}
"""
_BARRIER = """
extern "C" __global__ void {symbol}_barrier(unsigned int *arrived) {{ *arrived = 0; }}
"""
_BARRIER_BYTES = 4
_COPY_THREADS = 256
_MOST_COPIED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GridLaunch:
    """A launch of a user's kernel: copies of what it writes in place, then its grid.

    `order` has, for each of the kernel's parameters, the number of its slot among those of the
    call; `copies` pairs of slots with their bytes; `extents` the sizes that the kernel takes.
    """

    workspace: int
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    order: tuple[int, ...]
    copies: tuple[tuple[int, int, int], ...]
    extents: tuple[int, ...]
    cooperative: bool = False  # all blocks run at once, and wait for one another

    def steps(self, slots: tuple[int, ...], on: Starting) -> Iterator[LaunchStep]:
        """The copies and the launch."""
        for source, target, count in self.copies:
            blocks = -(-(count // 4 + count % 4) // _COPY_THREADS)
            yield GridStep(
                on.modules[f"{self.symbol}_copy"], (blocks, 1, 1), (_COPY_THREADS, 1, 1), 0,
                (slots[source], slots[target]), (count,), on.words,
            )  # fmt: skip
        arguments = tuple(max(slots[number], 0) for number in self.order)
        if self.cooperative:
            yield GridStep(
                on.modules[f"{self.symbol}_barrier"], (1, 1, 1), (1, 1, 1), 0, (on.workspace,), (),
                on.words,
            )  # fmt: skip
        yield GridStep(
            on.modules[self.symbol], self.grid, self.block, self.shared_bytes, arguments,
            self.extents, on.words, (on.workspace,) if self.cooperative else (),
        )  # fmt: skip


class GridStep(KernelStep):
    """A launch with a grid of up to three axes, which takes addresses and then 32-bit numbers."""

    def __init__(
        self,
        kernel: DeviceFunction,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        slots: Sequence[int],
        numbers: Sequence[int],
        words: ArgumentWords,
        barrier: Sequence[int] = (),
    ) -> None:
        """`barrier` has the slot of the word at which all blocks meet, behind the numbers."""
        super().__init__(kernel, grid[0], block[0], shared, 1, (*slots, *barrier), words)
        self._grid, self._block = grid, block
        if barrier:
            self._launch = function("cuLaunchCooperativeKernel")
        self._tail = () if barrier else (0,)
        self._numbers = (ctypes.c_int * max(len(numbers), 1))(*numbers)
        first = ctypes.addressof(self._numbers)
        pointers = [words.start + 8 * slot for slot in slots]
        pointers += [first + 4 * n for n in range(len(numbers))]
        pointers += [words.start + 8 * slot for slot in barrier]
        self._pointers = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        self.arguments = ctypes.addressof(self._pointers)


class UserKernels:
    """Launches of kernels that users wrote."""

    ops = (KERNEL_LAUNCH,)

    def __init__(self, shared_bytes: int) -> None:
        """`shared_bytes`: what a block of the device can have."""
        self._most_shared = shared_bytes

    def operands(self, node: Node, graph: Graph) -> Sequence[View]:
        """Every operand in order: kernels index dense arrays."""
        return [*map(itself, node.inputs)]

    def launch(self, group: FusionGroup) -> GridLaunch | None:
        """The launch, over the operands and results of a call."""
        assert group.apart is not None
        attrs, kernel = self._kernel(group.apart)
        operands = len(group.apart.inputs)
        results = [operands + number for number in range(len(attrs.results))]
        order = parameters(attrs, range(operands), results)
        shared = attrs.grid.shared_bytes + kernel.static_shared
        if shared > self._most_shared:
            raise RidgelineError(
                f"{attrs.kernel.name} takes {shared} bytes of shared memory a block, and this "
                f"GPU has {self._most_shared}",
                help="use a smaller tile, or fewer buffers",
            )
        return GridLaunch(
            _BARRIER_BYTES * kernel.cooperative, kernel.symbol, attrs.grid.grid, attrs.grid.block,
            shared,
            tuple(int(number) for number in order), tuple(self._copies(group.apart, attrs)),
            attrs.extents, kernel.cooperative,
        )  # fmt: skip

    def _copies(self, node: Node, attrs: LaunchAttrs) -> Iterator[tuple[int, int, int]]:
        for number, result in enumerate(attrs.results):
            if result.operand is not None:
                count = product(result.shape) * result.dtype.itemsize
                if not isinstance(count, int) or count > _MOST_COPIED:
                    raise RidgelineError(f"{attrs.kernel.name} writes more than 2 GB in place")
                if count:
                    yield result.operand, len(node.inputs) + number, count

    def source(self, group: FusionGroup) -> KernelSource:
        """The text, with a function that copies what is written in place."""
        assert group.apart is not None
        attrs, kernel = self._kernel(group.apart)
        block = attrs.grid.threads
        shared = attrs.grid.shared_bytes + kernel.static_shared
        launches = [Launch(kernel.symbol, (index(attrs.grid.blocks),), block, shared)]
        text = kernel.text
        if any(result.operand is not None for result in attrs.results):
            text += _COPY.format(symbol=kernel.symbol)
            launches.append(Launch(f"{kernel.symbol}_copy", (index(1),), _COPY_THREADS, 0))
        if kernel.cooperative:
            text += _BARRIER.format(symbol=kernel.symbol)
            launches.append(Launch(f"{kernel.symbol}_barrier", (index(1),), 1, 0))
        return KernelSource(kernel.symbol, text, tuple(launches), options=KERNEL_OPTIONS)

    def _kernel(self, node: Node) -> tuple[LaunchAttrs, CudaKernel]:
        attrs: LaunchAttrs = node.attrs
        return attrs, attrs.kernel.cuda(attrs.grid)
