"""The executable of a trace: its program, the memory it runs on, and what it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import ref

from ridgeline.atomic import Change, apply, steps
from ridgeline.compiler.passes import Observer, Recorded
from ridgeline.compiler.pipeline import prepare
from ridgeline.execution.device_copies import Brought
from ridgeline.execution.tiers import is_library_call
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.node import Node
from ridgeline.graph.origins import user_line
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.record.cells import GRAPH, LEAF, PLAIN, Cell, filled_leaf
from ridgeline.record.memory import note_write
from ridgeline.record.turns import AGAIN, Turn, in_turn
from ridgeline.record.values import special
from ridgeline.runtime.buffer import HostBuffer, space
from ridgeline.tensors.pytree import unflatten
from ridgeline.tensors.tensor import holding
from ridgeline.tracing.budgets import keep_budget
from ridgeline.tracing.capture import ArgumentInput, CellInput, GradientInput, NumberInput, Source
from ridgeline.tracing.donation import donated_pairs, give_away
from ridgeline.tracing.hoisted import Steady, SteadySource, steady_sizes
from ridgeline.tracing.in_place_state import Handover, Loan, pairs, place_key
from ridgeline.tracing.recording import Recording
from ridgeline.tracing.side_effects import (
    Fresh,
    LiveNumber,
    fresh,
    live_buffer,
    live_cell,
    live_node,
    result_of,
    settled,
)
from ridgeline.tracing.turns import turns_for, turns_of

if TYPE_CHECKING:
    from ridgeline.compiler.backend import PausedRun

# makes the program of a graph; pairs are numbers of outputs that replace inputs
Make: TypeAlias = Callable[[Graph, Sequence[tuple[int, int]]], Any]
_NOTHING: dict[int, Node] = {}
_NOBODYS: dict[int, Cell] = {}
_CLAIMED: Any = object()  # stands for the result of a step that holds other turns than its own


class _Call(NamedTuple):
    """A call of a trace: its arguments, and whether it is the one that was traced."""

    leaves: Sequence[Any]
    made_for_it: bool


class PreparedGraph(NamedTuple):
    """The graph of a recording, ready to be compiled, with hoisted values as inputs."""

    graph: Graph
    slots: list[Node]  # its first inputs: those of the recording that are read, then constants
    hoisted: Sequence[Node]  # its other inputs, which depend on what is steady alone
    steady: dict[Node, SteadySource]
    captured: tuple[Graph, Recorded]  # before the passes, to show what they do


def prepared_graph(recording: Recording, hoists: bool = True) -> PreparedGraph:
    """The graph that a recording computes; what depends on weights alone is hoisted."""
    inputs = recording.inputs
    recorded = Graph.below(recording.outputs, lambda n: n in inputs or n.buffer is not None)
    sources = _steady_sources(recording) if hoists else {}
    how = Recorded("jit", is_library_call, steady_sizes(sources))
    prepared = prepare(recorded, how)
    read = [node for node in prepared.order if recorded.is_input(node)]
    for node in read:
        if node not in inputs and node.buffer is None:
            raise AssertionError("a traced graph reads a leaf that is neither input nor value")
    used = set(read)
    slots = [node for node in inputs if node in used]
    slots += [node for node in read if node not in inputs]
    hoisted = prepared.inputs[len(recorded.inputs) :]
    graph = Graph(prepared.outputs, [*slots, *hoisted])
    return PreparedGraph(graph, slots, hoisted, sources, (recorded, how))


def _steady_sources(recording: Recording) -> dict[Node, SteadySource]:
    """The tensors and numbers that inference reads and does not change."""
    if recording.signature.gradients or recording.pattern is not None:
        return {}
    writes = recording.effects.writes
    written = {w.source.cell for w in writes if isinstance(w.source, CellInput)}
    return {
        node: source
        for node, source in recording.inputs.items()
        if isinstance(source, NumberInput)
        or (isinstance(source, CellInput) and source.cell not in written)
    }


def _unchanged(leaves: Sequence[Any]) -> str | None:
    return None


class Executable:
    """A recorded call as one program over live memory."""

    def __init__(
        self,
        recording: Recording,
        changed: Callable[[Sequence[Any]], str | None],
        make: Make,
        budget: int = 0,
    ) -> None:
        """`changed` says whether the recording still stands for a call that waited for its turn.

        A call keeps to a `budget` as far as it has to decide; the program does the rest. Nothing of
        it is left for values that are kept from call to call: none is hoisted.
        """
        self.recording, self._changed, self._budget = recording, changed, budget
        inputs = recording.inputs
        prepared = prepared_graph(recording, hoists=not budget)
        self.captured = prepared.captured
        kept, slots, graph = prepared.hoisted, prepared.slots, prepared.graph
        self.steady = Steady(kept, prepared.steady) if kept else None
        self._graph_of: Callable[[], Graph] = lambda: graph
        self.output_types = [node.types[0] for node in graph.outputs]
        self.fixed: list[Any] = [node.buffer if node not in inputs else None for node in slots]
        self.readers = [(n, inputs[node]) for n, node in enumerate(slots) if node in inputs]
        # the common kinds apart, so that a replay finds their buffers without asking what they are
        self.cells = [(n, s.cell) for n, s in self.readers if isinstance(s, CellInput)]
        self.arguments = [(n, s.index) for n, s in self.readers if isinstance(s, ArgumentInput)]
        self.numbers = [(n, LiveNumber(s)) for n, s in self.readers if isinstance(s, NumberInput)]
        self.gradients = [(n, s.owner) for n, s in self.readers if isinstance(s, GradientInput)]
        plain = (CellInput, ArgumentInput, NumberInput, GradientInput)
        self.others = [(n, s) for n, s in self.readers if not isinstance(s, plain)]
        # where arguments are all that is read, their places in the order of the inputs
        only = len(self.arguments) == len(graph.inputs) and self.steady is None
        self._argument_cells = [index for _, index in self.arguments] if only else None
        self._places = slot_of = {place_key(source): n for n, source in self.readers}
        taken = pairs(recording.effects, slot_of)
        self._given = given = self._given_pairs(taken)
        taken += [(output, slot_of.get(place_key(source), -1)) for output, source in given]
        self._run_by(make(graph, taken))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The locks that every call takes."""
        return self._turns

    @property
    def graph(self) -> Graph:
        """What it computes, over its inputs."""
        return self._graph_of()

    def by(self, recording: Recording, program: Any) -> Executable:
        """The same by a program for other sizes, which none of its results has."""
        made = copy(self)
        made.recording, made.program = recording, program
        return made

    def at(self, recording: Recording, settled: Settled, program: Any) -> Executable:
        """The same over a recording of which the sizes are known, by its program."""
        made = copy(self)
        made.recording = recording
        made._graph_of = partial(settled.graph, self.graph)  # to show it: nothing else asks
        made.output_types = [settled.value(kind) for kind in self.output_types]
        made._run_by(program)
        return made

    def _run_by(self, program: Any) -> None:
        """Use a program, and the memory that it may overwrite."""
        recording = self.recording
        self.program = program
        self.only_returns, self._held = recording.only_returns, recording.held
        self._turns, self._turned = turns_for(recording.effects, recording.donated)
        self._writes = [
            # the cell where it is known beforehand, and else how it is found; what it gets
            (
                write.source.cell if isinstance(write.source, CellInput) else None,
                write.source,
                write.output,
                GRAPH if write.mode == GRAPH else PLAIN,
            )
            for write in recording.effects.writes
        ]
        self.handover = Handover(
            recording.effects, self._given, self._places, program.replaceable, self.output_types
        )

    def _given_pairs(self, taken: Sequence[tuple[int, int]]) -> list[tuple[int, Source]]:
        """Outputs that may overwrite donated arguments."""
        recording = self.recording
        outputs = [(r.output, r.type) for r in recording.returns if isinstance(r, Fresh)]
        pattern = recording.pattern
        signature = recording.signature if pattern is None else pattern.signature
        donated = [(index, signature.leaves[index].type) for index in sorted(recording.donated)]
        found = donated_pairs(outputs, donated, taken)
        return [(output, ArgumentInput(index)) for output, index in found]

    def walk(self, observe: Observer) -> None:
        """Run the passes that made the program again and show the state after each."""
        prepare(*self.captured, observe)
        self.program.walk(observe)

    def live_buffers(self, leaves: Sequence[Any]) -> list[HostBuffer]:
        """The present buffers of the program's inputs."""
        buffers = self.fixed.copy()
        for slot, index in self.arguments:
            cell = leaves[index]._cell
            buffer = cell.node.buffer  # one read: another thread may write to the cell
            if buffer is None or (cell.rare is not None and cell.rare.shared is not None):
                buffer = settled(cell)
            buffers[slot] = buffer
        for slot, cell in self.cells:
            buffer = cell.node.buffer
            if buffer is None or (cell.rare is not None and cell.rare.shared is not None):
                buffer = settled(cell)
            buffers[slot] = buffer
        for slot, number in self.numbers:
            buffers[slot] = number.buffer()
        for slot, owner in self.gradients:
            cell = owner._extra.grad._cell  # type: ignore[union-attr]  # the guards saw one
            buffer = cell.node.buffer
            buffers[slot] = settled(cell) if buffer is None or cell.rare is not None else buffer
        for slot, source in self.others:
            buffers[slot] = live_buffer(source, leaves)
        if self.steady is not None:
            buffers += self.steady.buffers()
        return buffers

    def replay(self, leaves: Sequence[Any], made_for_it: bool = False) -> Any:
        """Run the program on the live values, set what it changes, and return its results.

        What writes to state waits for its turn. `AGAIN` where another thread's step meanwhile
        changed what this trace was chosen by; one that was made for this call, by running Python,
        is never tried again.
        """
        if self.only_returns:
            buffers = self.live_buffers(leaves) if self._argument_cells is None else []
            for index in self._argument_cells or ():
                cell = leaves[index]._cell
                buffer = cell.node.buffer
                if buffer is None or (cell.rare is not None and cell.rare.shared is not None):
                    buffer = settled(cell)
                buffers.append(buffer)
            (buffer,) = self.program.run(buffers)
            return holding(filled_leaf(self.output_types[0], buffer), PLAIN)
        changed = _unchanged if made_for_it else self._changed
        while self._turned is not None:
            turns = turns_of(self._turns, self._turned, leaves)
            step = partial(self._step_of, leaves, made_for_it, turns)
            result = in_turn(turns, step, partial(changed, leaves))
            if result is not _CLAIMED:
                return result
        turns = self._turns
        if len(turns) == 1:  # the common case, without another call
            turn = turns[0]
            with turn.lock:
                if turn.passed_to_me() and changed(leaves) is not None:
                    return AGAIN
                return self._step(leaves, made_for_it)
        return in_turn(turns, partial(self._step, leaves, made_for_it), partial(changed, leaves))

    def _step_of(self, leaves: Sequence[Any], made_for_it: bool, turns: tuple[Turn, ...]) -> Any:
        """A step that holds these locks, unless some of its state was claimed meanwhile."""
        assert self._turned is not None
        mine = turns == turns_of(self._turns, self._turned, leaves)
        return self._step(leaves, made_for_it) if mine else _CLAIMED

    def _step(self, leaves: Sequence[Any], made_for_it: bool) -> Any:
        """Run the program and make all changes, or none."""
        call = _Call(leaves, made_for_it)
        try:
            return self._run(call)
        finally:
            if made_for_it:
                for held in self._held:
                    held.forget_traced()

    def _run(self, call: _Call) -> Any:
        leaves = call.leaves
        buffers = self.live_buffers(leaves)
        live = self._instantiate(leaves) if self.recording.tracked is not None else _NOTHING
        if not self.handover:
            if self._budget:
                self._keep_budget(Loan(), buffers, leaves)
            changes, calls = list[Change](), list[Callable[[], object]]()
            results = self.program.run(buffers)
            nodes = self._output_nodes(results, [None] * len(results), live, changes)
            value = self._note(nodes, call, changes, calls, _NOBODYS)
            apply(steps(calls, changes))
            return value
        loan = self.handover.lend(leaves, buffers)
        if self._budget:
            self._keep_budget(loan, buffers, leaves)
        if self.program.exclusive is None:
            return self._overwrite(loan, self.program.begin(buffers, loan.memory), live, call)
        with self.program.exclusive:
            return self._overwrite(loan, self.program.begin(buffers, loan.memory), live, call)

    def _overwrite(self, loan: Loan, run: PausedRun, live: dict[int, Node], call: _Call) -> Any:
        """Run the program over the memory of what it replaces."""
        while True:
            changes: list[Change] = []
            results, calls = run.finish(loan.memory)
            nodes: list[Any] = [None] * len(results)
            loan.stand(results, nodes, changes)
            nodes = self._output_nodes(results, nodes, live, changes)
            value = self._note(nodes, call, changes, calls, loan.gradients)
            del results, nodes  # references are counted
            try:
                if loan.run(changes, calls):
                    break
            except BaseException as error:
                run.explain(error)
                raise
            loan = Loan()  # somebody came to hold some of the memory: all of it is left to them
            if self._budget:
                self._keep_budget(loan, (), call.leaves)
        run.ended()
        return value

    def _keep_budget(self, loan: Loan, inputs: Sequence[Any], leaves: Sequence[Any]) -> None:
        """Raise if this call would hold more than its budget."""
        program = self.program.program if isinstance(self.program, Brought) else self.program
        known = {*map(id, inputs), *map(id, loan.memory.values())}
        besides = [m for m in self._replaced(leaves) if id(m) not in known and not m.borrowed]
        keep_budget(self._budget, program.held.total, program.layout, loan.memory, besides)

    def _replaced(self, leaves: Sequence[Any]) -> Iterator[Any]:
        """The memory of cells and gradients that a call gives new values."""
        for known, source, _, _ in self._writes:
            cell = known if isinstance(source, ref) else live_cell(source, leaves)
            if cell is not None and cell.node.buffer is not None:
                yield cell.node.buffer
        for change in self.recording.effects.gradients:
            owner = change.owner if change.argument is None else leaves[change.argument]
            gradient = None if owner._extra is None else owner._extra.grad
            if gradient is not None and gradient._cell.node.buffer is not None:
                yield gradient._cell.node.buffer

    def _note(
        self,
        nodes: Sequence[Node],
        call: _Call,
        changes: list[Change],
        calls: list[Callable[[], object]],
        kept: Mapping[int, Cell],
    ) -> Any:
        """Note what a call sets besides the values of nodes, and what it returns.

        `kept` are the cells of gradients that stay the same tensors, by output.
        """
        leaves, recording = call.leaves, self.recording
        for generator, count in recording.effects.drawn:
            changes.append((generator, "_offset", generator._offset + count))
        self._note_writes(nodes, call, changes, calls)
        for track, mode in recording.effects.modes:
            changes.append((track, "mode", mode))
        for change in recording.effects.gradients:
            owner = change.owner if change.argument is None else leaves[change.argument]
            value = change.value
            if isinstance(value, Fresh) and value.output in kept:
                cell = kept[value.output]
                changes.append((cell, "version", cell.version + 1))
                continue
            gradient = fresh(value, nodes) if isinstance(value, Fresh) else value
            if gradient is not None or owner._extra is not None:
                changes.append((owner._details(), "grad", gradient))
        if recording.donated:
            given = [leaves[index] for index in recording.donated]
            give_away(given, recording.name, user_line(), changes)
        if (
            len(recording.returns) == 1
            and recording.result_structure is None
            and not recording.stores
        ):
            return result_of(recording.returns[0], nodes, leaves)
        shared: dict[int, Any] = {}

        def made(spec: Any) -> Any:
            if id(spec) not in shared:  # one tensor returned twice is one tensor again
                shared[id(spec)] = result_of(spec, nodes, leaves)
            return shared[id(spec)]

        for store in recording.stores:
            if not (call.made_for_it and store.adds):  # which Python has done
                calls.append(store.call([made(spec) for spec in store.leaves]))
        return unflatten(recording.result_structure, [made(spec) for spec in recording.returns])

    def _output_nodes(
        self,
        results: list[HostBuffer],
        nodes: list[Any],
        live: Mapping[int, Node],
        changes: list[Change],
    ) -> list[Node]:
        """The nodes that stand for results; those which are there stay, unless given by number."""
        for number, node in live.items():
            nodes[number] = node
            if node.buffer is None:
                changes.append((node, "buffer", self._own(results, number)))
        for number, known in enumerate(nodes):
            if known is None:
                buffer = self._own(results, number)
                nodes[number] = filled_leaf(self.output_types[number], buffer)
        return nodes

    def _own(self, results: list[HostBuffer], number: int) -> HostBuffer:
        """A result with memory of its own, unless it is an input passed through."""
        buffer = results[number]
        if not buffer.borrowed:
            return buffer
        copied: HostBuffer = space(self.output_types[number].device).copy(buffer)
        return copied

    def _instantiate(self, leaves: Sequence[Any]) -> dict[int, Node]:
        """The graphs of tracked outputs over the live inputs, so that backward can continue."""
        tracked = self.recording.tracked
        assert tracked is not None
        replacements: dict[Node, Node] = {}
        for node, source in tracked.inputs.items():
            replacements[node] = live_node(source, leaves)
        for key, source, track in tracked.keys:
            cell = live_cell(source, leaves)
            own = leaves[source.index]._track if isinstance(source, ArgumentInput) else track
            replacements[key] = special(cell, own)
        numbers = [*tracked.outputs, *tracked.saved]
        graphs = [*tracked.outputs.values(), *tracked.saved.values()]
        return dict(zip(numbers, substitute(graphs, replacements)))

    def _note_writes(
        self,
        nodes: Sequence[Node],
        call: _Call,
        changes: list[Change],
        calls: list[Callable[[], object]],
    ) -> None:
        """Note the new values of the cells that the call writes to."""
        for known, source, output, mode in self._writes:
            cell = known
            if cell is None:
                if isinstance(source, ref):  # what the traced call made, and somebody still holds
                    cell = source() if call.made_for_it else None
                else:
                    cell = live_cell(source, call.leaves)
                if cell is None:
                    continue
                if isinstance(source, ref):
                    changes.append((cell, "capture", None))
            node = nodes[output]
            if cell.rare is not None:
                node = note_write(cell, node, changes, calls)
            if node is not cell.node:
                changes.append((cell, "node", node))
            changes.append((cell, "version", cell.version + 1))
            if cell.mode != mode and cell.mode < LEAF:
                changes.append((cell, "mode", mode))
