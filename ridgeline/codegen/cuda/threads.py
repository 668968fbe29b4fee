"""Which bits of the thread number each thread loop takes, and where buffers are stored.

Thread loops come in powers of two. In a nest of them the innermost loop takes the lowest bits.
Statements outside some thread loops run in all their threads alike; what they write to memory is
written by the thread whose bits for the missing loops are zero. A team is the threads that differ
only in the bits of loops further in.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.loops import ir

_WARP = 32
_MOST_THREADS = 1024
_CLUSTER_BLOCK = 256  # threads of a block where a row takes several: those of others run beside it


class CodegenError(Exception):
    """Loops that cannot be written for a GPU: a defect of the schedule."""


@dataclass(frozen=True, slots=True)
class ThreadBits:
    """The bits of a thread's number that are a loop's variable."""

    divisor: int
    extent: int

    @property
    def mask(self) -> int:
        """These bits, set."""
        return (self.extent - 1) * self.divisor

    @property
    def text(self) -> str:
        """The variable, from the thread's number."""
        shifted = f"(tid >> {self.divisor.bit_length() - 1})" if self.divisor > 1 else "tid"
        return f"({shifted} & {self.extent - 1})"


@dataclass(frozen=True, slots=True)
class Threads:
    """The thread loops of one launch, by identity, and how many threads there are in all."""

    bits: dict[int, ThreadBits]
    total: int

    @property
    def cluster(self) -> int:
        """Blocks that work together on what one block cannot hold."""
        return self.total // _CLUSTER_BLOCK if self.total > _MOST_THREADS else 1

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.total // self.cluster


def arrange(nest: ir.Stmt) -> Threads:
    """Give every thread loop of a launch its bits."""
    bits: dict[int, ThreadBits] = {}

    def width(statement: ir.Stmt) -> int:
        """Threads that the loops inside a statement need."""
        if isinstance(statement, ir.Seq):
            return max(map(width, statement.body), default=1)
        if isinstance(statement, ir.For):
            inner = width(statement.body)
            if statement.kind != "thread":
                return inner
            assert isinstance(statement.extent, ir.Const)
            bits[id(statement)] = ThreadBits(inner, int(statement.extent.value))
            return inner * int(statement.extent.value)
        return (
            width(statement.body)
            if isinstance(statement, (ir.If, ir.Alloc, ir.Mma, ir.Pipe))
            else 1
        )

    return Threads(bits, max(width(nest), _WARP))


def has_threads(statement: ir.Stmt) -> bool:
    """True when thread loops lie inside."""
    return any(isinstance(s, ir.For) and s.kind == "thread" for s in ir.statements(statement))


@dataclass(frozen=True, slots=True)
class RegisterSpread:
    """How a register buffer lies in threads: the axes each thread keeps, with their lengths."""

    kept: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of each thread."""
        total = 1
        for size in self.shape:
            total *= size
        return total


def spread(buffer: ir.Buffer, body: ir.Stmt, threads: Threads) -> RegisterSpread:
    """The axes of a register buffer that are thread loops, and those that a thread has itself."""
    bits: list[set[ThreadBits | None]] = [set() for _ in buffer.shape]

    def touch(index: tuple[ir.Expr, ...], around: dict[str, ThreadBits], writes: bool) -> None:
        used: set[ThreadBits] = set()
        for axis, position in enumerate(index):
            own = around.get(position.name) if isinstance(position, ir.Var) else None
            bits[axis].add(own)
            used |= {own} if own is not None else set()
        if writes and not used.issuperset(around.values()):
            raise CodegenError(f"threads share the register buffer {buffer.name!r}")

    def visit(statement: ir.Stmt, around: dict[str, ThreadBits], folding: frozenset[str]) -> None:
        for expr in ir.subexpressions(*ir.expressions(statement)):
            if isinstance(expr, ir.Load) and expr.buffer == buffer:
                touch(expr.index, around, False)
        if isinstance(statement, ir.Store) and statement.buffer == buffer:
            touch(statement.index, around, True)
        elif isinstance(statement, ir.Reduce) and buffer in statement.buffers:
            touch(statement.index, {n: p for n, p in around.items() if n not in folding}, True)
        elif isinstance(statement, ir.Seq):
            for part in statement.body:
                visit(part, around, folding)
        elif isinstance(statement, ir.For) and statement.kind == "thread":
            inside = {**around, statement.name: threads.bits[id(statement)]}
            reduces = {statement.name} if statement.axis == "reduce" else set()
            visit(statement.body, inside, folding | reduces)
        elif isinstance(statement, (ir.For, ir.If, ir.Alloc, ir.Mma, ir.Pipe)):
            visit(statement.body, around, folding)

    visit(body, {}, frozenset())
    if any(len(p) > 1 and p != {None} for p in bits):
        raise CodegenError(f"threads exchange elements of the register buffer {buffer.name!r}")
    kept = tuple(a for a, p in enumerate(bits) if p != set() and None in p)
    shape = []
    for axis in kept:
        size = buffer.shape[axis]
        if not isinstance(size, ir.Const):
            raise CodegenError(f"the size of {buffer.name!r} is known only at run time")
        shape.append(int(size.value))
    return RegisterSpread(kept, tuple(shape))


def written_slots(kernel: ir.Kernel) -> set[int]:
    """The slots that a kernel writes to."""
    found: set[int] = set()
    for statement in ir.statements(kernel.body):
        if isinstance(statement, ir.Store):
            found.add(statement.buffer.slot)
        elif isinstance(statement, ir.Reduce):
            found.update(b.slot for b in statement.buffers)
    return found
