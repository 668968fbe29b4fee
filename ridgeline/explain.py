"""What a compiled program is, in words: every stage of every kernel, with exact counts.

`explain_program` prints the fused kernels with their user lines, FLOPs and bytes, why others were
not fused, their schedules and loops, and on request the generated code. `kernel_rows` gives the
same counts as data, for profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ridgeline.fusion.values import nbytes
from ridgeline.graph.node import Node
from ridgeline.graph.origins import origins_of
from ridgeline.loops.counts import compulsory_bytes, useful
from ridgeline.loops.lower import outputs_of
from ridgeline.loops.printer import print_kernel
from ridgeline.runtime.buffer import Buffer

if TYPE_CHECKING:
    from ridgeline.compiler import CompiledKernel, Program


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel's exact work: useful operations and compulsory bytes, and where it comes from."""

    name: str
    flops: int
    nbytes: int
    lines: tuple[str, ...]

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A kernel's exact work and its measured time."""

    name: str
    seconds: float
    flops: int
    nbytes: int
    lines: tuple[str, ...]


def kernel_times(program: Program, inputs: Sequence[Buffer], rounds: int) -> list[KernelTime]:
    """Median seconds of each kernel and library call over some rounds, in order."""
    measured = [program.profile(inputs) for _ in range(max(rounds, 1))]
    rows = {row.name: row for row in kernel_rows(program)}
    found = []
    for number, call in enumerate(program.layout.calls):
        seconds = median(times[number] for times in measured)
        if not hasattr(call, "symbol"):
            node = program.order[call.node]
            moved = sum(map(nbytes, node.inputs)) + sum(map(nbytes, outputs_of(node)))
            found.append(KernelTime(node.op.name, seconds, 0, moved, _lines([node])))
        else:
            row = rows[call.symbol]
            found.append(KernelTime(row.name, seconds, row.flops, row.nbytes, row.lines))
    return found


def kernel_row(compiled: CompiledKernel) -> KernelRow:
    """The counts of one kernel, taken from its loops before any scheduling."""
    plain = compiled.group.loops.kernel
    flops, moved = int(useful(plain).flops), int(compulsory_bytes(plain))
    return KernelRow(compiled.kernel.name, flops, moved, _lines(compiled.group.values))


def kernel_rows(program: Program) -> list[KernelRow]:
    """The counts of every kernel of a program, in execution order."""
    return [kernel_row(k) for k in program.stages.kernels]


def explain_program(program: Program, detail: str = "loops") -> str:
    """A text for people; `detail` says how far down it goes."""
    rows = kernel_rows(program)
    layout = program.layout
    flops, nbytes = sum(r.flops for r in rows), sum(r.nbytes for r in rows)
    text = [
        f"{len(rows)} kernels in one native call; {quantity(flops, 'FLOP')} and "
        f"{quantity(nbytes, 'B')} of compulsory traffic (exact)",
        f"temporaries: {quantity(layout.arena_bytes, 'B')} of arena for "
        f"{quantity(layout.peak_live, 'B')} alive at the peak",
    ]
    for number, (compiled, row) in enumerate(zip(program.stages.kernels, rows)):
        text += ["", *_kernel_text(number, compiled, row, detail)]
    text += ["", *_refusals(program)]
    if detail == "code":
        kernels = [compiled.kernel for compiled in program.stages.kernels]
        text += ["", "code", program.backend.source(kernels)]
    return "\n".join(text)


def _kernel_text(
    number: int, compiled: CompiledKernel, row: KernelRow, detail: str
) -> Iterable[str]:
    lowered = compiled.group.loops
    yield (
        f"kernel {number}: {row.name}   {quantity(row.flops, 'FLOP')}, "
        f"{quantity(row.nbytes, 'B')}, {row.intensity:.2f} FLOP/B"
    )
    for line in row.lines:
        yield f"  from {line}"
    yield "  reads  " + ", ".join(repr(n.type) for n in lowered.slots[: lowered.reads])
    yield "  writes " + ", ".join(repr(n.type) for n in lowered.slots[lowered.reads :])
    if detail == "kernels":
        return
    yield "  schedule: " + "; ".join(map(_step_text, compiled.steps))
    yield from ("  | " + line for line in print_kernel(compiled.kernel).splitlines())


def _step_text(step: object) -> str:
    name = getattr(step, "name", type(step).__name__)
    fields = [str(getattr(step, f)) for f in step.__slots__]  # type: ignore[attr-defined]
    return f"{name}({', '.join(fields)})"


def _refusals(program: Program) -> Iterable[str]:
    refusals = sorted(program.stages.fusion.refusals, key=lambda r: -r.seconds)
    if refusals:
        yield "not fused:"
    for refusal in refusals[:12]:
        yield f"  {refusal.first} + {refusal.second}: {refusal.reason}"
    if len(refusals) > 12:
        yield f"  and {len(refusals) - 12} more"


def _lines(values: Iterable[Node]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for value in values:
        for origin in origins_of(value):
            found[str(origin)] = None
    return tuple(found)[:4]


def quantity(amount: float, unit: str) -> str:
    """A number with a metric prefix: 12.3 MFLOP."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= factor:
            return f"{amount / factor:.3g} {prefix}{unit}"
    return f"{amount:.3g} {unit}"
