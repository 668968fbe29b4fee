"""The op that launches a user-written kernel over a grid of threads.

The graph knows a kernel by its identity alone. How the host runs it and what its CUDA C++ is are
behind `UserKernel`, which `simt/` makes: nothing below it knows the language of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ridgeline.dtypes import DType
from ridgeline.errors import ComputeError, ShapeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, hashed_once, node, proj
from ridgeline.graph.sizes import Size
from ridgeline.ops.movement import concat, reshape, slice_
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching

# What kernels of users are compiled with. CUDA's own rounding: a product and a sum are one
# instruction where that is faster.
KERNEL_OPTIONS = ("--fmad=true",)
Three = tuple[int, int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ThreadLaunch:
    """Blocks of the grid and threads of a block along x, y and z; blocks that form a cluster."""

    grid: Three
    block: Three
    shared_bytes: int = 0
    cluster: Three = (1, 1, 1)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A kernel as CUDA C++: its text, and the name of its function.

    The function takes an address for each operand and result, in the order of the parameters
    (scalars too lie in memory), then one 32-bit integer for every extent.
    """

    text: str
    symbol: str
    static_shared: int = 0
    cooperative: bool = False
    cluster: int = 1


@dataclass(frozen=True)
class UserKernel:
    """A kernel's identity, which is compared and printed, and the ways to run it, which are not.

    `host(grid, arrays)` runs it over arrays in the order of its parameters, of which it writes
    those that are results; it is None where a kernel runs on a GPU alone, and then nothing but
    compiled code launches it. `cuda(grid)` gives its text.
    """

    name: str
    key: str
    host: Callable[[ThreadLaunch, Sequence[Array]], None] | None = field(compare=False, repr=False)
    cuda: Callable[[ThreadLaunch], CudaKernel] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """An array that a kernel writes: a new one, or what it makes of an operand."""

    parameter: int  # its place among the kernel's parameters
    operand: int | None  # the number of the operand whose elements it starts from
    shape: tuple[Size, ...]
    dtype: DType


@hashed_once
@dataclass(frozen=True, eq=True)
class LaunchAttrs(Attrs):
    """Which kernel runs, over how many threads, and what it writes.

    `extents` are the sizes that the kernel asks for, in its own order.
    """

    kernel: UserKernel
    grid: ThreadLaunch
    results: tuple[LaunchResult, ...]
    extents: tuple[int, ...]
    device: str


def launch(operands: Sequence[Node], attrs: LaunchAttrs) -> list[Node]:
    """The arrays that a kernel writes, in the order of its parameters."""
    made = node(KERNEL_LAUNCH, tuple(operands), attrs)
    return [proj(made, number) for number in range(len(attrs.results))]


def parameters(attrs: LaunchAttrs, operands: Sequence[T], results: Sequence[T]) -> list[T]:
    """Operands and results in the order of the kernel's parameters.

    A result that starts from an operand stands in its place.
    """
    replaced = {r.operand for r in attrs.results}
    rest = iter([o for number, o in enumerate(operands) if number not in replaced])
    written = {result.parameter: value for result, value in zip(attrs.results, results)}
    count = len(operands) + sum(result.operand is None for result in attrs.results)
    return [written[n] if n in written else next(rest) for n in range(count)]


def _infer(types: Sequence[TensorType], attrs: LaunchAttrs) -> tuple[TensorType, ...]:
    if not attrs.results:
        raise ShapeError(
            f"{attrs.kernel.name} writes no array: nothing would come of its launch",
            help="under jit and on a GPU give it an out or inout array",
        )
    return tuple(TensorType(r.shape, r.dtype, attrs.device) for r in attrs.results)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    attrs: LaunchAttrs = current.attrs
    if attrs.kernel.host is None:
        raise ComputeError(
            f"{attrs.kernel.name} runs on a GPU, and this is to be computed on the host",
            help='leave config.tier at "auto", and look for anomalies without it',
        )
    made = tuple(
        np.zeros(made.shape, made.dtype.numpy)
        if result.operand is None
        else np.array(inputs[result.operand], order="C")
        for result, made in zip(attrs.results, current.types)
    )
    dense = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
    attrs.kernel.host(attrs.grid, parameters(attrs, dense, made))
    return made


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """One launch for each element of the new axis: a kernel owns its grid."""
    if not isinstance(batching.size, int):
        raise ShapeError(f"vmap over {current.attrs.kernel.name} needs an axis of known length")
    columns: list[list[Node]] = [[] for _ in current.types]
    for number in range(batching.size):
        operands = [_row(i, number) if b else i for i, b in zip(inputs, batched)]
        for column, made in zip(columns, launch(operands, current.attrs)):
            column.append(reshape(made, (1, *made.shape)))
    return [concat(column, 0) for column in columns]


def _row(value: Node, number: int) -> Node:
    shape = value.shape[1:]
    starts = (number, *(0 for _ in shape))
    return reshape(slice_(value, starts, (1, *shape), (1,) * (len(shape) + 1)), shape)


def has_host_form(node: Node) -> bool:
    """False for the launch of a kernel that runs on a GPU alone."""
    return node.op is not KERNEL_LAUNCH or node.attrs.kernel.host is not None


KERNEL_LAUNCH = Op(
    "kernel_launch", "library", _infer, _value, batch=_batch,
    hint="give the kernel a rule: @kernel.backward",
)  # fmt: skip
