"""Schedule steps: checked rewrites of a kernel's loops, addressed by loop name.

A step is a frozen value that maps a kernel to a kernel with the same meaning, or refuses with a
reason. A schedule is a list of steps; it can be stored as JSON and replayed. Loops of one name are
one logical axis, so a step applies to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from ridgeline.errors import RidgelineError
from ridgeline.loops import ir
from ridgeline.loops.build import add, affine, free_vars, lt, mul, op, substitute
from ridgeline.loops.ir import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Load,
    LoopKind,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
)  # fmt: skip
from ridgeline.loops.monoids import MONOIDS
from ridgeline.loops.rewrite import (
    map_buffers,
    map_children,
    map_expressions,
    replace_variables,
    sequence,
)


class ScheduleError(RidgelineError):
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


def known_extent(loop: For) -> int:
    """The length of a loop that must be known before the kernel runs."""
    if not isinstance(loop.extent, Const):
        raise ScheduleError(f"the length of loop {loop.name!r} is known only at run time")
    return int(loop.extent.value)


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Cut an axis into `axis.0` (pieces) and `axis.1` (within a piece of `factor`).

    Where the factor does not divide, `peel` runs the rest after the pieces, and `branch` makes it
    a last, shorter piece, chosen by a test outside the inner loops.
    """

    axis: str
    factor: int
    tail: Literal["peel", "branch"] = "peel"
    name: ClassVar[str] = "split"

    def apply(self, kernel: Kernel) -> Kernel:
        """Rewrite every loop of the axis."""
        loops_named(kernel, self.axis)
        if self.factor < 1:
            raise ScheduleError(f"cannot split {self.axis!r} into pieces of {self.factor}")
        return replace(kernel, body=at_loops(kernel.body, self.axis, self._split))

    def _split(self, loop: For) -> Stmt:
        length, factor = known_extent(loop), self.factor
        whole, rest = divmod(length, factor)
        outer, inner = f"{self.axis}.0", f"{self.axis}.1"
        base = mul(Var.make(outer), ir.index(factor))

        def piece(start: Expr, size: int) -> For:
            place = add(start, Var.make(inner))
            body = replace_variables(loop.body, {loop.name: place})
            return For(inner, ir.index(size), body, loop.axis, loop.kind)

        if whole == 0:
            return piece(ir.index(0), rest)
        if rest == 0:
            return For(outer, ir.index(whole), piece(base, factor), loop.axis, loop.kind)
        if self.tail == "peel":
            pieces = For(outer, ir.index(whole), piece(base, factor), loop.axis, loop.kind)
            return sequence(pieces, piece(ir.index(whole * factor), rest))
        full = lt(Var.make(outer), ir.index(whole))
        body = sequence(
            If(full, piece(base, factor)),
            If(op("not", full), piece(ir.index(whole * factor), rest)),
        )
        return For(outer, ir.index(whole + 1), body, loop.axis, loop.kind)


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Nest the named axes in this order, outermost first.

    Independent (spatial) loops may move inwards past anything: what a loop body keeps in scratch
    is widened by an axis, and a sequence is cut into one loop per part.
    """

    order: tuple[str, ...]
    name: ClassVar[str] = "reorder"

    def apply(self, kernel: Kernel) -> Kernel:
        """Move loops inwards, innermost first."""
        body = kernel.body
        for position in range(len(self.order) - 1, 0, -1):
            moved, past = self.order[position], set(self.order[:position])
            for loop in loops_named(replace(kernel, body=body), moved):
                inside = {s.name for s in ir.statements(loop.body) if isinstance(s, For)}
                if loop.axis != "spatial" and inside & past and not _perfect(loop, past):
                    raise ScheduleError(
                        f"loop {moved!r} folds values in order and cannot move past "
                        f"{', '.join(sorted(inside & past))}"
                    )
            body = at_loops(body, moved, partial(_push_past, past))
        return replace(kernel, body=body)


def _perfect(loop: For, past: set[str]) -> bool:
    """True when only loops that fold lie between a folding loop and where it moves to."""
    body = loop.body
    while isinstance(body, For) and body.name in past:
        if body.axis != "reduce":
            return False
        body = body.body
    return not any(isinstance(s, For) and s.name in past for s in ir.statements(body))


def _push_past(past: set[str], loop: For) -> Stmt:
    return _push(loop, loop.body, past)


def _push(loop: For, body: Stmt, past: set[str]) -> Stmt:
    if not any(isinstance(s, For) and s.name in past for s in ir.statements(body)):
        return replace(loop, body=body)
    if isinstance(body, Seq):
        return sequence(*(_push(loop, part, past) for part in body.body))
    if isinstance(body, For) and body.name in past:
        return replace(body, body=_push(loop, body.body, past))
    if isinstance(body, If) and loop.name not in free_vars(body.guard):
        return replace(body, body=_push(loop, body.body, past))
    if isinstance(body, Alloc):
        old = body.buffer
        wide = replace(old, shape=(loop.extent, *old.shape))
        variable = Var.make(loop.name)
        return Alloc(wide, _push(loop, widened(body.body, old, wide, variable), past))
    return replace(loop, body=body)


def _without_scratch(loop: For) -> Stmt:
    """The loop moved inside the scratch that its body has, where it holds no other loop."""
    inside = list(ir.statements(loop.body))
    if any(isinstance(s, For) for s in inside) or not any(isinstance(s, Alloc) for s in inside):
        return loop
    return _sunk(loop, loop.body)


def _sunk(loop: For, body: Stmt) -> Stmt:
    if isinstance(body, Seq):
        return sequence(*(_sunk(loop, part) for part in body.body))
    if isinstance(body, Alloc):
        old = body.buffer
        wide = replace(old, shape=(loop.extent, *old.shape))
        return Alloc(wide, _sunk(loop, widened(body.body, old, wide, Var.make(loop.name))))
    return replace(loop, body=body)


def widened(statement: Stmt, old: Buffer, wide: Buffer, variable: Expr) -> Stmt:
    """Accesses of a scratch buffer that has grown a leading axis indexed by `variable`."""
    loads = {
        e: Load.make(wide, (variable, *e.index))
        for s in ir.statements(statement)
        for e in ir.subexpressions(*ir.expressions(s))
        if isinstance(e, Load) and e.buffer == old
    }
    replaced = map_expressions(statement, lambda e: substitute(e, loads) if loads else e)

    def visit(current: Stmt) -> Stmt:
        inner = map_children(current, visit)
        if isinstance(inner, Store) and inner.buffer == old:
            return Store(wide, (variable, *inner.index), inner.value)
        if isinstance(inner, Reduce) and old in inner.buffers:
            buffers = tuple(wide if b == old else b for b in inner.buffers)
            # accumulators that move together share one index, which grows with the first of them
            grown = len(inner.index) == len(wide.shape)
            index = inner.index if grown else (variable, *inner.index)
            return Reduce(buffers, index, inner.monoid, inner.values)
        return inner

    return visit(replaced)


@dataclass(frozen=True, slots=True)
class SetKind(Step):
    """Run an axis's loops as `unroll`, `vector` or `parallel`."""

    axis: str
    kind: LoopKind
    name: ClassVar[str] = "kind"

    def apply(self, kernel: Kernel) -> Kernel:
        """Check what the kind needs, and set it."""
        if self.kind == "vector":  # scratch that a lane has for itself gets an axis of lanes
            body = at_loops(kernel.body, self.axis, _without_scratch)
            kernel = replace(kernel, body=body)
        for loop in loops_named(kernel, self.axis):
            self._check(loop)
        body = _set_kind(kernel.body, self.axis, self.kind)
        if self.kind == "parallel":
            _check_parallel(body, self.axis)
        return replace(kernel, body=body)

    def _check(self, loop: For) -> None:
        if self.kind in ("unroll", "vector"):
            known_extent(loop)
        if self.kind == "parallel" and loop.axis != "spatial":
            raise ScheduleError(f"iterations of loop {loop.name!r} depend on one another")
        if self.kind == "vector":
            if loop.axis == "carried":
                raise ScheduleError(f"iterations of loop {loop.name!r} run in order")
            if any(isinstance(s, (For, Alloc)) for s in ir.statements(loop.body)):
                raise ScheduleError(
                    f"only an innermost loop can be vectorized, and {loop.name!r} holds others",
                    help="reorder first",
                )


