"""Steps that reshape a loop nest: Split, Reorder, Tile, SetKind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, get_args

from ridgeline.loops import ir
from ridgeline.loops.build import (
    affine,
    free_vars,
    map_children,
    minimum,
    op,
    replace_variables,
    sequence,
)
from ridgeline.loops.steps.regions import loop_ranges, memory, read_memory, written_memory
from ridgeline.loops.steps.step import (
    ScheduleError,
    Step,
    at_loops,
    known_extent,
    loops_named,
    outside_scratch,
    widened,
)

# ---- iterations that run again: what filling up the last piece of a split does -------------------


def check_repeatable(loop: ir.For) -> None:
    """Refuse a loop whose iterations cannot run twice: they read or add to what they write."""
    inside = list(ir.statements(loop.body))
    own = {memory(s.buffer) for s in inside if isinstance(s, ir.Alloc)}
    left = written_memory(loop.body) - own
    read = read_memory(*(e for s in inside for e in ir.expressions(s)))
    joined = {memory(b) for s in inside if isinstance(s, ir.Reduce) for b in s.buffers}
    if loop.axis != "spatial" or left & (read | joined):
        raise ScheduleError(f"running an iteration of loop {loop.name!r} again changes the result")
    if loop.kind not in ("serial", "unroll"):
        raise ScheduleError(f"loop {loop.name!r} would store to one place at once")


def check_apart(loop: ir.For) -> None:
    """Refuse concurrent iterations if some of them repeat others."""
    inside = list(ir.statements(loop.body))
    own = {s.buffer for s in inside if isinstance(s, ir.Alloc)}
    for store in (s for s in inside if isinstance(s, ir.Store) and s.buffer not in own):
        held = [h for coordinate in store.index for h in _held(coordinate, loop.name)]
        filled = [h for h in held if isinstance(h, ir.OpExpr)]
        # filling up puts a minimum in the place of every variable: another minimum is the user's
        if len(filled) == len(held) and not all(_apart(loop, *ir.children(h)) for h in filled):
            raise ScheduleError(f"the last iteration of loop {loop.name!r} runs again")


def _held(coordinate: ir.Expr, name: str) -> Iterator[ir.Expr]:
    """Where a variable occurs in an index: in a minimum that may repeat the last, or alone."""
    if isinstance(coordinate, ir.Load):  # what is loaded can be the same for all iterations anyway
        return
    minimum = (
        isinstance(coordinate, ir.OpExpr)
        and coordinate.name == "min"
        and not read_memory(coordinate)
    )
    if (isinstance(coordinate, ir.Var) and coordinate.name == name) or (
        minimum and name in free_vars(coordinate)
    ):
        yield coordinate
    else:
        for child in ir.children(coordinate):
            yield from _held(child, name)


def _apart(loop: ir.For, coordinate: ir.Expr, last: ir.Expr) -> bool:
    """True if only the last iteration of a loop can reach the last index."""
    form, spans = affine(coordinate), loop_ranges(loop.body)
    if form is None or not isinstance(last, ir.Const):
        return False
    step = form.strides[loop.name]
    if step < 0 or not form.strides.keys() <= {loop.name, *spans}:
        return False
    low, high = form.interval(lambda name: (0, 0) if name == loop.name else spans[name])
    count = known_extent(loop)
    return step * (count - 2) + high < min(step * (count - 1) + low, int(last.value))


# ---- Split: one axis becomes pieces and the positions inside a piece -----------------------------

Tail = Literal["peel", "branch", "guard", "repeat"]


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Cut an axis into `axis.0` (pieces) and `axis.1` (within a piece of `factor`).

    Where the factor does not divide, `peel` runs the rest after the pieces, `branch` makes it a
    last, shorter piece, chosen by a test outside the inner loops, `guard` tests every place, and
    `repeat` fills the last piece up by running the last place again, which writes what it wrote.
    """

    axis: str
    factor: int
    tail: Tail = "peel"
    name: ClassVar[str] = "split"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Rewrite every loop of the axis."""
        loops_named(kernel, self.axis)
        if not isinstance(self.factor, int) or self.factor < 1:
            raise ScheduleError(
                f"cannot split {self.axis!r} into pieces of {self.factor!r}",
                help="a piece has a whole number of iterations",
            )
        if self.tail not in get_args(Tail):
            known = ", ".join(get_args(Tail))
            raise ScheduleError(f"a tail is one of {known}, not {self.tail!r}")
        return replace(kernel, body=at_loops(kernel.body, self.axis, self._split))

    def _split(self, loop: ir.For) -> ir.Stmt:
        if self.tail == "guard":
            return self._guarded(loop)
        length, factor = known_extent(loop), self.factor
        whole, rest = divmod(length, factor)
        outer, inner = f"{self.axis}.0", f"{self.axis}.1"
        base = ir.Var.make(outer) * ir.index(factor)

        def piece(start: ir.Expr, size: int) -> ir.For:
            position = start + ir.Var.make(inner)
            body = replace_variables(loop.body, {loop.name: position})
            return ir.For(inner, ir.index(size), body, loop.axis, loop.kind)

        if whole == 0:
            return piece(ir.index(0), rest)
        if rest == 0:
            return ir.For(outer, ir.index(whole), piece(base, factor), loop.axis, loop.kind)
        if self.tail == "peel":
            pieces = ir.For(outer, ir.index(whole), piece(base, factor), loop.axis, loop.kind)
            return sequence(pieces, piece(ir.index(whole * factor), rest))
        if self.tail == "repeat":
            check_repeatable(loop)
            position = minimum(base + ir.Var.make(inner), ir.index(length - 1))
            body = replace_variables(loop.body, {loop.name: position})
            within = ir.For(inner, ir.index(factor), body, loop.axis, loop.kind)
            return ir.For(outer, ir.index(whole + 1), within, loop.axis, loop.kind)
        full = ir.Var.make(outer) < ir.index(whole)
        body = sequence(
            ir.If(full, piece(base, factor)),
            ir.If(op("not", full), piece(ir.index(whole * factor), rest)),
        )
        return ir.For(outer, ir.index(whole + 1), body, loop.axis, loop.kind)

    def _guarded(self, loop: ir.For) -> ir.Stmt:
        """Pieces of one length, also of a loop whose length is known only at run time."""
        outer, inner = f"{self.axis}.0", f"{self.axis}.1"
        factor = ir.index(self.factor)
        pieces = (loop.extent + ir.index(self.factor - 1)) // factor
        position = ir.Var.make(outer) * factor + ir.Var.make(inner)
        body = replace_variables(loop.body, {loop.name: position})
        if (pieces * factor) != loop.extent:
            body = ir.If(position < loop.extent, body)
        piece = ir.For(inner, factor, body, loop.axis, loop.kind)
        return ir.For(outer, pieces, piece, loop.axis, loop.kind)


# ---- Reorder and Tile: the order of loops --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Nest the named axes in this order, outermost first.

    Independent (spatial) loops may move inwards past anything: what a loop body keeps in scratch
    is widened by an axis, and a sequence is cut into one loop per part.
    """

    order: tuple[str, ...]
    name: ClassVar[str] = "reorder"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Move loops inwards, innermost first."""
        for name in self.order:
            loops_named(kernel, name)
        if len(set(self.order)) < len(self.order):
            raise ScheduleError(f"an axis is named twice in {', '.join(self.order)}")
        body = kernel.body
        for position in range(len(self.order) - 1, 0, -1):
            moved, past = self.order[position], set(self.order[:position])
            for loop in loops_named(replace(kernel, body=body), moved):
                inside = {s.name for s in ir.statements(loop.body) if isinstance(s, ir.For)}
                if loop.axis != "spatial" and inside & past and not _perfect(loop, past):
                    raise ScheduleError(
                        f"loop {moved!r} folds values in order and cannot move past "
                        f"{', '.join(sorted(inside & past))}"
                    )
            body = at_loops(body, moved, partial(_push, past))
        return replace(kernel, body=body)


def _perfect(loop: ir.For, past: set[str]) -> bool:
    """True if a reduction loop passes only reduction loops on its way inwards."""
    body = loop.body
    while isinstance(body, ir.For) and body.name in past:
        if body.axis != "reduce":
            return False
        body = body.body
    return not any(isinstance(s, ir.For) and s.name in past for s in ir.statements(body))


def _push(
    past: set[str], loop: ir.For, body: ir.Stmt | None = None, tests: tuple[ir.Expr, ...] = ()
) -> ir.Stmt:
    """The loop moved inside `body`, together with the guards on its variable in between."""
    body = loop.body if body is None else body
    if not any(isinstance(s, ir.For) and s.name in past for s in ir.statements(body)):
        return _innermost(loop, body, tests)
    if isinstance(body, ir.Seq):
        return sequence(*(_push(past, loop, part, tests) for part in body.body))
    if isinstance(body, ir.For) and body.name in past:
        if loop.name in free_vars(body.extent):
            raise ScheduleError(f"the length of loop {body.name!r} depends on {loop.name!r}")
        return replace(body, body=_push(past, loop, body.body, tests))
    if isinstance(body, ir.If):
        if loop.name in free_vars(body.guard):
            return _push(past, loop, body.body, (*tests, body.guard))
        return replace(body, body=_push(past, loop, body.body, tests))
    if isinstance(body, ir.Alloc):
        old = body.buffer
        if any(loop.name in free_vars(size) for size in old.shape):
            raise ScheduleError(f"the size of scratch {old.name!r} depends on {loop.name!r}")
        wide = replace(old, shape=(loop.extent, *old.shape))
        variable = ir.Var.make(loop.name)
        return ir.Alloc(wide, _push(past, loop, widened(body.body, old, wide, variable), tests))
    return _innermost(loop, body, tests)


def _innermost(loop: ir.For, body: ir.Stmt, tests: tuple[ir.Expr, ...]) -> ir.Stmt:
    for test in reversed(tests):
        body = ir.If(test, body)
    return replace(loop, body=body)


@dataclass(frozen=True, slots=True)
class Tile(Step):
    """Split each axis by its factor and nest all pieces (`x.0`) outside all positions (`x.1`)."""

    axes: tuple[str, ...]
    factors: tuple[int, ...]
    tail: Literal["peel", "branch"] = "branch"
    name: ClassVar[str] = "tile"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """The splits, then the reorder."""
        if len(self.axes) != len(self.factors):
            raise ScheduleError(f"{len(self.axes)} axes but {len(self.factors)} tile sizes")
        for axis, factor in zip(self.axes, self.factors):
            kernel = Split(axis, factor, self.tail).apply(kernel)
        return Reorder((*(f"{a}.0" for a in self.axes), *(f"{a}.1" for a in self.axes))).apply(
            kernel
        )


# ---- SetKind: which loops are vectors, unrolled, shared out over threads -------------------------


_MOST_COPIES = 1 << 12  # of a body, or lanes of one vector


@dataclass(frozen=True, slots=True)
class SetKind(Step):
    """Run an axis's loops as `unroll`, `vector` or `parallel`."""

    axis: str
    kind: ir.LoopKind
    name: ClassVar[str] = "kind"

    def apply(self, kernel: ir.Kernel) -> ir.Kernel:
        """Check the conditions of the kind, and set it."""
        if self.kind == "vector":  # scratch that a lane has for itself gets an axis of lanes
            body = at_loops(kernel.body, self.axis, outside_scratch)
            kernel = replace(kernel, body=body)
        for loop in loops_named(kernel, self.axis):
            self._check(loop)
        body = _set_kind(kernel.body, self.axis, self.kind)
        if self.kind == "parallel":
            _check_parallel(body, self.axis)
        return replace(kernel, body=body)

    def _check(self, loop: ir.For) -> None:
        if self.kind in ("unroll", "vector") and known_extent(loop) > _MOST_COPIES:
            raise ScheduleError(
                f"{self.kind} would make {known_extent(loop)} copies of the body of {loop.name!r}",
                help="split the axis, and take the inner loop",
            )
        if self.kind in ("vector", "parallel"):
            check_apart(loop)
        if self.kind == "parallel" and loop.axis != "spatial":
            raise ScheduleError(f"iterations of loop {loop.name!r} depend on one another")
        if self.kind == "vector":
            if loop.axis == "carried":
                raise ScheduleError(f"iterations of loop {loop.name!r} run in order")
            if any(isinstance(s, (ir.For, ir.Alloc)) for s in ir.statements(loop.body)):
                raise ScheduleError(
                    f"only an innermost loop can be vectorized, and {loop.name!r} holds others",
                    help="reorder first",
                )


def _set_kind(statement: ir.Stmt, name: str, kind: ir.LoopKind) -> ir.Stmt:
    inner = map_children(statement, lambda child: _set_kind(child, name, kind))
    return replace(inner, kind=kind) if isinstance(inner, ir.For) and inner.name == name else inner


def _check_parallel(body: ir.Stmt, name: str) -> None:
    """Parallel loops must be outermost, with nothing between them."""
    while isinstance(body, ir.For) and body.kind == "parallel":
        if body.name == name:
            return
        body = body.body
    raise ScheduleError(f"loop {name!r} is not outermost, so it cannot be parallel")
