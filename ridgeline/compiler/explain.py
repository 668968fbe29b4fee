"""A compiled program as text for people: every stage of every kernel, with exact counts.

`explain_program` prints the fused kernels with their user lines, FLOPs and bytes, why others were
not fused, their schedules and loops, and on request the generated code. `kernel_rows` gives the
same counts as data, for profiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.explain_collectives import collective_lines
from ridgeline.compiler.kernel_profile import KernelTime, duration, quantity, short_name
from ridgeline.compiler.memory_plan import (
    HostCall,
    JoinedCall,
    KernelCall,
    bytes_text,
    library_call_name,
)
from ridgeline.fusion.materialize import on_host
from ridgeline.graph.body import bodies
from ridgeline.graph.graph import nbytes
from ridgeline.graph.node import Node, outputs_of
from ridgeline.graph.origins import origins_of
from ridgeline.loops.analysis.counts import compulsory_bytes, useful
from ridgeline.loops.schedule import describe
from ridgeline.loops.text.printer import print_kernel
from ridgeline.ops.attention import products
from ridgeline.ops.contract import PRODUCT
from ridgeline.ops.control.loop import LOOP
from ridgeline.ops.convolve import CONVOLVE

if TYPE_CHECKING:
    from ridgeline.compiler import CompiledKernel, Program, Stages

_SHOWN = 24  # kernels that a summary lists


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The exact work of a kernel, useful operations and compulsory bytes, and its source lines."""

    name: str
    flops: int
    nbytes: int
    lines: tuple[str, ...]

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.nbytes if self.nbytes else 0.0


def kernel_times(program: Program, inputs: Sequence[Any], rounds: int) -> list[KernelTime]:
    """Median seconds of each kernel and library call over some rounds, in order."""
    measured = [program.profile(inputs) for _ in range(max(rounds, 1))]
    rows = {row.name: row for row in kernel_rows(program)}
    found = []
    for number, call in enumerate(program.layout.calls):
        seconds = median(times[number] for times in measured)
        if isinstance(call, JoinedCall):
            row = _joined_row(call.symbol, [rows[name] for name in call.parts])
        elif isinstance(call, KernelCall):
            row = rows[call.symbol]
        else:
            row = _whole_row(program, call.node)
        found.append(KernelTime(row.name, seconds, row.flops, row.nbytes, row.lines))
    return found


def _joined_row(name: str, parts: Sequence[KernelRow]) -> KernelRow:
    """The work of several kernels in one launch."""
    lines = dict.fromkeys(line for part in parts for line in part.lines)
    flops, moved = sum(p.flops for p in parts), sum(p.nbytes for p in parts)
    return KernelRow(name, flops, moved, tuple(lines))


def _whole_row(program: Program, index: int) -> KernelRow:
    """The work of a library call, which is not counted, or of all iterations of a loop."""
    node = program.order[index]
    inside = inner_rows(program.stages, node)
    if inside:
        flops, moved = sum(r.flops for r in inside), sum(r.nbytes for r in inside)
        return KernelRow(node.op.name, flops, moved, _lines([node]))
    moved = sum(map(nbytes, node.inputs)) + sum(map(nbytes, outputs_of(node)))
    return KernelRow(node.op.name, 0, moved, _lines([node]))


def inner_rows(stages: Stages, node: Node) -> list[KernelRow]:
    """The kernels in the bodies of control flow, with the work of all iterations.

    A loop of unknown length counts as one iteration, and both sides of a branch count.
    """
    rows = []
    for part in stages.inner.get(node, ()):
        rows += [kernel_row(k) for k in part.kernels]
        for inside in part.inner:
            rows += inner_rows(part, inside)
    times = node.attrs.length if node.op is LOOP else 1
    return [replace(r, flops=r.flops * times, nbytes=r.nbytes * times) for r in rows]


def kernel_row(compiled: CompiledKernel, sizes: Mapping[str, int] | None = None) -> KernelRow:
    """The counts of one kernel, taken from its loops before scheduling."""
    plain = compiled.group.loops.kernel
    flops, moved = int(useful(plain, sizes).flops), int(compulsory_bytes(plain, sizes))
    return KernelRow(compiled.kernel.name, flops, moved, _lines(compiled.group.values))


def kernel_rows(program: Program) -> list[KernelRow]:
    """The counts of every kernel of a program, in execution order; bodies come last."""
    stages = program.stages
    rows = [kernel_row(k, stages.sizes) for k in stages.kernels]
    rows += [library_row(group.apart) for group in stages.library_calls if group.apart is not None]
    return rows + [row for node in stages.inner for row in inner_rows(stages, node)]


def library_row(node: Node) -> KernelRow:
    """The work of a library call, without what a causal mask hides."""
    if node.op is CONVOLVE:
        pairs = node.attrs.products
    elif node.op is PRODUCT:
        pairs = prod(node.attrs.contraction.extents)
    else:
        pairs = products(node) // (2 if node.attrs.causal else 1)
    moved = sum(map(nbytes, node.inputs)) + sum(map(nbytes, outputs_of(node)))
    return KernelRow(library_call_name(node), 2 * pairs, moved, _lines([node]))


