"""CacheRead: pack what a loop reads of a buffer into scratch; Pipeline: prefetch it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NoReturn

from ridgeline.loops import ir
from ridgeline.loops.build import (
    free_vars,
    map_expressions,
    replace_variables,
    sequence,
    substitution,
)
from ridgeline.loops.legalize import parts
from ridgeline.loops.steps.pad import is_guarded_read
from ridgeline.loops.steps.regions import (
    Ranges,
    at_loops_in_range,
    extents_inside,
    in_range,
    memory,
    reads,
    written_memory,
)  # fmt: skip
from ridgeline.loops.steps.step import (
    ScheduleError,
    Step,
    at_loops,
    free_name,
    known_extent,
    loops_named,
)


@dataclass(frozen=True, slots=True)
class CacheRead(Step):
    """Copy what a loop reads of a buffer into scratch before the loop, laid out as it is read.

    This is packing: the scratch has one axis for every loop inside `before` that the address
    depends on, in the order of `axes`, so that the innermost of them walks memory in order. Where
    memory is in order along the axis before it, `square` elements a side are turned in registers.
    A read that gives zero beyond the end of an axis is copied with its zeros. With `converted`,
    what is packed is the number that the loop turns each element into.
    """

    buffer: str
    before: str
    axes: tuple[str, ...]
    square: int = 0
    converted: bool = False
    name: ClassVar[str] = "cache_read"

    @property
    def scratch(self) -> str:
        """The name of the copy."""
        return f"{self.buffer}_read"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Wrap every loop of that name in which a read of the buffer depends on these axes."""
        loops = loops_named(kernel, self.before)
        if not any(self._meant(loop) for loop in loops):
            self._refuse([(load, loop) for loop in loops for load in self._reads(loop)])
        free_name(kernel, self.scratch, f"{self.buffer!r} is packed")
        return replace(kernel, body=at_loops_in_range(kernel.body, self.before, self._staged))

    def _meant(self, loop: ir.For) -> dict[ir.Load | ir.OpExpr, bool]:
        """The reads that depend on exactly these axes, and whether each is conditional."""
        found = self._reads(loop)
        return {r: guarded for r, guarded in found.items() if _axes(r, loop) == set(self.axes)}

    def _reads(self, loop: ir.For) -> dict[ir.Load | ir.OpExpr, bool]:
        return _reads_of(self.buffer, loop, self.converted)

    def _refuse(self, found: list[tuple[ir.Load | ir.OpExpr, ir.For]]) -> NoReturn:
        if not found:
            raise ScheduleError(f"nothing reads {self.buffer!r} inside {self.before!r}")
        used = " or ".join(dict.fromkeys(", ".join(sorted(_axes(*read))) for read in found))
        raise ScheduleError(
            f"what {self.buffer!r} is read at depends on {used}",
            help="name exactly these loops as axes",
        )

    def _staged(self, loop: ir.For, ranges: Ranges) -> ir.Stmt:
        found = self._meant(loop)
        if not found:
            return loop
        if len(found) > 1:
            raise ScheduleError(
                f"{self.buffer!r} is read in {len(found)} ways inside {self.before!r}, not in one"
            )
        (read,) = found
        (load,) = [e for e in ir.subexpressions(read) if _is_read(e, self.buffer)]
        assert isinstance(load, ir.Load)
        if memory(load.buffer) in written_memory(loop):
            raise ScheduleError(f"{self.buffer!r} changes inside {self.before!r}")
        if found[read] and not in_range(load.index, load.buffer, ranges):
            raise ScheduleError(
                f"{self.buffer!r} is read under a condition, without which it may be out of range"
            )
        if found[read] and load.buffer.slot < 0:  # all memory of parameters holds something
            raise ScheduleError(
                f"{self.buffer!r} is read under a condition, without which it may hold nothing"
            )
        used = set(self.axes)
        extents = extents_inside(loop, used, f"{self.buffer!r} is read")
        index = tuple(ir.Var.make(n) for n in self.axes)
        shape = tuple(extents[n] for n in self.axes)
        scratch = ir.Buffer(self.scratch, shape, read.dtype, "local")
        copy = self._copied(ir.Store(scratch, index, read), extents, loop)
        held: dict[ir.Expr, ir.Expr] = {read: ir.Load.make(scratch, index)}
        body = map_expressions(loop, substitution(held))
        return ir.Alloc(scratch, sequence(copy, body))

    def _copied(self, copy: ir.Store, extents: dict[str, ir.Expr], loop: ir.For) -> ir.Stmt:
        return copy_loops(copy, self.axes, extents, loop, self.square)


def _axes(read: ir.Load | ir.OpExpr, loop: ir.For) -> set[str]:
    """The loops of a nest on which an address, or the condition on it, depends."""
    inside = {s.name for s in ir.statements(loop) if isinstance(s, ir.For)}
    return {n for n in free_vars(read) if n in inside}


def _is_read(expr: ir.Expr, name: str) -> bool:
    return isinstance(expr, ir.Load) and expr.buffer.name == name


