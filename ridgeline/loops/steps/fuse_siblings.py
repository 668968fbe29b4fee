"""FuseSiblings: loops over one axis, side by side, become one, so that a row is read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.ir import For, Kernel, Load, Seq, Stmt, Store
from ridgeline.loops.rewrite import map_children, sequence
from ridgeline.loops.steps.regions import memory, read_memory, written_memory
from ridgeline.loops.steps.step import ScheduleError, Step, loops_named


@dataclass(frozen=True, slots=True)
class FuseSiblings(Step):
    """Merge the loops of an axis that have nothing to do with one another's results."""

    axis: str
    name: ClassVar[str] = "fuse_siblings"

    def apply(self, kernel: Kernel) -> Kernel:
        """Merge as many neighbours as there are."""
        loops_named(kernel, self.axis)
        body = self._visit(kernel.body)
        if body == kernel.body:
            raise ScheduleError(f"no loops over {self.axis!r} can run as one")
        return replace(kernel, body=body)

    def _visit(self, statement: Stmt) -> Stmt:
        inner = map_children(statement, self._visit)
        if not isinstance(inner, Seq):
            return inner
        parts: list[Stmt] = []
        for part in inner.body:
            place = self._partner(parts, part)
            if place is None:
                parts.append(part)
                continue
            first = parts.pop(place)  # what stood between starts values and may come earlier
            assert isinstance(first, For) and isinstance(part, For)
            parts.append(replace(first, body=sequence(first.body, part.body)))
        return sequence(*parts)

    def _partner(self, parts: list[Stmt], loop: Stmt) -> int | None:
        """The place of a loop that `loop` can be merged into, past starting values alone."""
        if not isinstance(loop, For) or loop.name != self.axis:
            return None
        touched = _reads(loop) | set(written_memory(loop))
        for place in range(len(parts) - 1, -1, -1):
            part = parts[place]
            if isinstance(part, For):
                same = replace(part, body=loop.body) == loop
                written = set(written_memory(part))
                apart = not written & touched and not set(written_memory(loop)) & _reads(part)
                between = {memory(s.buffer) for s in parts[place + 1 :] if isinstance(s, Store)}
                free = not between & (_reads(part) | written)
                return place if same and apart and free else None
            if not isinstance(part, Store) or _reads(part):
                return None
        return None


def _reads(statement: Stmt) -> set[object]:
    found: set[object] = set()
    for inner in ir.statements(statement):
        for expr in ir.expressions(inner):
            if any(isinstance(e, Load) for e in ir.subexpressions(expr)):
                found |= set(read_memory(expr))
    return found
