"""A loop whose iteration is one kernel becomes one kernel, where rows need nothing of each other.

for r: y[r] = f(before[r], x[r])          for r: held = start[r]
       after[r] = g(before[r], x[r])             for turn: y[turn, r] = f(held, x[turn, r])
                                                           held = g(held, x[turn, r])
on every iteration, becomes                      last[r] = held

A row keeps its part of what is carried in registers, and runs through all iterations alone: nothing
is started or stored between two of them. The loops stay those of the iteration's kernel. That holds
where every load of a carried value lies in the part that the row itself writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ridgeline.dtypes import DType
from ridgeline.graph.node import Node
from ridgeline.loops import ir
from ridgeline.loops.build import free_vars, map_children, map_expressions, sequence
from ridgeline.loops.ir import Alloc, Buffer, Const, Expr, For, Load, Stmt, Store, Var
from ridgeline.loops.lowering.iteration_space import Axis, Index, Lowered
from ridgeline.loops.terms import rebuild
from ridgeline.ops.control.loop import LOOP

TURN = "turn"  # the loop over iterations
MOST_HELD = 64  # elements of what is carried that a row keeps
_ALONE = Axis("row", 1)  # where there are no rows


@dataclass(frozen=True, slots=True)
class IterationKernel:
    """The kernel of a loop's body: its inputs, and the value that each output is."""

    lowered: Lowered
    inputs: Sequence[Node]
    outputs: Sequence[Node]


class _NotAlone(Exception):
    """A row needs what others made."""


def recurrence(
    loop: Node, one: IterationKernel, sources: Sequence[Node], made: Mapping[int, Node]
) -> Lowered | None:
    """The kernel of a loop; None where its rows do not run alone.

    `sources` are the values in whose memory its inputs lie, and `made` its results by number.
    """
    try:
        return _Recurrence(loop, one, sources, made).lowered()
    except _NotAlone:
        return None


@dataclass(frozen=True, slots=True)
class _Held:
    """A carried value: where a row's part of it begins, and where an iteration keeps it."""

    shape: Index
    index: Index  # at which it is written: of each axis the row, or anything within it
    own: tuple[int, ...]  # the axes of which the row has one element
    now: Buffer
    later: Buffer

    def within(self, seen: Buffer, index: Index) -> Index:
        """Where an element lies in the row's part; refused if it is not the row's own."""
        if seen.shape != self.shape or any(index[a] is not self.index[a] for a in self.own):
            raise _NotAlone
        return tuple(e for axis, e in enumerate(index) if axis not in self.own)

    def copied(self, name: str, to: Buffer, source: Buffer, slice_: Index = ()) -> Stmt:
        """The row's part, element by element; memory of all rows may be a slice of an array."""
        inside: Index = tuple(Var.make(f"{name}{n}") for n in range(len(self.now.shape)))
        rest = iter(inside)
        whole = tuple(e if n in self.own else next(rest) for n, e in enumerate(self.index))
        places = {self.now: inside, self.later: inside}
        into, out = (places.get(buffer, (*slice_, *whole)) for buffer in (to, source))
        statement: Stmt = Store(to, into, Load.make(source, out))
        for number, extent in reversed([*enumerate(self.now.shape)]):
            statement = For(f"{name}{number}", extent, statement)
        return statement


