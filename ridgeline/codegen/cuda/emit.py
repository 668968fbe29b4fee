"""Loop IR to CUDA C++: one `__global__` function for every launch of a kernel.

Grid loops become the block's number; what is inside them is emitted by `statements.py` (threads),
`vectors.py` and `writes.py`. Register buffers become variables and arrays that the compiler keeps
in registers because all their indices are constants after unrolling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ridgeline.codegen.cuda.access import plain_name
from ridgeline.codegen.cuda.cheap_functions import few_steps
from ridgeline.codegen.cuda.hopper import product_source
from ridgeline.codegen.cuda.parameters import parameters, pointer_types
from ridgeline.codegen.cuda.prelude import CLUSTER, PRELUDE
from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.codegen.cuda.statements import Statements, static_bytes
from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, Buffer, Const, For, Kernel, Seq, Stmt
from ridgeline.loops.legalize import SHORTEN_INDICES, legalized
from ridgeline.loops.steps.bind import launches
from ridgeline.loops.tensor_cores import tile_around

_WORKSPACE_ALIGN = 256
_WARP = 32
_REMEMBERED = 512  # kernels whose text is kept


LEGALIZE = (SHORTEN_INDICES,)


@lru_cache(maxsize=_REMEMBERED)  # a layout asks how to launch what is compiled after it
def generate(kernel: Kernel) -> KernelSource:
    """The text of a scheduled kernel, and how to launch it."""
    product = tile_around(kernel.body)
    if product is not None:
        return product_source(kernel, *product)
    emitters, size = _emitters(kernel, "blockIdx.x")
    functions = [emitter.text() for emitter in emitters]
    cluster = any(e.launch.cluster > 1 for e in emitters)
    text = PRELUDE + (CLUSTER if cluster else "") + "\n".join(functions)
    return KernelSource(kernel.name, text, tuple(e.launch for e in emitters), size)


def _emitters(kernel: Kernel, block: str) -> tuple[list[LaunchEmitter], int]:
    """What emits each launch, and the bytes of the workspace between them."""
    body = legalized(kernel.body, LEGALIZE)
    nests = [n for n in launches(body) if not (isinstance(n, Seq) and not n.body)]
    offsets: dict[str, int] = {}
    size = 0
    for buffer in _workspaces(kernel.body):
        offsets[buffer.name] = size
        size += -(-static_bytes(buffer) // _WORKSPACE_ALIGN) * _WORKSPACE_ALIGN
    name = plain_name(kernel.name)
    made = [
        LaunchEmitter(kernel, nest, f"{name}_{i}", offsets, block) for i, nest in enumerate(nests)
    ]
    return made, size


@dataclass(frozen=True, slots=True)
class Functions:
    """A kernel as functions that launches call with the number of a block, one after the other."""

    texts: tuple[str, ...]
    launches: tuple[Launch, ...]
    types: tuple[str, ...]  # of the pointers they take, without the workspace
    workspace_bytes: int

    def block_of(self, launch: int) -> int:
        """The block size that a launch needs; 0 if any that is large enough will do.

        Whole warps without work delay nobody unless a block waits for all of its warps.
        """
        text, block = self.texts[launch], self.launches[launch].block
        warps = block % _WARP == 0 or ("__shfl" not in text and "__syncwarp" not in text)
        return 0 if warps and "__syncthreads" not in text else block


@lru_cache(maxsize=_REMEMBERED)
def functions_of(kernel: Kernel) -> Functions:
    """The launches of a kernel as functions."""
    emitters, size = _emitters(kernel, "block")
    texts = tuple(emitter.text() for emitter in emitters)
    types = tuple(emitters[0].types()) if emitters else ()
    return Functions(texts, tuple(e.launch for e in emitters), types, size)


def _workspaces(body: Stmt) -> Iterator[Buffer]:
    while isinstance(body, Alloc) and body.buffer.scope == "global":
        yield body.buffer
        body = body.body


class LaunchEmitter(Statements):
    """Emits one launch."""

    def __init__(
        self,
        kernel: Kernel,
        nest: Stmt,
        symbol: str,
        workspaces: dict[str, int],
        block: str = "blockIdx.x",
    ) -> None:
        self.kernel, self.symbol, self._block = kernel, symbol, block
        self.grid: list[For] = []
        whole = nest
        while isinstance(nest, For) and nest.kind == "grid":
            self.grid.append(nest)
            nest = nest.body
        self.body = nest
        super().__init__(nest, _ranges(whole), workspaces)
        self.values.variables.update({name: plain_name(name) for name in kernel.sizes})
        self.values.near = few_steps(kernel, whole)

    @property
    def launch(self) -> Launch:
        """How to launch it."""
        return Launch(
            self.symbol, tuple(loop.extent for loop in self.grid), self.threads.block,
            self.shared_bytes, self.threads.cluster,
        )  # fmt: skip

    def text(self) -> str:
        """The whole function."""
        cluster = self.threads.cluster
        self._grid_variables()
        if cluster > 1:
            self.lines.line("const int rank = (int)rl_cluster_rank();")
            self.lines.line(f"const int tid = rank * {self.threads.block} + (int)threadIdx.x;")
            self.lines.line("rl_cluster_sync();")  # all blocks run before one writes to another
        else:
            self.lines.line("const int tid = (int)threadIdx.x;")
        self.lines.line("(void)tid;")
        self.folded = [loop.name for loop in self.grid if loop.axis == "reduce"]
        self.statement(self.body)
        if self._block == "blockIdx.x":
            head = 'extern "C" __global__ void '
            head += f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
            head += f"__launch_bounds__({self.threads.block}) {self.symbol}({self._parameters()})"
        else:
            given = f"const unsigned int {self._block}, {self._parameters()}"
            head = f"static __device__ __forceinline__ void {self.symbol}({given})"
        head += " {"
        shared = "  extern __shared__ __align__(16) unsigned char shared_memory[];"
        return "\n".join([head, *[shared] * bool(self.shared_bytes), *self.lines.text, "}", ""])

    def types(self) -> Iterator[str]:
        """The types of the pointers it takes."""
        return pointer_types(self.kernel)

    def _parameters(self) -> str:
        return parameters(self.kernel, bool(self.workspaces))

    def _grid_variables(self) -> None:
        cluster = self.threads.cluster
        rest = self._block if cluster == 1 else f"({self._block} / {cluster}u)"
        for loop in reversed(self.grid):
            name = self._declare(loop.name)
            if loop is self.grid[0]:
                self.lines.line(f"const {self.index_type(loop)} {name} = {rest};")
            else:
                extent = self.values.value(loop.extent)
                self.lines.line(f"const {self.index_type(loop)} {name} = {rest} % {extent};")
                rest = f"({rest} / {extent})"


def _ranges(nest: Stmt) -> dict[str, tuple[int, int]]:
    """The ranges of loop variables of known length, if they fit 32 bits."""
    found: dict[str, tuple[int, int]] = {}
    unknown: set[str] = set()
    for loop in ir.statements(nest):
        if isinstance(loop, For):
            most = int(loop.extent.value) - 1 if isinstance(loop.extent, Const) else 1 << 31
            if most >= 1 << 31:
                unknown.add(loop.name)
            found[loop.name] = (0, max(most, found.get(loop.name, (0, 0))[1], 0))
    return {name: known for name, known in found.items() if name not in unknown}