def _reads_of(name: str, loop: ir.For, converted: bool) -> dict[ir.Load | ir.OpExpr, bool]:
    """The reads of a buffer, with their zeros beyond the end, and whether each needs a proof."""
    found: dict[ir.Load | ir.OpExpr, bool] = {}
    for read in reads(loop):
        if read.load.buffer.name == name:
            whole: ir.Load | ir.OpExpr = read.load
            around = _only_reader(whole, loop)
            guarded = read.guarded
            if around is not None and is_guarded_read(around):
                whole, guarded = around, False
                around = _only_reader(whole, loop)
            if converted and around is not None and around.name == "cast":
                whole = around
            found[whole] = guarded
    return found


def _only_reader(read: ir.Load | ir.OpExpr, loop: ir.For) -> ir.OpExpr | None:
    """The one expression of which a read is an operand, if nothing else uses it."""
    around: set[ir.Expr] = set()
    for statement in ir.statements(loop):
        roots = ir.expressions(statement)
        if read in roots:
            return None
        around |= {e for e in ir.subexpressions(*roots) if read in ir.children(e)}
    (only,) = around if len(around) == 1 else (None,)
    return only if isinstance(only, ir.OpExpr) else None


def copy_loops(
    copy: ir.Stmt,
    axes: tuple[str, ...],
    extents: dict[str, ir.Expr],
    around: ir.Stmt,
    square: int = 0,
) -> ir.Stmt:
    """Loops over the axes of a copy; the last one vectorised if it is so in the loop itself."""
    for axis in reversed(axes):
        kinds = {s.kind for s in ir.statements(around) if isinstance(s, ir.For) and s.name == axis}
        lanes = axis == axes[-1] and kinds == {"vector"}
        kind: ir.LoopKind = "vector" if lanes else "serial"
        copy = ir.For(axis, extents[axis], copy, "spatial", kind)
        if square and axis == axes[-2]:
            copy = in_squares(copy, square)
    return copy


def in_squares(loop: ir.For, side: int) -> ir.Stmt:
    """A loop around lanes, cut into transposing pieces of `side` iterations and a rest.

    Lanes longer than a square are processed one square at a time from end to end of the loop:
    memory is then read along a few rows, which hardware prefetches, instead of along all of them.
    """
    extent = known_extent(loop)
    whole = extent // side

    def piece(name: str, length: int, start: ir.Expr, kind: ir.LoopKind) -> ir.For:
        body = replace_variables(loop.body, {loop.name: start + ir.Var.make(name)})
        return ir.For(name, ir.index(length), body, "spatial", kind)

    parts: list[ir.Stmt] = []
    if whole:
        start = ir.Var.make(f"{loop.name}.square") * ir.index(side)
        inner = piece(f"{loop.name}.side", side, start, "transpose")
        parts.append(
            _by_squares(ir.For(f"{loop.name}.square", ir.index(whole), inner), inner, side)
        )
    if extent % side:
        parts.append(piece(f"{loop.name}.rest", extent % side, ir.index(whole * side), "serial"))
    return sequence(*parts)


def _by_squares(squares: ir.For, turned: ir.For, side: int) -> ir.Stmt:
    """Squares along a loop, once for every `side` lanes of the loop inside the transposed one."""
    lanes = turned.body
    if not isinstance(lanes, ir.For) or lanes.kind != "vector":
        return squares
    if known_extent(lanes) <= side or known_extent(lanes) % side:
        return squares
    position = ir.Var.make(f"{lanes.name}.square") * ir.index(side) + ir.Var.make(lanes.name)
    some = replace(
        lanes, extent=ir.index(side), body=replace_variables(lanes.body, {lanes.name: position})
    )
    inner = replace(squares, body=replace(turned, body=some))
    return ir.For(f"{lanes.name}.square", ir.index(known_extent(lanes) // side), inner)


# ---- Pipeline: fill scratch some iterations ahead of its use -------------------------------------


@dataclass(frozen=True, slots=True)
class Pipeline(Step):
    """Let a loop that first fills scratch and then uses it fill `stages - 1` iterations ahead."""

    axis: str
    stages: int = 2
    name: ClassVar[str] = "pipeline"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Mark every loop of the axis."""
        if self.stages < 2:
            raise ScheduleError(f"a pipeline has at least 2 stages, not {self.stages}")
        loops_named(kernel, self.axis)
        return replace(kernel, body=at_loops(kernel.body, self.axis, self._piped))

    def _piped(self, loop: ir.For) -> ir.Stmt:
        if loop.kind != "serial":
            raise ScheduleError(f"loop {loop.name!r} runs as {loop.kind}, not one after another")
        if not isinstance(loop.body, ir.Alloc):
            raise ScheduleError(
                f"loop {loop.name!r} fills no scratch", help="cache_read inside it first"
            )
        buffers, fill, use = parts(loop)
        if fill is None or use is None:
            raise ScheduleError(f"loop {loop.name!r} does not fill scratch first and use it then")
        scratch = set(map(memory, buffers))
        if written_memory(use) & scratch:
            raise ScheduleError("what uses the scratch also writes it")
        if {memory(r.load.buffer) for r in reads(fill)} & written_memory(use):
            raise ScheduleError("what fills the scratch reads what its use writes")
        return ir.Pipe(self.stages, loop)
