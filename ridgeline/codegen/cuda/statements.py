"""Statements of the loop IR as CUDA C++: thread loops, their reductions, and barriers.

Thread loops become bits of the thread's number; what threads fold into one place is folded by each
on its own first and joined behind the loop. Barriers stand where a thread needs what others wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ridgeline.codegen.cuda.access import Registers, plain_name
from ridgeline.codegen.cuda.barriers import Touched, seen_by_several, touched
from ridgeline.codegen.cuda.reductions import Joining, ThreadJoin
from ridgeline.codegen.cuda.threads import CodegenError, ThreadBits, arrange, has_threads, spread
from ridgeline.codegen.cuda.types import literal, memory_type, register_type
from ridgeline.codegen.cuda.vectors import VectorLoops
from ridgeline.loops import ir
from ridgeline.loops.analysis.aliasing import copies_itself
from ridgeline.loops.ir import Alloc, Buffer, Const, For, If, Mma, Pipe, Reduce, Seq, Stmt
from ridgeline.loops.monoids import MONOIDS, Monoid

_UNROLLED = 4  # iterations of a serial loop whose loads are issued together
_UNROLLED_ROUNDS = 2  # the same of a loop around the threads of a block
_SHARED_ALIGN = 16


class Statements(VectorLoops):
    """Emits the statements of one launch, which lie inside its grid loops."""

    def __init__(
        self, nest: Stmt, ranges: dict[str, tuple[int, int]], workspaces: dict[str, int]
    ) -> None:
        super().__init__(arrange(nest), ranges, workspaces)
        self.joining = Joining(self.lines, self.threads, self._reserve)
        self.shared_bytes = 0
        self.written = seen_by_several(nest)
        self.joined = self.waits = 0
        self.copying = False  # inside loops that copy what may be one memory

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
        """Insert a barrier before a statement outside the innermost thread loops if needed."""
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
        pair = None if self.copying else copies_itself(loop)
        if pair is None:
            self._any_loop(loop)
            return
        to, source = (plain_name(buffer.name) for buffer in pair)
        self.copying = True
        self.values.forget()
        with self.lines.block(f"if ((const void *){to} != (const void *){source})"):
            self._any_loop(loop)
        self.values.forget()
        self.copying = False

    def _any_loop(self, loop: For) -> None:
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
        kind = self.index_type(loop)
        with self.lines.block(f"for ({kind} {name} = 0; {name} < {extent}; ++{name})"):
            yield

    def _alloc(self, statement: Alloc) -> None:
        buffer = statement.buffer
        if buffer.scope == "shared":
            if self.chain or self.threads.cluster > 1:
                raise CodegenError(f"the shared buffer {buffer.name!r} belongs to a whole block")
            name = self.lines.fresh(f"{plain_name(buffer.name)}_")
            kind = memory_type(buffer.dtype)
            start = self._reserve(static_bytes(buffer))
            self.lines.line(f"{kind} *{name} = ({kind} *){start};")
            self.shared[buffer.name] = name
        else:
            self.registers[buffer.name] = self._registers(
                buffer, spread(buffer, statement.body, self.threads)
            )
        self.statement(statement.body)

    def _thread_loop(self, loop: For) -> None:
        bits = self.threads.bits[id(loop)]
        private = self._private(loop) if loop.axis == "reduce" else []
        own = [registers for group, _ in private for registers in group]
        outer = {r.buffer.name: self.registers[r.buffer.name] for r in own}
        self.registers.update({r.buffer.name: r for r in own})
        pending, self.pending = self.pending, Touched()
        team = self.team
        self.chain.append(bits)
        self.folded += [loop.name] * (loop.axis == "reduce")
        with self.lines.block(""):
            name = self._declare(loop.name)
            self.lines.line(f"const int {name} = {bits.text};")
            self.statement(loop.body)
        self.chain.pop()
        self.folded = self.folded[: len(self.folded) - (loop.axis == "reduce")]
        self.pending = pending
        self.registers.update(outer)
        for group, monoid in private:
            self._join_threads(bits, team, group, outer, monoid)

    def _private(self, loop: For) -> list[tuple[list[Registers], Monoid]]:
        """Private accumulators of a thread, initialised to the neutral value."""
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
        self, bits: ThreadBits, team: int, group: list[Registers], outer: dict[str, Registers],
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
        self.joining.write(ThreadJoin(bits, team, kinds, values, count), join)
        if count > 1:
            self.lines.line("#pragma unroll")
        with self.lines.block("" if count == 1 else f"for (int f = 0; f < {count}; ++f)"):
            self._join(monoid, buffers, [outer[b.name].name + suffix for b in buffers], values)

    def index_type(self, loop: For) -> str:
        """Of the variable of a loop."""
        return "int" if isinstance(loop.extent, Const) else "long long"

    def _reserve(self, size: int) -> str:
        start = self.shared_bytes
        self.shared_bytes += -(-size // _SHARED_ALIGN) * _SHARED_ALIGN
        return f"(shared_memory + {start})"


def static_bytes(buffer: Buffer) -> int:
    """The bytes of a buffer whose size is known."""
    total = buffer.dtype.itemsize
    for size in buffer.shape:
        if not isinstance(size, Const):
            raise CodegenError(f"the size of {buffer.name!r} is known only at run time")
        total *= int(size.value)
    return total