@dataclass(slots=True)
class _Recurrence:
    loop: Node
    one: IterationKernel
    sources: Sequence[Node]
    made: Mapping[int, Node]
    params: list[Buffer] = field(default_factory=list)
    slots: dict[Node, int] = field(default_factory=dict)

    def lowered(self) -> Lowered:
        """The loops of all iterations."""
        step, attrs = self.one.lowered, self.loop.attrs
        kernel = step.kernel
        if kernel.sizes or not isinstance(attrs.length, int):
            raise _NotAlone
        rows, body = _inside(kernel.body, {axis.name for axis in step.rows})
        self._refuse_others(body)
        written = {value: n for n, value in enumerate(step.slots) if n >= step.reads}
        held = [self._held(n, body, rows, written) for n in range(attrs.carried)]
        if sum(prod(_sizes(one.now.shape)) for one in held) > MOST_HELD:
            raise _NotAlone
        for source in self.sources:
            self.slots.setdefault(source, len(self.slots))
        reads = len(self.slots)
        results = {n: self._result(n, value) for n, value in self.made.items()}
        turn: Expr = Var.make(TURN)
        if attrs.reverse:
            turn = ir.index(attrs.length - 1) - turn
        iteration = self._iteration(body, held, results, turn)
        run = For(TURN, ir.index(attrs.length), iteration, "carried")
        begin = [one.copied(f"b{n}_", one.now, self._given(n)) for n, one in enumerate(held)]
        ends = [n for n in results if n < attrs.carried]
        end = [held[n].copied(f"e{n}_", results[n], held[n].now) for n in ends]
        whole = sequence(*begin, run, *end)
        for one in held:
            whole = Alloc(one.now, Alloc(one.later, whole))
        for row in reversed(rows):
            whole = For(row.name, row.extent, whole)
        views = {buffer: buffer for buffer in self.params}
        axes = step.rows or (_ALONE,)
        name = f"{step.name}_scan"
        return Lowered(name, whole, views, (), tuple(self.slots), reads, axes, step.inner, LOOP)

    def _refuse_others(self, body: Stmt) -> None:
        """Loops, tests and scratch of a thread are all that a row may consist of."""
        for statement in ir.statements(body):
            known = isinstance(statement, (For, ir.Seq, ir.If, Store, ir.Reduce, Alloc))
            shared = isinstance(statement, Alloc) and statement.buffer.scope == "global"
            joins = isinstance(statement, ir.Reduce) and any(b.slot >= 0 for b in statement.buffers)
            if not known or shared or joins:
                raise _NotAlone

    def _held(
        self, number: int, body: Stmt, rows: Sequence[For], written: Mapping[Node, int]
    ) -> _Held:
        """A carried value, whose every element one row writes."""
        value, given = self.one.outputs[number], self.one.inputs[number]
        slot = written.get(value)
        found = [s for s in ir.statements(body) if isinstance(s, Store)]
        stores = [s for s in found if s.buffer.slot == slot]
        if slot is None or not stores or value.shape != given.shape:
            raise _NotAlone
        index = stores[0].index
        own = []
        for row in rows:
            axes = [axis for axis, at in enumerate(index) if row.name in free_vars(at)]
            alone = isinstance(row.extent, Const) and int(row.extent.value) == 1
            if len(axes) == 1 and index[axes[0]] is Var.make(row.name):
                own.append(axes[0])
            elif not alone:
                raise _NotAlone
        shape = stores[0].buffer.shape
        if tuple(_sizes(shape)) != value.shape:
            raise _NotAlone
        inside = tuple(size for axis, size in enumerate(shape) if axis not in own)
        dtype = value.dtype
        now, later = (Buffer(f"{word}{number}", inside, dtype, "reg") for word in ("held", "next"))
        held = _Held(shape, index, tuple(own), now, later)
        for store in stores:
            held.within(store.buffer, store.index)
        return held

    def _param(self, slot: int, shape: Sequence[Expr], dtype: DType) -> Buffer:
        """A view of a slot's memory."""
        for known in self.params:
            if (known.slot, known.shape, known.dtype) == (slot, tuple(shape), dtype):
                return known
        made = Buffer(f"p{len(self.params)}", tuple(shape), dtype, slot=slot)
        self.params.append(made)
        return made

    def _given(self, number: int, like: Buffer | None = None) -> Buffer:
        """The memory of an input, of which an iteration may see a slice."""
        attrs, source = self.loop.attrs, self.sources[number]
        value = self.one.inputs[number]
        if source.dtype is not value.dtype:
            raise _NotAlone
        shape = list(like.shape) if like is not None else [ir.index(s) for s in _known(value)]
        if attrs.carried <= number < attrs.carried + attrs.scanned:
            shape = [ir.index(attrs.length), *shape]
        return self._param(self.slots[source], shape, value.dtype)

    def _result(self, number: int, value: Node) -> Buffer:
        self.slots[value] = len(self.slots)
        return self._param(self.slots[value], [ir.index(s) for s in _known(value)], value.dtype)

    def _iteration(
        self, body: Stmt, held: Sequence[_Held], results: Mapping[int, Buffer], turn: Expr
    ) -> Stmt:
        """One iteration, over what is held and slices of arrays."""
        step, attrs = self.one.lowered, self.loop.attrs
        number_of = {value: n for n, value in enumerate(self.one.inputs)}
        outputs: dict[Node, list[int]] = {}
        for number, value in enumerate(self.one.outputs):
            outputs.setdefault(value, []).append(number)

        def load(buffer: Buffer, index: Index) -> Expr:
            if buffer.slot < 0:
                return Load.make(buffer, index)
            if buffer.slot >= step.reads:  # what this iteration made
                numbers = [n for n in outputs[step.slots[buffer.slot]] if n < attrs.carried]
                if not numbers:
                    raise _NotAlone
                return Load.make(held[numbers[0]].later, held[numbers[0]].within(buffer, index))
            number = number_of[step.slots[buffer.slot]]
            if number < attrs.carried:
                return Load.make(held[number].now, held[number].within(buffer, index))
            sliced = number < attrs.carried + attrs.scanned
            return Load.make(self._given(number, buffer), (turn, *index) if sliced else index)

        done: dict[Expr, Expr] = {}

        def changed(expr: Expr) -> Expr:
            for part in ir.subexpressions(expr):
                if part not in done:
                    below = tuple([done[child] for child in ir.children(part)])
                    if isinstance(part, Load):
                        done[part] = load(part.buffer, below)
                    else:
                        done[part] = rebuild(part, below) if below else part
            return done[expr]

        def stored(statement: Stmt) -> Stmt:
            inner = map_children(statement, stored)
            if not isinstance(inner, Store) or inner.buffer.slot < 0:
                return inner
            parts = []
            for number in outputs[step.slots[inner.buffer.slot]]:
                if number < attrs.carried:
                    own = held[number]
                    parts.append(
                        Store(own.later, own.within(inner.buffer, inner.index), inner.value)
                    )
                elif number in results:
                    index = (turn, *inner.index)
                    parts.append(Store(self._stacked(number, inner.buffer), index, inner.value))
            return sequence(*parts)

        before = []
        for number, to in results.items():
            given = number_of.get(self.one.outputs[number])
            if given is not None and given >= attrs.carried:
                raise _NotAlone  # what every iteration reads is written by none
            if given is not None:
                before.append(held[given].copied(f"y{number}_", to, held[given].now, (turn,)))
        turned = stored(map_expressions(body, changed))
        after = [one.copied(f"n{n}_", one.now, one.later) for n, one in enumerate(held)]
        return sequence(*before, turned, *after)

    def _stacked(self, number: int, like: Buffer) -> Buffer:
        """The memory of a result of which every iteration makes a slice."""
        shape = (ir.index(self.loop.attrs.length), *like.shape)
        return self._param(self.slots[self.made[number]], shape, like.dtype)


def _inside(body: Stmt, names: set[str]) -> tuple[list[For], Stmt]:
    """The loops over rows, outermost first, and what they run."""
    rows: list[For] = []
    while isinstance(body, For) and body.name in names and body.kind == "serial":
        rows.append(body)
        body = body.body
    if {row.name for row in rows} != names:
        raise _NotAlone
    if not rows:
        rows = [For(_ALONE.name, ir.index(1), body)]
    return rows, body


def _sizes(shape: Sequence[Expr]) -> list[int]:
    if not all(isinstance(size, Const) for size in shape):
        raise _NotAlone
    return [int(size.value) for size in shape if isinstance(size, Const)]


def _known(value: Node) -> list[int]:
    return [size for size in value.shape if isinstance(size, int)]