def explain_program(program: Program, detail: str = "summary") -> str:
    """The summary of a program, followed by as much as `detail` asks for."""
    text = list(_summary(program))
    if detail != "summary":
        text += _stages_text(program.stages, detail)
        text += ["", *_refusals(program)]
    if detail == "code":
        kernels = [compiled.kernel for compiled in program.stages.all_kernels()]
        text += ["", "code", program.backend.source(kernels)]
    return "\n".join(text)


def _summary(program: Program) -> Iterable[str]:
    """The number of kernels, their exact work, measured times if there are any, and memory."""
    rows, layout, measured = kernel_rows(program), program.layout, program.measured
    flops, nbytes = sum(r.flops for r in rows), sum(r.nbytes for r in rows)
    cuts = sum(isinstance(call, HostCall) for call in layout.calls)
    calls = f"native calls between {cuts} library calls" if cuts else "one native call"
    time = "not measured: profile() does" if measured is None else duration(measured.total.seconds)
    yield (
        f"{len(rows)} kernels in {calls}; {quantity(flops, 'FLOP')} and "
        f"{quantity(nbytes, 'B')} of compulsory traffic (exact); time {time}"
    )
    yield (
        f"temporaries: {quantity(layout.arena_bytes, 'B')} of arena for "
        f"{quantity(layout.peak_live, 'B')} alive at the peak"
    )
    if layout.exact:
        held, budget = program.held, program.compilation.budget
        yield (
            f"a call holds {bytes_text(held.total)}"
            + (f" of {bytes_text(budget)}" if budget else "")
            + f": {bytes_text(held.arguments)} of arguments and state, "
            f"{bytes_text(held.results)} of results, {bytes_text(held.temporaries)} between kernels"
        )
    if layout.in_place:
        replaced = sum(layout.made[number] for number, _ in layout.in_place)
        yield (
            "results that may lie over the inputs they replace: "
            f"{len(layout.in_place)}, {quantity(replaced, 'B')}"
        )
    for call in layout.calls:
        if isinstance(call, JoinedCall):
            names = Counter(call.parts)
            listed = ", ".join(f"{n} x {k}" if n > 1 else k for k, n in names.items())
            yield f"one launch for {len(call.parts)} kernels: {listed}"
    collectives = list(collective_lines(program.stages))
    if collectives:
        yield "collectives, in the order in which all ranks start them:"
        yield from collectives
    yield ""
    if measured is not None:
        yield str(measured)
        return
    width = max((len(short_name(row.name)) for row in rows), default=0)
    for row in rows[:_SHOWN]:
        yield (
            f"  {short_name(row.name):{width}}  {quantity(row.flops, 'FLOP'):>10}  "
            f"{quantity(row.nbytes, 'B'):>8}  {row.intensity:7.2f} FLOP/B  {''.join(row.lines[:1])}"
        ).rstrip()
    if len(rows) > _SHOWN:
        yield f"  and {len(rows) - _SHOWN} more"


def _stages_text(stages: Stages, detail: str) -> Iterable[str]:
    """Every kernel, then loops and branches with the kernels in their bodies."""
    for number, compiled in enumerate(stages.kernels):
        yield ""
        yield from _kernel_text(number, compiled, kernel_row(compiled, stages.sizes), detail)
    for group in stages.library_calls:
        assert group.apart is not None
        yield ""
        row = library_row(group.apart)
        yield f"{row.name}   {quantity(row.flops, 'FLOP')}, {quantity(row.nbytes, 'B')}"
        yield from (f"  from {line}" for line in row.lines)
    for group in stages.fusion.groups:
        if group.apart is None or group.apart.op.family != "control":
            continue
        yield ""
        yield from _control_text(group.apart)
        for part in stages.inner.get(group.apart, ()):
            yield from ("  " + line if line else "" for line in _stages_text(part, detail))


def _control_text(node: Node) -> Iterable[str]:
    """What a loop or a branch is, and if it is not native, why."""
    times = f" of {node.attrs.length} iterations" if node.op is LOOP else ""
    slow = [n for part in bodies(node) for n in part.order if on_host(n)]
    if not on_host(node):
        yield f"{node.op.name}{times}, native; each of its bodies:"
    elif slow:
        yield f"{node.op.name}{times}, in Python: {slow[0].op.name} in it is a library call"
    else:
        yield f"{node.op.name}{times}, in Python: an index in its test may be out of range"
    for line in _lines([node]):
        yield f"  from {line}"


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
    yield "  schedule: " + "; ".join(map(describe, compiled.steps))
    for part in compiled.left_out:
        yield f"  left out: {part.what}: {part.reason}"
    yield from ("  | " + line for line in print_kernel(compiled.kernel).splitlines())


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
