"""What every schedule step is made of: the base class, its error, and finding loops by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ridgeline.errors import RidgelineError
from ridgeline.loops import ir
from ridgeline.loops.ir import Alloc, Const, For, Kernel, Stmt
from ridgeline.loops.rewrite import map_children


class ScheduleError(RidgelineError, ValueError):
    """A schedule step that does not apply; the kernel is unchanged."""

    code = "RL0501"


class Step:
    """Base of the steps; `apply` gives the new kernel."""

    name: ClassVar[str]

    def apply(self, kernel: Kernel) -> Kernel:
        """The rewritten kernel."""
        raise NotImplementedError


def at_loops(statement: Stmt, name: str, change: Callable[[For], Stmt]) -> Stmt:
    """Apply `change` to the outermost loops of a name."""
    if isinstance(statement, For) and statement.name == name:
        return change(statement)
    return map_children(statement, lambda child: at_loops(child, name, change))


def loops_named(kernel: Kernel, name: str) -> list[For]:
    """The loops of one axis; refuses a name that the kernel does not have."""
    everything = [s for s in ir.statements(kernel.body) if isinstance(s, For)]
    found = [loop for loop in everything if loop.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(loop.name for loop in everything))
        raise ScheduleError(f"there is no loop {name!r}", help=f"the loops are {known}")
    return found


def free_name(kernel: Kernel, name: str, what: str) -> None:
    """Refuse a scratch name that the kernel has already: the inner one would hide the outer."""
    taken = {s.buffer.name for s in ir.statements(kernel.body) if isinstance(s, Alloc)}
    if name in taken or any(name == p.name for p in kernel.params):
        raise ScheduleError(f"{what} already, in {name!r}")


def known_extent(loop: For) -> int:
    """The length of a loop that must be known before the kernel runs."""
    if not isinstance(loop.extent, Const):
        raise ScheduleError(f"the length of loop {loop.name!r} is known only at run time")
    return int(loop.extent.value)
