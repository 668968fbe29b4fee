"""Fuse: two nested loops become one. FuseSiblings: two neighbouring loops become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from ridgeline.loops import ir
from ridgeline.loops.build import (
    affine,
    free_vars,
    map_children,
    replace_variables,
    sequence,
    substitute,
)
from ridgeline.loops.ir import Buffer, Expr, For, If, Kernel, Load, Reduce, Seq, Stmt, Store, Var
from ridgeline.loops.steps.regions import memory, read_memory, written_memory
from ridgeline.loops.steps.step import ScheduleError, Step, at_loops, known_extent, loops_named


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Merge two nested loops into one, if every access walks memory as one loop would.

    Otherwise the two indices are recovered by division, if `divide` allows it.
    """

    outer: str
    inner: str
    divide: bool = False
    name: ClassVar[str] = "fuse"

    @property
    def axis(self) -> str:
        """The name of the new loop."""
        return self.outer + self.inner

    def apply(self, kernel: Kernel) -> Kernel:
        """Flatten the buffers and replace the two indices by one."""
        for loop in loops_named(kernel, self.outer):
            if not (isinstance(loop.body, For) and loop.body.name == self.inner):
                raise ScheduleError(f"{self.inner!r} is not directly inside {self.outer!r}")
        try:
            return self._in_order(kernel)
        except ScheduleError:
            if not self.divide:
                raise
        return replace(kernel, body=at_loops(kernel.body, self.outer, self._divided))

    def _divided(self, loop: For) -> Stmt:
        inner = loop.body
        assert isinstance(inner, For)
        if inner.axis != loop.axis or inner.kind != loop.kind:
            raise ScheduleError(f"{self.outer!r} and {self.inner!r} are of different kinds")
        both, width = Var.make(self.axis), inner.extent
        index_of = {self.outer: both // width, self.inner: both % width}
        body = replace_variables(inner.body, index_of)
        return replace(inner, name=self.axis, extent=loop.extent * width, body=body)

    def _in_order(self, kernel: Kernel) -> Kernel:
        flat: dict[Buffer, Buffer] = {}
        body = at_loops(kernel.body, self.outer, lambda loop: self._merge(loop, flat))
        used = {b for s in ir.statements(body) for b in _buffers(s)}
        params = [b for b in kernel.params if b in used]
        params += [f for b, f in flat.items() if b.slot >= 0 and f not in params]
        ordered = tuple(sorted(params, key=lambda b: (b.slot, b.name)))
        return replace(kernel, params=ordered, body=body)

    def _merge(self, loop: For, flat: dict[Buffer, Buffer]) -> Stmt:
        inner = loop.body
        assert isinstance(inner, For)
        width, height = known_extent(inner), known_extent(loop)
        if inner.axis != loop.axis:
            raise ScheduleError(f"{self.outer!r} and {self.inner!r} are of different kinds")
        names = {self.outer, self.inner}
        loads: dict[Expr, Expr] = {}

        def change(expr: Expr) -> Expr:
            for part in ir.subexpressions(expr):
                if isinstance(part, Load) and any(names & free_vars(i) for i in part.index):
                    buffer, index = self._flattened(part.buffer, part.index, width, flat)
                    loads[part] = Load.make(buffer, index)
            changed = substitute(expr, loads)
            if names & free_vars(changed):
                raise ScheduleError(f"an index of {self.outer!r} or {self.inner!r} is a value here")
            return changed

        def visit(current: Stmt) -> Stmt:
            if isinstance(current, If):
                return If(change(current.guard), visit(current.body))
            if isinstance(current, For):
                return replace(current, extent=change(current.extent), body=visit(current.body))
            if isinstance(current, Store):
                buffer, index = self._target(current.buffer, current.index, width, flat)
                return Store(buffer, index, change(current.value))
            if isinstance(current, Reduce):
                if any(names & free_vars(i) for i in current.index):
                    raise ScheduleError("an accumulator is indexed by the loops to fuse")
                return replace(current, values=tuple(map(change, current.values)))
            return map_children(current, visit)

        return replace(
            inner, name=self.axis, extent=ir.index(width * height), body=visit(inner.body)
        )

    def _target(
        self, buffer: Buffer, index: tuple[Expr, ...], width: int, flat: dict[Buffer, Buffer]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        if any({self.outer, self.inner} & free_vars(i) for i in index):
            return self._flattened(buffer, index, width, flat)
        return buffer, index

    def _flattened(
        self, buffer: Buffer, index: tuple[Expr, ...], width: int, flat: dict[Buffer, Buffer]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        if buffer.slot < 0:
            raise ScheduleError("scratch memory is indexed by the loops to fuse")
        linear: Expr = ir.index(0)
        count: Expr = ir.index(1)
        for size, i in zip(buffer.shape, index):
            linear = linear * size + i
            count = count * size
        form = affine(linear)
        terms = {} if form is None else form.strides
        if form is None or terms.get(self.outer, 0) != width * terms.get(self.inner, 0):
            raise ScheduleError(f"{buffer.name} is not walked in order by the loops to fuse")
        joined: Expr = ir.index(form.offset)
        for name in sorted(terms):
            if name == self.inner:
                joined = joined + Var.make(self.axis) * ir.index(terms[name])
            elif name != self.outer:
                joined = joined + Var.make(name) * ir.index(terms[name])
        if len(buffer.shape) == 1:
            return buffer, (joined,)
        flat.setdefault(buffer, replace(buffer, name=f"{buffer.name}f", shape=(count,)))
        return flat[buffer], (joined,)


def _buffers(statement: Stmt) -> Iterable[Buffer]:
    for expr in ir.subexpressions(*ir.expressions(statement)):
        if isinstance(expr, Load):
            yield expr.buffer
    if isinstance(statement, Store):
        yield statement.buffer
    elif isinstance(statement, Reduce):
        yield from statement.buffers


# ---- FuseSiblings: loops over one axis, side by side, become one, so that a row is read once -----


@dataclass(frozen=True, slots=True)
class FuseSiblings(Step):
    """Merge the loops of an axis that do not depend on each other's results."""

    axis: str
    name: ClassVar[str] = "fuse_siblings"

    def apply(self, kernel: Kernel) -> Kernel:
        """Merge as many neighbours as possible."""
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
            partner = self._partner(parts, part)
            if partner is None:
                parts.append(part)
                continue
            first = parts.pop(partner)  # what stood between starts values and may come earlier
            assert isinstance(first, For) and isinstance(part, For)
            parts.append(replace(first, body=sequence(first.body, part.body)))
        return sequence(*parts)

    def _partner(self, parts: list[Stmt], loop: Stmt) -> int | None:
        """The position of a loop that `loop` can merge into, past initial values only."""
        if not isinstance(loop, For) or loop.name != self.axis:
            return None
        touched = _reads(loop) | set(written_memory(loop))
        for candidate in range(len(parts) - 1, -1, -1):
            part = parts[candidate]
            if isinstance(part, For):
                same = replace(part, body=loop.body) == loop
                written = set(written_memory(part))
                apart = not written & touched and not set(written_memory(loop)) & _reads(part)
                between = {memory(s.buffer) for s in parts[candidate + 1 :] if isinstance(s, Store)}
                free = not between & (_reads(part) | written)
                return candidate if same and apart and free else None
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
