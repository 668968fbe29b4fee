"""Deferred calls made in earnest, out of everybody's sight.

The calls of a run are made once more, in their order and modes, on cells, variables and a recorder
of their own. Nobody sees any of these while that goes on: what is made then takes its place in the
cells that were handed out, in one step that no other thread and no interrupt can divide. Whatever
ends it before that, such as Ctrl-C, leaves the run deferred as it was.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, starmap
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from ridgeline.atomic import Change, Switch, apply
from ridgeline.dtypes import DType
from ridgeline.functions.operands import defaults
from ridgeline.graph.node import PROJ, Node, keep_output
from ridgeline.graph.origins import running
from ridgeline.record.cells import LEAF, Cell, Rare, Track
from ridgeline.record.graph_recorder import Drawn, GraphRecorder, settle
from ridgeline.record.modes import modes
from ridgeline.record.recorder import drawing, record_with
from ridgeline.record.upcalls import upcalls
from ridgeline.tape.entries import Entry, Many, NotTaped, Ref, Shown, Varying
from ridgeline.tensors.differentiable import Extra
from ridgeline.tensors.tensor import Tensor, holding

if TYPE_CHECKING:
    from ridgeline.tape.endings import Ending
    from ridgeline.tape.outside import Outside
    from ridgeline.tape.run import Draws, Past, Run

_new = object.__new__


class Owner:
    """The variable that graphs lead to: the one in use here, and then the one that everybody sees.

    It stands where others have a weak reference.
    """

    __slots__ = ("of",)

    def __init__(self, variable: Tensor) -> None:
        self.of: weakref.ref[Tensor] | None = weakref.ref(variable)

    def __call__(self) -> Tensor | None:
        return None if self.of is None else self.of()


class Earnest:
    """The calls of one run, made on cells of their own."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._recorder = GraphRecorder()
        self._recorder.piled_up = lambda reason: None
        self.cells: dict[int, Cell] = {}  # by number
        self.variables: dict[
            int, Tensor
        ] = {}  # what stands for them, by the number of their memory

    def make(self) -> None:
        """Make all calls, and give everybody what came of them."""
        self.calls()
        if self.run.deferred:  # else what a signal's handler reads came before
            apply(self._published())

    @property
    def drawn(self) -> Drawn:
        """The memory of seeds and offsets of the random numbers that the calls drew."""
        return self._recorder.drawn

    def make_again(self) -> None:
        """Make all calls of a run that was computed, and give what keeps a graph that graph."""
        self.calls()
        past = self.run.past
        if past is not None:  # else what a signal's handler reads came before
            self.fill(past)
            apply(self._regained())

    def fill(self, past: Past) -> list[Node]:
        """Give nodes the values that were computed for them, those that passes read too."""
        outputs = past.ending.outputs
        nodes = {output.result: self.cells[output.number].node for output in outputs}
        roots = [nodes[place] for place in sorted(nodes)]
        kept = [self.cells[output.number] for output in outputs if output.kept]
        tracked = [cell.node for cell in kept if cell.rare is None or not cell.rare.spent]
        wanted = list(upcalls.match(roots, tracked, "").wanted) if tracked else roots
        if [node.types[0] for node in wanted] != past.ending.types:
            wanted = roots  # what else a pass reads is computed again
        for node, buffer in zip(wanted, past.results):
            if buffer is not None and node.buffer is None:
                node.buffer = buffer
                if node.op is PROJ:
                    keep_output(node)
        for cell in kept:
            settle(cell)
        return wanted

    def _regained(self) -> Iterator[Any]:
        """What changes for those who hold tensors that keep a graph."""
        run = self.run
        changes: list[Change] = []
        held: list[weakref.ref[Cell]] = []
        for number, joined in run.joints.items():
            changes += joined.unfolded(self.cells[number].node)
            held.append(joined.cell)
        for number, variable in self.variables.items():
            details, owner = variable._track.rare, run.owner(number)
            assert details is not None
            changes.append((details.owner, "of", None if owner is None else weakref.ref(owner)))
        changes.append((run, "past", None))
        tables = (run.log, run.draws, run.outside, run.joints)
        tracked = map(run.recorder.with_graphs.extend, (held,))
        return chain(starmap(setattr, changes), map(methodcaller("clear"), tables), tracked)

    def kept(self, ending: Ending) -> dict[int, Node]:
        """The nodes of results that keep a graph, by number."""
        return {o.number: self.cells[o.number].node for o in ending.outputs if o.kept}

    def target_of(self, joints: Mapping[int, int]) -> Callable[[Node], int | None]:
        """What gives the number of a variable, or of a result of a run before, for its node.

        `joints` has those of the latter, by the identity of their nodes.
        """
        variables = {id(variable): number for number, variable in self.variables.items()}

        def number_of(node: Node) -> int | None:
            owner = None if node.owner is None else node.owner()
            if owner is None:
                return joints.get(id(node))
            if id(owner) not in variables:
                raise NotTaped("a graph that leads to something else")
            return variables[id(owner)]

        return number_of

    def variables_as_nodes(self) -> dict[int, int]:
        """The numbers of variables by the identity of the nodes that stand for them in graphs."""
        return {
            id(details.key): number
            for number, variable in self.variables.items()
            if (details := variable._track.rare) is not None and details.key is not None
        }

    def calls(self) -> None:
        """Make all calls."""
        for number, outside in self.run.outside.items():
            if not outside.block:
                self._take_in(number, outside)
        plain = Switch(
            modes, eager=False, on_read=False, anomaly=None, capture=None, call_recorder=None
        )
        unseen, usual = Switch(running, looks=None), _defaults(*self.run.defaults)
        with plain, unseen, usual, record_with(self._recorder):
            self._make_all()

    def _make_all(self) -> None:
        draws = dict(self.run.draws)
        for place, entry in enumerate(tuple(self.run.log)):
            self._make(entry, draws.get(place, ()))

    def _memory(self, number: int) -> Node:
        """What memory from outside was when it was first used."""
        return self.run.outside[number].node

    def _take_in(self, number: int, outside: Outside) -> None:
        """Memory from outside as it was when it was first used."""
        cell = self.cells[number] = Cell(self._memory(number), outside.mode, None)
        cell.version = outside.version
        public = outside.variable
        if public is None:
            return
        variable = self.variables[number] = _new(Tensor)
        track = cell if outside.own else Track(LEAF, None)
        track.rare = Rare()
        track.rare.owner = Owner(variable)
        variable._cell, variable._track, variable._steps = cell, track, ()
        variable._seen, variable._extra = None, Extra()

    def _make(self, entry: Entry, draws: Draws) -> Any:
        """Make one call, and note what came of it by the numbers of its results."""
        values = [self._rebuilt(value) for value in entry.args]
        split = len(values) - len(entry.names)
        for gradient in entry.grads:
            before = None if gradient.before is None else self._handle(gradient.before)
            self.variables[gradient.owner]._details().grad = before
        path = "" if entry.mark is None else entry.mark[2]
        switch = Switch(modes, gradients=entry.gradients, autocast=entry.autocast)
        here = Switch(running, module_path=path, replayed=entry.mark)
        with switch, here, drawing(draws):
            made = entry.function(*values[:split], **dict(zip(entry.names, values[split:])))
        self._note(entry.result, made)
        for gradient in entry.grads:
            left = self.variables[gradient.owner].grad
            if gradient.before is None and left is not None:
                self.cells[gradient.number] = left._cell
        return made

    def _note(self, shown: Any, made: Any) -> None:
        if type(shown) is Shown:
            if shown.new:
                # a copy lies densely where what it was made of did not: what shows it is new there
                own = made if made._steps == shown.steps else made.clone()
                self.cells[shown.number] = own._cell
        elif type(shown) is Many:
            for part, result in zip(shown.parts, made):
                self._note(part, result)

    def _rebuilt(self, value: Any) -> Any:
        """An argument as the call was given it."""
        if type(value) is Ref:
            return self._handle(value)
        if type(value) is Varying:
            return self.run.fresh(self.run.given[value.index])
        if type(value) is Many:
            parts = [self._rebuilt(part) for part in value.parts]
            return parts if value.kind is list else value.kind(parts)
        return value

    def _handle(self, ref: Ref) -> Tensor:
        """A handle like the one that a call was given."""
        outside = self.run.outside.get(ref.number)
        if outside is not None and outside.block:
            made = holding(self._memory(ref.number), ref.mode)
            made._steps = ref.steps
            return made
        variable = self.variables.get(ref.number) if ref.mode == LEAF else None
        if variable is not None and not ref.steps:
            return variable
        made = _new(Tensor)
        made._cell, made._steps = self.cells[ref.number], ref.steps
        if variable is not None:
            made._track = variable._track
        else:
            made._track = made._cell if ref.own else Track(ref.mode, None)
        made._seen = made._extra = None
        return made

    # ---- what everybody sees --------------------------------------------------------------------

    def _published(self) -> Iterator[Any]:
        """Everything that changes for others, by C code alone."""
        run, graph = self.run, self.run.recorder
        changes: list[Change] = []
        places: dict[int, Cell] = {}  # of cells of ours, by identity: those that others hold
        for number, cell in self.cells.items():
            public = run.cell(number)
            if public is None:
                continue
            places[id(cell)] = public
            outside = run.outside.get(number)
            if outside is None:
                changes += [*_state(cell, public), (public, "rare", cell.rare)]
            elif outside.is_written(run):
                changes += [*_state(cell, public), *_rare(cell, public)]
        for number, variable in self.variables.items():
            changes += self._variable(number, variable)
        held = [made for r in self._recorder.pending if (made := r()) is not None]
        moved = [weakref.ref(places[id(made)]) for made in held if id(made) in places]
        changes.append((run, "deferred", False))
        changes.append((run, "calls", run.calls + len(run.log)))
        changes.append((run, "path", [*run.path, *run.calls_in_order()]))
        spent = {spent.number for entry in run.log for spent in entry.spent}
        lists = (graph.pending, moved), (graph.drawn, self._recorder.drawn)
        return chain(
            starmap(setattr, changes),
            starmap(list.extend, lists),
            map(run.spent.update, (spent,)),
            map(methodcaller("clear"), (run.log, run.draws, run.aside)),
        )

    def _variable(self, number: int, variable: Tensor) -> list[Change]:
        """Graphs lead to the variable that others know; it stands in graphs by the same node."""
        public = self.run.owner(number)
        details = variable._track.rare
        assert details is not None
        of = None if public is None else weakref.ref(public)
        changes: list[Change] = [(details.owner, "of", of)]
        outside = self.run.outside[number]
        if public is not None and public._track is not outside.variable:
            return changes  # it was given other memory since
        known = None if public is None else public._track.rare
        if public is not None and known is not None and details.key is not None:
            written = outside.is_written(self.run)
            now = self.cells[number].version if written else public._cell.version
            if details.key_version == now:
                changes += [(known, "key", details.key), (known, "key_version", now)]
        return changes


def _defaults(dtype: DType, device: str) -> AbstractContextManager[Any]:
    """The defaults of the run; they are the process's, and left alone where they are these."""
    same = defaults.dtype is dtype and defaults.device == device
    return nullcontext() if same else Switch(defaults, dtype=dtype, device=device)


def _state(cell: Cell, public: Cell) -> list[Change]:
    return [
        (public, "node", cell.node), (public, "version", cell.version),
        (public, "mode", cell.mode), (public, "types", None),
    ]  # fmt: skip


def _rare(cell: Cell, public: Cell) -> list[Change]:
    """Of memory from outside: its identity stays, and what graphs were let go is new."""
    made, known = cell.rare, public.rare
    if made is None or made.owner is not None:
        return [] if known is None else [(known, "key", None)]
    if known is None:
        return [(public, "rare", made)]
    names = ("spent", "behind", "rest", "formers")
    return [(known, "key", None), *[(known, name, getattr(made, name)) for name in names]]