def _set_kind(statement: Stmt, name: str, kind: LoopKind) -> Stmt:
    inner = map_children(statement, lambda child: _set_kind(child, name, kind))
    return replace(inner, kind=kind) if isinstance(inner, For) and inner.name == name else inner


def _check_parallel(body: Stmt, name: str) -> None:
    """Parallel loops are the outermost ones, with nothing between them."""
    while isinstance(body, For) and body.kind == "parallel":
        if body.name == name:
            return
        body = body.body
    raise ScheduleError(f"loop {name!r} is not outermost, so it cannot be parallel")


@dataclass(frozen=True, slots=True)
class Rfactor(Step):
    """Fold an inner reduce axis into one accumulator per iteration, joined afterwards.

    This changes the order of summation, which associative monoids allow.
    """

    axis: str
    name: ClassVar[str] = "rfactor"

    def apply(self, kernel: Kernel) -> Kernel:
        """Give every fold over the axis its own row of accumulators."""
        for loop in loops_named(kernel, self.axis):
            known_extent(loop)
        return replace(kernel, body=self._visit(kernel.body))

    def _visit(self, statement: Stmt) -> Stmt:
        if not isinstance(statement, Seq):
            return map_children(statement, self._visit)
        parts: list[Stmt] = []
        position = 0
        while position < len(statement.body):
            part = statement.body[position]
            folds = _folds_over(part, self.axis)
            if not folds:
                parts.append(self._visit(part))
                position += 1
                continue
            run = [part]
            position += 1
            while position < len(statement.body):
                if _folds_over(statement.body[position], self.axis) != folds:
                    break
                run.append(statement.body[position])
                position += 1
            parts.append(self._factored(sequence(*run), folds))
        return sequence(*parts)

    def _factored(self, nest: Stmt, folds: frozenset[tuple[Buffer, ...]]) -> Stmt:
        lanes = max(
            known_extent(s)
            for s in ir.statements(nest)
            if isinstance(s, For) and s.name == self.axis
        )
        variable = Var.make(self.axis)
        reduces = [s for s in ir.statements(nest) if isinstance(s, Reduce)]
        before: list[Stmt] = []
        after: list[Stmt] = []
        result = nest
        allocated: list[Buffer] = []
        for buffers in folds:
            example = next(r for r in reduces if r.buffers == buffers)
            monoid = MONOIDS[example.monoid]
            wide = tuple(
                replace(b, name=f"{b.name}v", shape=(ir.index(lanes), *b.shape)) for b in buffers
            )
            inits = monoid.init(tuple(b.dtype for b in buffers))
            starts = [Store(w, (variable, *example.index), i) for w, i in zip(wide, inits)]
            before.append(For(self.axis, ir.index(lanes), sequence(*starts)))
            values = tuple(Load.make(w, (variable, *example.index)) for w in wide)
            join = Reduce(buffers, example.index, example.monoid, values)
            after.append(For(self.axis, ir.index(lanes), join, "reduce"))
            for old, new in zip(buffers, wide):
                result = widened(result, old, new, variable)
            allocated += wide
        body = sequence(*before, result, *after)
        for buffer in allocated:
            body = Alloc(buffer, body)
        return body


