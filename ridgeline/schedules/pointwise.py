"""Pointwise kernels: merge loops that walk memory in order, cut into tasks, use whole vectors."""

from __future__ import annotations

from ridgeline import scalars
from ridgeline.loops import ir
from ridgeline.loops.ir import For, Kernel, OpExpr
from ridgeline.loops.lowering.iteration_space import Lowered
from ridgeline.loops.schedule import Fuse, SetKind, Split, Step, StreamingStore, attempt
from ridgeline.schedules.accesses import accesses
from ridgeline.schedules.machine import Machine

_TASK_ELEMENTS = 16384  # a task large enough to hide the cost of handing it out
_UNROLL = 2  # registers per vector step, so that latencies overlap


def steps(lowered: Lowered, machine: Machine) -> list[Step]:
    """Steps for a kernel with row loops only."""
    kernel = lowered.kernel
    chosen: list[Step] = []
    names = [axis.name for axis in lowered.rows]
    if not names:
        return []
    kernel, names = collapse(kernel, names, chosen)
    extents = loop_extents(kernel)
    last = names[-1]
    length = extents[last]
    long = is_long(kernel)
    widest = 8 if long else max((b.dtype.itemsize for b in kernel.params), default=4)
    step = machine.lanes(widest) * (1 if long else _UNROLL)
    if length is None:
        outer = names[:-1] or [f"{last}.0"]
        chosen += [Split(last, step, "guard"), SetKind(f"{last}.1", "vector")]
        return [*chosen, *(SetKind(name, "parallel") for name in outer)]
    if len(names) == 1 and length > _TASK_ELEMENTS:
        chosen.append(Split(last, _TASK_ELEMENTS, "branch"))
        outer, last, length = [f"{last}.0"], f"{last}.1", _TASK_ELEMENTS
    else:
        outer = names[:-1]
    if length > step:
        chosen.append(Split(last, step, "guard" if long and length % step else "branch"))
        last = f"{last}.1"
    chosen.append(SetKind(last, "vector"))
    chosen.extend(SetKind(name, "parallel") for name in outer)
    chosen.extend(streams(lowered, kernel, machine))
    return chosen


def is_long(kernel: Kernel) -> bool:
    """True if an element takes hundreds of instructions, in float64 whatever its type.

    They overlap one another, and a second copy for the last few elements would double the code.
    """
    values = (e for s in ir.statements(kernel.body) for e in ir.expressions(s))
    parts = (part for value in values for part in ir.subexpressions(value))
    return any(isinstance(part, OpExpr) and part.name in scalars.SPECIAL for part in parts)


def collapse(kernel: Kernel, names: list[str], chosen: list[Step]) -> tuple[Kernel, list[str]]:
    """Merge neighbouring loops from the inside out, as far as the accesses allow."""
    position = len(names) - 2
    while position >= 0:
        step = Fuse(names[position], names[position + 1])
        made = attempt(kernel, step)
        if made is not None:
            kernel = made
            chosen.append(step)
            names = [*names[:position], step.axis, *names[position + 2 :]]
        position -= 1
    return kernel, names


def loop_extents(kernel: Kernel) -> dict[str, int | None]:
    """The known lengths of a kernel's loops."""
    found: dict[str, int | None] = {}
    for statement in ir.statements(kernel.body):
        if isinstance(statement, For):
            extent = statement.extent
            found[statement.name] = int(extent.value) if isinstance(extent, ir.Const) else None
    return found


def streams(lowered: Lowered, kernel: Kernel, machine: Machine) -> list[Step]:
    """Write results larger than the last-level cache with non-temporal stores."""
    found: list[Step] = []
    for access in accesses(kernel):
        elements = 1
        for size in access.buffer.shape:
            elements *= int(size.value) if hasattr(size, "value") else 0
        if access.is_store and elements * access.buffer.dtype.itemsize > machine.l3_bytes:
            found.append(StreamingStore(access.buffer.name))
    return found
