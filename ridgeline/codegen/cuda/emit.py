"""Loop IR to CUDA C++: one `__global__` function for every launch of a kernel.

Grid loops become the block's number, thread loops bits of the thread's number, vector loops
unrolled loops between accesses of up to 16 bytes, and register buffers variables and arrays that
the compiler keeps in registers because all their indices are constants after unrolling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from ridgeline.codegen.cuda.access import Registers, plain_name
from ridgeline.codegen.cuda.barriers import Touched, seen_by_several, touched
from ridgeline.codegen.cuda.near import few_steps
from ridgeline.codegen.cuda.prelude import CLUSTER, PRELUDE
from ridgeline.codegen.cuda.reductions import Joining, Site
from ridgeline.codegen.cuda.source import KernelSource, Launch
from ridgeline.codegen.cuda.threads import (
    CodegenError,
    Place,
    arrange,
    has_threads,
    spread,
    written_slots,
)
from ridgeline.codegen.cuda.types import (
    literal,
    memory_type,
    register_type,
)
from ridgeline.codegen.cuda.vectors import VectorLoops
from ridgeline.loops import ir
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Const,
    For,
    If,
    Kernel,
    Mma,
    Pipe,
    Reduce,
    Seq,
    Stmt,
)  # fmt: skip
from ridgeline.loops.monoids import MONOIDS, Monoid
from ridgeline.loops.short_indices import with_short_indices
from ridgeline.loops.steps.bind import launches

_UNROLLED = 4  # iterations of a serial loop whose loads are issued together
_UNROLLED_ROUNDS = 2  # the same of a loop around the threads of a block
_SHARED_ALIGN = 16
_WORKSPACE_ALIGN = 256
_WARP = 32
_REMEMBERED = 512  # kernels whose text is kept


@lru_cache(maxsize=_REMEMBERED)  # a layout asks how to launch what is compiled after it
def generate(kernel: Kernel) -> KernelSource:
    """The text of a scheduled kernel, and how to launch it."""
    emitters, size = _emitters(kernel, "blockIdx.x")
    functions = [emitter.text() for emitter in emitters]
    cluster = any(e.launch.cluster > 1 for e in emitters)
    text = PRELUDE + (CLUSTER if cluster else "") + "\n".join(functions)
    return KernelSource(kernel.name, text, tuple(e.launch for e in emitters), size)


def _emitters(kernel: Kernel, block: str) -> tuple[list[LaunchEmitter], int]:
    """What emits each launch, and the bytes of the workspace between them."""
    body = with_short_indices(kernel.body)
    nests = [n for n in launches(body) if not (isinstance(n, Seq) and not n.body)]
    offsets: dict[str, int] = {}
    size = 0
    for buffer in _workspaces(kernel.body):
        offsets[buffer.name] = size
        size += -(-_static_bytes(buffer) // _WORKSPACE_ALIGN) * _WORKSPACE_ALIGN
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
        """The block that a launch needs; 0 where any that is large enough will do.

        Whole warps that find nothing to do hold nobody up unless a block waits for all of them.
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


def _static_bytes(buffer: Buffer) -> int:
    total = buffer.dtype.itemsize
    for size in buffer.shape:
        if not isinstance(size, Const):
            raise CodegenError(f"the size of {buffer.name!r} is known only at run time")
        total *= int(size.value)
    return total