def _folds_over(statement: Stmt, axis: str) -> frozenset[tuple[Buffer, ...]]:
    """Accumulators from outside that `statement` folds into under a reduce loop of an axis."""
    found: set[tuple[Buffer, ...]] = set()
    own = {s.buffer for s in ir.statements(statement) if isinstance(s, Alloc)}
    stack: list[tuple[Stmt, bool]] = [(statement, False)]
    while stack:
        current, under = stack.pop()
        if isinstance(current, Reduce) and under and current.buffers[0] not in own:
            found.add(current.buffers)
        elif isinstance(current, Seq):
            stack.extend((part, under) for part in current.body)
        elif isinstance(current, For):
            stack.append(
                (current.body, under or (current.name == axis and current.axis == "reduce"))
            )
        elif isinstance(current, (If, Alloc)):
            stack.append((current.body, under))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Collapse(Step):
    """Make one loop of two nested ones, where every access walks memory as one loop would."""

    outer: str
    inner: str
    name: ClassVar[str] = "collapse"

    @property
    def axis(self) -> str:
        """The name of the new loop."""
        return self.outer + self.inner

    def apply(self, kernel: Kernel) -> Kernel:
        """Flatten the buffers and replace the two indices by one."""
        for loop in loops_named(kernel, self.outer):
            if not (isinstance(loop.body, For) and loop.body.name == self.inner):
                raise ScheduleError(f"{self.inner!r} is not directly inside {self.outer!r}")
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
                    buffer, place = self._flattened(part.buffer, part.index, width, flat)
                    loads[part] = Load.make(buffer, place)
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
                buffer, place = self._target(current.buffer, current.index, width, flat)
                return Store(buffer, place, change(current.value))
            if isinstance(current, Reduce):
                if any(names & free_vars(i) for i in current.index):
                    raise ScheduleError("an accumulator is indexed by the loops to collapse")
                return replace(current, values=tuple(map(change, current.values)))
            return map_children(current, visit)

        return replace(
            inner, name=self.axis, extent=ir.index(width * height), body=visit(inner.body)
        )

    def _target(
        self, buffer: Buffer, place: tuple[Expr, ...], width: int, flat: dict[Buffer, Buffer]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        if any({self.outer, self.inner} & free_vars(i) for i in place):
            return self._flattened(buffer, place, width, flat)
        return buffer, place

    def _flattened(
        self, buffer: Buffer, place: tuple[Expr, ...], width: int, flat: dict[Buffer, Buffer]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        if buffer.slot < 0:
            raise ScheduleError("scratch memory is indexed by the loops to collapse")
        linear: Expr = ir.index(0)
        count: Expr = ir.index(1)
        for size, i in zip(buffer.shape, place):
            linear = add(mul(linear, size), i)
            count = mul(count, size)
        form = affine(linear)
        if form is None or form[0].get(self.outer, 0) != width * form[0].get(self.inner, 0):
            raise ScheduleError(f"{buffer.name} is not walked in order by the loops to collapse")
        terms, offset = form
        joined: Expr = ir.index(offset)
        for name in sorted(terms):
            if name == self.inner:
                joined = add(joined, mul(Var.make(self.axis), ir.index(terms[name])))
            elif name != self.outer:
                joined = add(joined, mul(Var.make(name), ir.index(terms[name])))
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


@dataclass(frozen=True, slots=True)
class Stage(Step):
    """Copy what a loop reads of a buffer into scratch before the loop, laid out as it is read.

    This is packing: the scratch has one axis for every loop inside `before` that the address
    depends on, in the order of `axes`, so that the innermost of them walks memory in order.
    """

    buffer: str
    before: str
    axes: tuple[str, ...]
    name: ClassVar[str] = "stage"

    def apply(self, kernel: Kernel) -> Kernel:
        """Wrap every loop of that name."""
        loops_named(kernel, self.before)
        return replace(kernel, body=at_loops(kernel.body, self.before, self._staged))

    def _staged(self, loop: For) -> Stmt:
        loads = {
            e
            for s in ir.statements(loop)
            for e in ir.subexpressions(*ir.expressions(s))
            if isinstance(e, Load) and e.buffer.name == self.buffer
        }
        if not loads:
            return loop
        if len(loads) > 1:
            raise ScheduleError(
                f"{self.buffer!r} is read in {len(loads)} ways inside {self.before!r}, not in one"
            )
        (load,) = loads
        inside = {s.name: s.extent for s in ir.statements(loop) if isinstance(s, For)}
        used = {n for i in load.index for n in free_vars(i) if n in inside}
        if used != set(self.axes):
            raise ScheduleError(
                f"what {self.buffer!r} is read at depends on {', '.join(sorted(used))}",
                help="name exactly these loops as axes",
            )
        place = tuple(Var.make(n) for n in self.axes)
        scratch = Buffer(
            f"{self.buffer}_staged", tuple(inside[n] for n in self.axes), load.dtype, "local"
        )
        copy: Stmt = Store(scratch, place, load)
        for axis in reversed(self.axes):
            kind = next(
                s.kind for s in ir.statements(loop) if isinstance(s, For) and s.name == axis
            )
            copy = For(
                axis, inside[axis], copy, "spatial", "vector" if kind == "vector" else "serial"
            )
        held = {load: Load.make(scratch, place)}
        body = map_expressions(loop, lambda e: substitute(e, held))
        return Alloc(scratch, sequence(copy, body))


@dataclass(frozen=True, slots=True)
class Stream(Step):
    """Write a result past the caches, because it is too large to be read again from them."""

    buffer: str
    name: ClassVar[str] = "stream"

    def apply(self, kernel: Kernel) -> Kernel:
        """Move the parameter to the `stream` scope."""

        def change(buffer: Buffer) -> Buffer:
            return replace(buffer, scope="stream") if buffer.name == self.buffer else buffer

        if all(b.name != self.buffer for b in kernel.params):
            raise ScheduleError(f"there is no parameter {self.buffer!r}")
        params = tuple(change(b) for b in kernel.params)
        return replace(kernel, params=params, body=map_buffers(kernel.body, change))


_STEPS: dict[str, Callable[..., Step]] = {
    "split": Split, "reorder": Reorder, "kind": SetKind, "rfactor": Rfactor,
    "collapse": Collapse, "stage": Stage, "stream": Stream,
}  # fmt: skip


def replay(kernel: Kernel, steps: Sequence[Step]) -> Kernel:
    """Apply steps in order."""
    for step in steps:
        kernel = step.apply(kernel)
    return kernel


def to_json(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Steps as plain data."""
    return [{"step": step.name, **asdict(step)} for step in steps]  # type: ignore[call-overload]


def from_json(data: Sequence[dict[str, Any]]) -> list[Step]:
    """Steps from plain data."""
    steps = []
    for entry in data:
        fields = {
            k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "step"
        }
        steps.append(_STEPS[entry["step"]](**fields))
    return steps