class LaunchEmitter(VectorLoops):
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
        super().__init__(arrange(nest), _ranges(whole), workspaces)
        self.values.variables.update({name: plain_name(name) for name in kernel.sizes})
        self.values.near = few_steps(kernel, whole)
        self.joining = Joining(self.lines, self.threads, self._reserve)
        self.shared_bytes = 0
        self.written = seen_by_several(nest)
        self.joined = self.waits = 0

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
        written = written_slots(self.kernel)
        for p in self.kernel.params:
            yield f"{'' if p.slot in written else 'const '}{memory_type(p.dtype)} *"

    def _parameters(self) -> str:
        written = written_slots(self.kernel)
        views = Counter(p.slot for p in self.kernel.params)
        parts = []
        for p in self.kernel.params:
            const = "" if p.slot in written else "const "
            alone = p.slot not in written or views[p.slot] == 1
            pointer = "* __restrict__" if alone else "*"
            parts.append(f"{const}{memory_type(p.dtype)} {pointer} {plain_name(p.name)}")
        if self.workspaces:
            parts.append("unsigned char * workspace")
        return ", ".join(parts + [f"const long long {plain_name(n)}" for n in self.kernel.sizes])

    def _grid_variables(self) -> None:
        cluster = self.threads.cluster
        rest = self._block if cluster == 1 else f"({self._block} / {cluster}u)"
        for loop in reversed(self.grid):
            name = self._declare(loop.name)
            if loop is self.grid[0]:
                self.lines.line(f"const {self._index_type(loop)} {name} = {rest};")
            else:
                extent = self.values.value(loop.extent)
                self.lines.line(f"const {self._index_type(loop)} {name} = {rest} % {extent};")
                rest = f"({rest} / {extent})"

    def _index_type(self, loop: For) -> str:
        return "int" if isinstance(loop.extent, Const) else "long long"

    def _reserve(self, size: int) -> str:
        start = self.shared_bytes
        self.shared_bytes += -(-size // _SHARED_ALIGN) * _SHARED_ALIGN
        return f"(shared_memory + {start})"

    # ---- statements ---------------------------------------------------------------------------

    def statement(self, statement: Stmt) -> None:
        """Emit one statement."""
        if isinstance(statement, Seq):
            for part in statement.body:
                self.statement(part)
        elif isinstance(statement, Alloc):
            self._alloc(statement)
        elif isinstance(statement, For):
            self._for(statement)
        elif isinstance(statement, (Mma, Pipe)):  # run as the loops that they mean
            self.statement(statement.body)
        elif isinstance(statement, If):
            self._ordered(statement)
            self.values.forget()
            with self.lines.block(f"if ({self.values.value(statement.guard)})"):
                self.statement(statement.body)
        else:
            self._ordered(statement)
            self._write(statement)

    def _ordered(self, statement: Stmt) -> None:
        """Wait where a statement outside the innermost thread loops needs it."""
        if self.team == 1 or self.values.lane is not None:
            return
        bound = isinstance(statement, For) and statement.kind == "thread"
        if not bound and has_threads(statement):
            return  # its parts are looked at one by one
        now = touched(statement, self.written)
        if self.pending.clashes(now):
            self._wait()
        self.pending.add(now)

    @property
    def team(self) -> int:
        """Threads that run the statement at hand together."""
        return self.chain[-1].divisor if self.chain else self.threads.total

    def _wait(self) -> None:
        self.pending.clear()
        self.waits += 1
        if not self.chain:
            whole = self.threads.cluster == 1
            self.lines.line("__syncthreads();" if whole else "rl_cluster_sync();")
        elif self.team <= 32:
            self.lines.line("__syncwarp(__activemask());")
        else:
            raise CodegenError("threads of a part of a block cannot wait for one another")

    def _for(self, loop: For) -> None:
        if loop.kind == "thread":
            self._ordered(loop)
            self._thread_loop(loop)
        elif loop.kind == "vector":
            self._ordered(loop)
            self._vector_loop(loop)
        elif has_threads(loop):
            self._loop_with_threads(loop)
        else:
            self._ordered(loop)
            with self._untracked(), self._counted(loop):
                self.statement(loop.body)

    def _loop_with_threads(self, loop: For) -> None:
        body = touched(loop.body, self.written)
        sites, waits, start = self.joined, self.waits, len(self.lines.text)
        with self._counted(loop):
            self.statement(loop.body)
            if self.joined > sites or self.pending.clashes(body):
                self._wait()
        if loop.kind == "serial" and self.waits == waits:
            pragma = "  " * self.lines.depth + f"#pragma unroll {_UNROLLED_ROUNDS}"
            self.lines.text.insert(start, pragma)  # nobody waits: rounds overlap

    @contextmanager
    def _counted(self, loop: For) -> Iterator[None]:
        self.values.forget()
        extent = self.values.value(loop.extent)
        name = self._declare(loop.name)
        known = int(loop.extent.value) if isinstance(loop.extent, Const) else None
        if loop.kind == "unroll":
            self.lines.line("#pragma unroll")
        elif loop.axis == "carried":
            self.lines.line("#pragma unroll 1")
        elif not has_threads(loop) and (known is None or known > _UNROLLED):
            self.lines.line(f"#pragma unroll {_UNROLLED}")
        kind = self._index_type(loop)
        with self.lines.block(f"for ({kind} {name} = 0; {name} < {extent}; ++{name})"):
            yield

    def _alloc(self, statement: Alloc) -> None:
        buffer = statement.buffer
        if buffer.scope == "shared":
            if self.chain or self.threads.cluster > 1:
                raise CodegenError(f"the shared buffer {buffer.name!r} belongs to a whole block")
            name = self.lines.fresh(f"{plain_name(buffer.name)}_")
            kind = memory_type(buffer.dtype)
            start = self._reserve(_static_bytes(buffer))
            self.lines.line(f"{kind} *{name} = ({kind} *){start};")
            self.shared[buffer.name] = name
        else:
            self.registers[buffer.name] = self._registers(
                buffer, spread(buffer, statement.body, self.threads)
            )
        self.statement(statement.body)

    def _thread_loop(self, loop: For) -> None:
        place = self.threads.places[id(loop)]
        private = self._private(loop) if loop.axis == "reduce" else []
        own = [registers for group, _ in private for registers in group]
        outer = {r.buffer.name: self.registers[r.buffer.name] for r in own}
        self.registers.update({r.buffer.name: r for r in own})
        pending, self.pending = self.pending, Touched()
        team = self.team
        self.chain.append(place)
        self.folded += [loop.name] * (loop.axis == "reduce")
        with self.lines.block(""):
            name = self._declare(loop.name)
            self.lines.line(f"const int {name} = {place.text};")
            self.statement(loop.body)
        self.chain.pop()
        self.folded = self.folded[: len(self.folded) - (loop.axis == "reduce")]
        self.pending = pending
        self.registers.update(outer)
        for group, monoid in private:
            self._join_threads(place, team, group, outer, monoid)

    def _private(self, loop: For) -> list[tuple[list[Registers], Monoid]]:
        """Accumulators of a thread's own, holding the neutral value, for those it folds into."""
        groups: dict[tuple[Buffer, ...], str] = {}
        own = {s.buffer for s in ir.statements(loop.body) if isinstance(s, Alloc)}
        for statement in ir.statements(loop.body):
            if isinstance(statement, Reduce) and statement.buffers[0] not in own:
                groups[statement.buffers] = statement.monoid
        made: list[tuple[list[Registers], Monoid]] = []
        for buffers, name in groups.items():
            if buffers[0].name not in self.registers:
                continue  # joined in memory, atomically
            monoid = MONOIDS[name]
            inits = monoid.init(tuple(b.dtype for b in buffers))
            group = []
            for buffer, init in zip(buffers, inits):
                registers = self._registers(buffer, self.registers[buffer.name].spread)
                self._fill(registers, literal(init))
                group.append(registers)
            made.append((group, monoid))
        return made

    def _fill(self, registers: Registers, value: str) -> None:
        count = registers.spread.count
        if count == 1:
            self.lines.line(f"{registers.name} = {value};")
            return
        self.lines.line("#pragma unroll")
        text = self._assigned(registers, "f", value)
        self.lines.line(f"for (int f = 0; f < {count}; ++f) {text}")

    def _join_threads(
        self, place: Place, team: int, group: list[Registers], outer: dict[str, Registers],
        monoid: Monoid,
    ) -> None:  # fmt: skip
        if any(r.packed for r in group):
            raise CodegenError("accumulators are not of a narrow type")
        self.joined += 1
        count = group[0].spread.count
        suffix = "" if count == 1 else "[f]"
        values = [r.name + suffix for r in group]
        buffers = [r.buffer for r in group]

        def join(left: list[str], right: list[str]) -> None:
            self._join(monoid, buffers, left, right)

        kinds = [register_type(b.dtype) for b in buffers]
        self.joining.write(Site(place, team, kinds, values, count), join)
        if count > 1:
            self.lines.line("#pragma unroll")
        with self.lines.block("" if count == 1 else f"for (int f = 0; f < {count}; ++f)"):
            self._join(monoid, buffers, [outer[b.name].name + suffix for b in buffers], values)


def _ranges(nest: Stmt) -> dict[str, tuple[int, int]]:
    """What the variables of loops with known lengths can be, where 32 bits hold it."""
    found: dict[str, tuple[int, int]] = {}
    unknown: set[str] = set()
    for loop in ir.statements(nest):
        if isinstance(loop, For):
            most = int(loop.extent.value) - 1 if isinstance(loop.extent, Const) else 1 << 31
            if most >= 1 << 31:
                unknown.add(loop.name)
            found[loop.name] = (0, max(most, found.get(loop.name, (0, 0))[1], 0))
    return {name: known for name, known in found.items() if name not in unknown}
