"""A trace: one captured call, compiled, with what to check before and what to set after a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import nullcontext
from functools import partial
from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ridgeline.atomic import Change, apply, steps
from ridgeline.collector import paused
from ridgeline.compiler.passes import Observer
from ridgeline.compiler.pipeline import prepare
from ridgeline.compiler.settings import Recorded
from ridgeline.config import config
from ridgeline.devices import current as current_gpu
from ridgeline.functions.operands import defaults
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.node import Node
from ridgeline.graph.origins import user_line
from ridgeline.graph.passes.autodiff.differentiate import saved_for_backward
from ridgeline.runtime.buffer import HostBuffer
from ridgeline.runtime.memory_spaces import space
from ridgeline.tensors import execute
from ridgeline.tensors.cells import CUT, GRAPH, LEAF, PLAIN, Cell, Track, filled_leaf
from ridgeline.tensors.modes import modes
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, holding
from ridgeline.tensors.tiers import Runnable, is_library_call, program_for
from ridgeline.tensors.turns import AGAIN, Turn, in_turn
from ridgeline.tensors.values import special
from ridgeline.tracing import guards
from ridgeline.tracing.capture import (
    ArgumentInput,
    Capture,
    CellInput,
    GradientInput,
    NumberInput,
    Source,
    StateInput,
)
from ridgeline.tracing.donation import donated_pairs, give_away
from ridgeline.tracing.dynamic import Pattern
from ridgeline.tracing.guards import Lifted, snapshot
from ridgeline.tracing.hoisted import Steady, SteadySource, steady_sizes
from ridgeline.tracing.in_place_state import Handover, Loan, pairs, place_key
from ridgeline.tracing.kept_state import Stores, adopt
from ridgeline.tracing.moving_views import touched
from ridgeline.tracing.reads.holds import Guards
from ridgeline.tracing.reads.observing import observe
from ridgeline.tracing.reads.recorder import Recorder
from ridgeline.tracing.side_effects import (
    Effects,
    Fresh,
    LiveNumber,
    Tracked,
    Write,
    fresh,
    gradient_write,
    live_buffer,
    live_cell,
    live_node,
    place_of,
    result_of,
    return_spec,
    settled,
    track_source,
)
from ridgeline.tracing.signatures import (
    CHANGING,
    Signature,
    described_parts,
    difference,
    signature_of,
)
from ridgeline.tracing.turns import turns_for, turns_of

if TYPE_CHECKING:
    from ridgeline.compiler.backend import Run


def _settings() -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if name != "epoch"}


_mode_of = attrgetter("mode")
_NOTHING: dict[int, Node] = {}
_NOBODYS: dict[int, Cell] = {}


def _is_unchanged(structure: Hashable, leaves: Sequence[Any], arguments: Any, lifted: bool) -> bool:
    """True where the call left the containers among its arguments as they were."""
    after: list[Any] = []
    nested = flatten(arguments, after)
    kept = all(
        a is b or (lifted and isinstance(b, Lifted)) for a, b in zip(leaves, after, strict=False)
    )
    return nested == structure and kept


class _Call(NamedTuple):
    """A call of a trace: its arguments, and whether it is the one that was traced."""

    leaves: Sequence[Any]
    made_for_it: bool


_CLAIMED: Any = object()  # stands for the result of a step that holds other turns than its own


def _unchanged(leaves: Sequence[Any]) -> str | None:
    return None


class Trace:
    """A compiled call and the conditions under which it stands for the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        changing: Set[int] = frozenset(),
        pattern: Pattern | None = None,
        donated: Set[int] = frozenset(),
        compiled: bool = True,
    ) -> None:
        """Trace a call; without `compiled` the program is made later, by `compile(*recorded)`."""
        self.donated = donated  # places of tensors that a call is given for good
        self.name = getattr(function, "__qualname__", repr(function))
        with paused, nullcontext() if pattern is None else pattern.facts.deciding():
            self._build(function, args, kwargs, changing, pattern, compiled)

    def _build(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        changing: Set[int],
        pattern: Pattern | None,
        compiled: bool,
    ) -> None:
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        self.signature = signature_of(structure, leaves, changing)
        self._call = threading.local()  # the arguments of the call that this thread makes
        self.lifts = any(leaf is CHANGING for leaf in self.signature.leaves)
        if self.lifts:
            self._call.leaves = leaves
            args, kwargs = unflatten(structure, self._lifted(leaves))
        self.simple = not kwargs and all(isinstance(a, Tensor) for a in args)
        self.epoch, self.config_epoch = guards.epoch.value, config.epoch
        self.settings, self.default_dtype = _settings(), defaults.dtype
        self.gpu = current_gpu.index
        self.pattern = pattern
        self._calls = 1
        capture = Capture() if pattern is None else Capture(pattern.types)
        recorder = Recorder(capture.watch, described_parts((args, kwargs)), capture)
        recorder.found(function)
        recorder.found(getattr(function, "__self__", None))
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                capture.argument(leaf._cell, place)
            else:
                recorder.found(leaf)
        outputs: list[Node] = []
        gradients, narrow = modes.gradients, modes.autocast
        modes.capture = capture
        try:
            result = self._run_python(recorder, function, args, kwargs)
            reads = recorder.reads()
            self.open = recorder.open  # why every call has to run Python, if so
            stores = Stores() if self.open else recorder.stores
            if stores.all:
                reads = adopt(stores, reads, capture)
            del recorder  # which held what the function made, such as the tensors of a list
            self.guards = Guards(() if self.open else reads)  # which keep alive what they compare
            if capture.refusal is not None:  # whatever the function did about it
                raise capture.refusal
            if not _is_unchanged(structure, leaves, (args, kwargs), self.lifts):
                self.open = self.open or "the function changes an argument"
            self._describe(capture, result, stores, leaves, outputs)
            del result
            self._keep_leaked(capture, outputs)
            self.tracked = self._track(capture, outputs, leaves)
        except BaseException:
            apply(starmap(setattr, capture.detached))
            raise
        finally:
            modes.capture = None
            # an interrupt may end a block of the function before it has set these back
            modes.gradients, modes.autocast = gradients, narrow
            capture.close()
        # what counts of the objects that are watched: not what calls leave there themselves
        self._look = stores.without
        self.watched = [
            (obj, snapshot(obj, stores.without) if stores.explain(obj, before) else before)
            for obj, before in capture.watched.values()
        ]
        self.requirements = capture.requirements
        self.held = {s.held for s in capture.inputs.values() if isinstance(s, StateInput)}
        self.gradients_read = [
            (owner, place_of(owner, leaves), form)
            for owner, form in capture.gradients_read.values()
        ]
        self.recorded: tuple[dict[Node, Source], list[Node]] | None = None
        if pattern is None and compiled:
            self.compile(capture.inputs, outputs, program_for)
        else:  # for a template to compile, or beside the program
            self.recorded = capture.inputs, outputs
        self.only_returns = self._only_returns()
        self.turns, self.turned = turns_for(self.effects, self.donated)
        self.outside = {s.cell for s in capture.inputs.values() if isinstance(s, CellInput)}
        self.pinned = self._pin(leaves)
        self.touched = touched(self, leaves)  # arguments that cannot be given by value
        self.born = self.epoch
        standing = self._standing(capture, leaves)
        self.tracks, self.standing = [t for t, _ in standing], [mode for _, mode in standing]
        self.stood: list[int] = []  # the modes that were found to agree
        moved = self._changed_object()
        if moved is not None:
            self.epoch = -1  # the call itself changed what it reads: look again before a replay
        # why this stands for the call that was traced and for none after it
        cut = "a tensor from outside was detached" if capture.detached else ""
        self.fleeting = moved or cut or self.guards.broken() or ""

    @staticmethod
    def _run_python(recorder: Recorder, function: Any, args: Any, kwargs: Any) -> Any:
        """Run the function as one that reports what it reads."""
        modes.recorder = recorder
        try:
            result = recorder.called(function)(*args, **kwargs)
            observe(recorder, result, instances=False)  # it is built anew from this
        finally:
            modes.recorder = None
        return result

    def _lifted(self, leaves: Sequence[Any]) -> list[Any]:
        """The arguments with changing floats as numbers that every call reads anew."""
        call = self._call
        return [
            Lifted(lambda place=place: call.leaves[place], leaf)  # type: ignore[misc]
            if described is CHANGING
            else leaf
            for place, (leaf, described) in enumerate(zip(leaves, self.signature.leaves))
        ]

    # ---- building -------------------------------------------------------------------------------

    def _describe(
        self,
        capture: Capture,
        result: Any,
        stores: Stores,
        leaves: Sequence[Any],
        outputs: list[Node],
    ) -> None:
        """Write down what a replay has to return and to set."""
        returned: list[Any] = []
        self.result_structure = flatten(result, returned)
        made: dict[int, Any] = {}

        def described(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) not in made:  # one tensor returned twice is one tensor
                made[id(leaf)] = return_spec(capture, leaf, leaves, outputs, self.donated)
            return made[id(leaf)]

        self.returns: list[Any] = [described(leaf) for leaf in returned]
        self.stores = stores.specs(described)
        writes, changed = [], []
        for outer, shadow in capture.shadows.items():
            if isinstance(outer, Cell) and isinstance(shadow, Cell) and shadow.version:
                outputs.append(shadow.node)
                source = capture.source(outer)
                kind = shadow.node.types[0]
                writes.append(Write(source, len(outputs) - 1, kind, shadow.mode))
            variable = LEAF in (shadow.mode, outer.mode) or not isinstance(outer, Cell)
            if shadow.mode != outer.mode and variable:
                changed.append((outer, shadow.mode))
        gradients = []
        for owner, value in capture.gradients.values():
            if owner._track.capture is None:
                gradients.append(gradient_write(capture, owner, value, leaves, outputs))
        drawn = [(generator, stream.used) for generator, stream in capture.streams.items()]
        self.effects = Effects(writes, [g for g in gradients if g is not None], changed, drawn)

    def _keep_leaked(self, capture: Capture, outputs: list[Node]) -> None:
        """Tensors made inside that somebody still holds, such as new optimizer state."""
        capture.gradients.clear()
        self.leaked: list[ref[Cell]] = []
        for cell_ref in capture.made:
            cell = cell_ref()
            if cell is not None:
                outputs.append(cell.node)
                kind = cell.node.types[0]
                self.effects.writes.append(Write(cell_ref, len(outputs) - 1, kind, cell.mode))
                self.leaked.append(cell_ref)

    def _track(
        self, capture: Capture, outputs: list[Node], leaves: Sequence[Any]
    ) -> Tracked | None:
        """The graphs of outputs through which gradients flow on, and what backward will read."""
        results = [*self.returns, *(leaf for store in self.stores for leaf in store.leaves)]
        numbers = [r.output for r in results if isinstance(r, Fresh) and r.tracked]
        numbers += [w.output for w in self.effects.writes if w.mode == GRAPH]
        numbers += [
            g.value.output
            for g in self.effects.gradients
            if isinstance(g.value, Fresh) and g.value.tracked
        ]
        if not numbers:
            return None
        graphs = {number: outputs[number] for number in numbers}
        known = set(capture.inputs) | set(graphs.values())
        saved = saved_for_backward(
            list(graphs.values()), lambda n: n in known or n.buffer is not None
        )
        places = {}
        for node in saved:
            outputs.append(node)
            places[len(outputs) - 1] = node
        keys = []
        for outer, shadow in capture.shadows.items():
            if shadow.rare is not None and shadow.rare.key is not None and shadow.mode == LEAF:
                keys.append((shadow.rare.key, track_source(capture, outer, leaves), outer))
        return Tracked(graphs, places, keys, dict(capture.inputs))

    def compile(
        self,
        inputs: Mapping[Node, Source],
        outputs: Sequence[Node],
        make: Callable[[Graph, Sequence[tuple[int, int]]], Any],
    ) -> None:
        """One program for all outputs."""
        recorded = Graph.below(outputs, lambda n: n in inputs or n.buffer is not None)
        sources = self._steady_sources(inputs)
        how = Recorded("jit", is_library_call, steady_sizes(sources))
        prepared = prepare(recorded, how)
        self.captured = recorded, how  # to show what the passes do
        kept = prepared.inputs[len(recorded.inputs) :]  # what was hoisted
        self.steady = Steady(kept, sources) if kept else None
        read = [node for node in prepared.order if recorded.is_input(node)]
        for node in read:
            if node not in inputs and node.buffer is None:
                raise AssertionError("a traced graph reads a leaf that is neither input nor value")
        used = set(read)
        slots = [node for node in inputs if node in used]
        slots += [node for node in read if node not in inputs]
        self.graph = Graph(prepared.outputs, [*slots, *kept])
        self.output_types = [node.types[0] for node in prepared.outputs]
        self.fixed: list[Any] = [node.buffer if node not in inputs else None for node in slots]
        self.readers = [(n, inputs[node]) for n, node in enumerate(slots) if node in inputs]
        # the common kinds apart, so that a replay finds their buffers without asking what they are
        self.cells = [(n, s.cell) for n, s in self.readers if isinstance(s, CellInput)]
        self.arguments = [(n, s.place) for n, s in self.readers if isinstance(s, ArgumentInput)]
        self.numbers = [(n, LiveNumber(s)) for n, s in self.readers if isinstance(s, NumberInput)]
        self.gradients = [(n, s.owner) for n, s in self.readers if isinstance(s, GradientInput)]
        plain = (CellInput, ArgumentInput, NumberInput, GradientInput)
        self.others = [(n, s) for n, s in self.readers if not isinstance(s, plain)]
        self._places = places = {place_key(source): n for n, source in self.readers}
        taken = pairs(self.effects, places)
        self._given = given = self._given_pairs(taken)
        taken += [(output, places.get(place_key(source), -1)) for output, source in given]
        self.run_by(make(self.graph, taken))

    def walk(self, observe: Observer) -> None:
        """Go through the passes once more, as they made the program, and show each."""
        prepare(*self.captured, observe)
        self.program.walk(observe)

    def run_by(self, program: Runnable) -> None:
        """Use a program, and the memory that it may overwrite."""
        self.program = program
        self._writes = [
            # the cell where it is known beforehand, and else how it is found; what it gets
            (
                write.source.cell if isinstance(write.source, CellInput) else None,
                write.source,
                write.output,
                GRAPH if write.mode == GRAPH else PLAIN,
            )
            for write in self.effects.writes
        ]
        self.handover = Handover(
            self.effects, self._given, self._places, program.replaceable, self.output_types
        )

    def _given_pairs(self, taken: Sequence[tuple[int, int]]) -> list[tuple[int, Source]]:
        """Returned outputs that may lie in the memory of donated arguments."""
        outputs = [(r.output, r.type) for r in self.returns if isinstance(r, Fresh)]
        signature = self.signature if self.pattern is None else self.pattern.signature
        donated = [(place, signature.leaves[place].type) for place in sorted(self.donated)]
        found = donated_pairs(outputs, donated, taken)
        return [(output, ArgumentInput(place)) for output, place in found]

    def _steady_sources(self, inputs: Mapping[Node, Source]) -> dict[Node, SteadySource]:
        """The tensors and numbers that inference reads and does not change."""
        if self.signature.gradients or self.pattern is not None:
            return {}
        written = {w.source.cell for w in self.effects.writes if isinstance(w.source, CellInput)}
        return {
            node: source
            for node, source in inputs.items()
            if isinstance(source, NumberInput)
            or (isinstance(source, CellInput) and source.cell not in written)
        }

    def _only_returns(self) -> bool:
        """True where all that a call does is to return one new tensor without a history."""
        only = self.returns[0] if len(self.returns) == 1 else None
        if not isinstance(only, Fresh) or only.mode == GRAPH or self.result_structure is not None:
            return False
        if self.donated or self.stores:
            return False
        changes = self.effects
        return not (changes.writes or changes.gradients or changes.modes or changes.drawn)

    def _pin(self, leaves: Sequence[Any]) -> list[tuple[int, Cell]]:
        """Arguments that the function can also reach by itself: they must stay the same cell."""
        found = [*self.guards.values]
        for _, image in self.watched:
            found += guards.objects_in(image)
        known = {value._cell for value in found if isinstance(value, Tensor)}
        return [
            (place, leaf._cell)
            for place, leaf in enumerate(leaves)
            if isinstance(leaf, Tensor) and leaf._cell in known
        ]

    def _standing(self, capture: Capture, leaves: Sequence[Any]) -> list[tuple[Track, int]]:
        """How tensors from outside stand to differentiation; arguments have it in the signature."""
        given = {leaf._track for leaf in leaves if isinstance(leaf, Tensor)}
        return [
            (track, max(track.mode, CUT))
            for track in capture.shadows
            if track not in given
            and (not isinstance(track, Cell) or isinstance(capture.source(track), CellInput))
        ]

    # ---- checking -------------------------------------------------------------------------------

    def broken(self, signature: Signature | None, leaves: Sequence[Any]) -> str | None:
        """Why this trace does not fit a call; None if it does."""
        if signature is not None and signature != self.signature:
            return difference(self.signature, signature)
        return self._changed(leaves)

    def accepts(self, args: tuple[Any, ...]) -> bool:
        """True where this trace, of a call with nothing but tensors, fits such a call."""
        signature = self.signature
        specs = signature.leaves
        if len(specs) != len(args) or modes.gradients is not signature.gradients:
            return False
        if modes.autocast != signature.autocast:
            return False
        first: dict[Cell, int] = {}
        for place, (arg, spec) in enumerate(zip(args, specs)):
            if not isinstance(arg, Tensor):
                return False
            cell = arg._cell
            kind = cell.node.types[0]
            if (
                (kind is not spec.type and kind != spec.type)
                or arg._track.mode != spec.mode
                or arg._steps != spec.steps
                or first.setdefault(cell, place) != spec.same_as
            ):
                return False
        return self._changed(args) is None

    def _changed(self, leaves: Sequence[Any]) -> str | None:
        """Which of the things that were the case while tracing is so no longer; None if all are."""
        if self.lifts:
            self._call.leaves = leaves
        if config.epoch != self.config_epoch:
            if _settings() != self.settings:
                return "a setting of ridgeline.config changed"
            self.config_epoch = config.epoch
        if defaults.dtype is not self.default_dtype:
            return "the default element type changed"
        if current_gpu.index != self.gpu:
            return "another GPU became the current one"
        if guards.epoch.value != self.epoch:
            reason = self._changed_object()
            if reason is not None:
                return reason
            self.epoch = guards.epoch.value
        stand = list(map(_mode_of, self.tracks))
        if stand != self.stood:
            for mode, now in zip(self.standing, stand):
                if now != mode and max(now, CUT) != mode:
                    return "whether a tensor requires gradients changed"
            self.stood = stand
        if self.guards.holds is not None and not self.guards.holds():
            reason = self.guards.broken()
            if reason is not None:
                return reason
        for holds, text in self.requirements:
            if not holds():
                return f"no longer true: {text}"
        reason = self.other_gradients(leaves) if self.gradients_read else None
        if reason is not None:
            return reason
        for leaf in leaves:
            if isinstance(leaf, Tensor) and leaf._cell in self.outside:
                return "an argument is a tensor that the function also reads by itself"
        for place, cell in self.pinned:
            if leaves[place]._cell is not cell:
                return "an argument was a tensor that the function also reads by itself"
        return None

    def other_gradients(self, leaves: Sequence[Any]) -> str | None:
        """How the gradients that the function reads differ from those that it was traced with."""
        first: dict[Cell, int] = {}
        for number, (owner, place, form) in enumerate(self.gradients_read):
            extra = (owner if place is None else leaves[place])._extra
            gradient = None if extra is None else extra.grad
            if gradient is None:
                if form is not None:
                    return "a gradient was cleared"
                continue
            if form is None:
                return "a gradient was set"
            if place is not None and self.pattern is not None:
                continue  # of an argument of any length
            cell = gradient._cell
            kind = cell.node.types[0]
            if (
                (kind is not form.type and kind != form.type)
                or gradient._steps != form.steps
                or first.setdefault(cell, number) != form.first
            ):
                return "a gradient is another view, or shares its memory in another way"
        return None

    def _changed_object(self) -> str | None:
        """Which watched module, optimizer or tensor's memory changed, if any did."""
        for cell in self.outside:
            if cell.rare is not None and cell.rare.left > self.born:
                return "a tensor was given other memory"
        for obj, before in self.watched:
            after = snapshot(obj, self._look)
            if after != before:
                what = ", ".join(guards.differences(before, after))
                return f"{type(obj).__name__} changed: {what}"
        return None

    def is_due(self) -> bool:
        """True at the 2nd, 4th, 8th… call that this trace stands for, where an audit is made.

        What was made from a template was compiled in another way, and is not comparable.
        """
        self._calls += 1
        return self.recorded is None and self._calls & (self._calls - 1) == 0

    # ---- replaying ------------------------------------------------------------------------------

    def live_buffers(self, leaves: Sequence[Any]) -> list[HostBuffer]:
        """The program's inputs as they are now."""
        buffers = self.fixed.copy()
        for slot, place in self.arguments:
            cell = leaves[place]._cell
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
            (buffer,) = self.program.run(self.live_buffers(leaves))
            return holding(filled_leaf(self.output_types[0], buffer), PLAIN)
        changed = _unchanged if made_for_it else self._changed
        while self.turned is not None:
            turns = turns_of(self.turns, self.turned, leaves)
            step = partial(self._step_of, leaves, made_for_it, turns)
            result = in_turn(turns, step, partial(changed, leaves))
            if result is not _CLAIMED:
                return result
        turns = self.turns
        if len(turns) == 1:  # the common case, without another call
            turn = turns[0]
            with turn.lock:
                if turn.passed_to_me() and changed(leaves) is not None:
                    return AGAIN
                return self._step(leaves, made_for_it)
        return in_turn(turns, partial(self._step, leaves, made_for_it), partial(changed, leaves))

    def _step_of(self, leaves: Sequence[Any], made_for_it: bool, turns: tuple[Turn, ...]) -> Any:
        """A step that holds these turns, unless some of its state was claimed in the meantime."""
        assert self.turned is not None
        mine = turns == turns_of(self.turns, self.turned, leaves)
        return self._step(leaves, made_for_it) if mine else _CLAIMED

    def _step(self, leaves: Sequence[Any], made_for_it: bool) -> Any:
        """Run the program and make all changes, or none."""
        call = _Call(leaves, made_for_it)
        try:
            return self._run(call)
        finally:
            if made_for_it:
                for held in self.held:
                    held.forget_traced()

    def _run(self, call: _Call) -> Any:
        leaves = call.leaves
        buffers = self.live_buffers(leaves)
        live = self._instantiate(leaves) if self.tracked is not None else _NOTHING
        if not self.handover:
            changes, calls = list[Change](), list[Callable[[], object]]()
            results = self.program.run(buffers)
            nodes = self._output_nodes(results, [None] * len(results), live, changes)
            value = self._note(nodes, call, changes, calls, _NOBODYS)
            apply(steps(calls, changes))
            return value
        loan = self.handover.lend(leaves, buffers)
        if self.program.exclusive is None:
            return self._overwrite(loan, self.program.begin(buffers, loan.memory), live, call)
        with self.program.exclusive:
            return self._overwrite(loan, self.program.begin(buffers, loan.memory), live, call)

    def _overwrite(self, loan: Loan, run: Run, live: dict[int, Node], call: _Call) -> Any:
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
        run.ended()
        return value

    def _note(
        self,
        nodes: Sequence[Node],
        call: _Call,
        changes: list[Change],
        calls: list[Callable[[], object]],
        kept: Mapping[int, Cell],
    ) -> Any:
        """Note what a call sets besides the values of nodes; what it returns.

        `kept` are the cells of gradients that stay the tensors that they are, by output.
        """
        leaves = call.leaves
        for generator, count in self.effects.drawn:
            changes.append((generator, "_offset", generator._offset + count))
        self._note_writes(nodes, call, changes, calls)
        for track, mode in self.effects.modes:
            changes.append((track, "mode", mode))
        for change in self.effects.gradients:
            owner = change.owner if change.place is None else leaves[change.place]
            value = change.value
            if isinstance(value, Fresh) and value.output in kept:
                cell = kept[value.output]
                changes.append((cell, "version", cell.version + 1))
                continue
            gradient = fresh(value, nodes) if isinstance(value, Fresh) else value
            if gradient is not None or owner._extra is not None:
                changes.append((owner._details(), "grad", gradient))
        if self.donated:
            given = [leaves[place] for place in self.donated]
            give_away(given, self.name, user_line(), changes)
        if len(self.returns) == 1 and self.result_structure is None and not self.stores:
            return result_of(self.returns[0], nodes, leaves)
        shared: dict[int, Any] = {}

        def made(spec: Any) -> Any:
            if id(spec) not in shared:  # one tensor returned twice is one tensor again
                shared[id(spec)] = result_of(spec, nodes, leaves)
            return shared[id(spec)]

        for store in self.stores:
            if not (call.made_for_it and store.adds):  # which Python has done
                calls.append(store.call([made(spec) for spec in store.leaves]))
        return unflatten(self.result_structure, [made(spec) for spec in self.returns])

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
        """A result that is not an input handed through: none lies in foreign memory."""
        buffer = results[number]
        if not buffer.borrowed:
            return buffer
        copied: HostBuffer = space(self.output_types[number].device).copy(buffer)
        return copied

    def _instantiate(self, leaves: Sequence[Any]) -> dict[int, Node]:
        """The graphs of tracked outputs over the live inputs, so that backward can go on."""
        tracked = self.tracked
        assert tracked is not None
        replacements: dict[Node, Node] = {}
        for node, source in tracked.inputs.items():
            replacements[node] = live_node(source, leaves)
        for key, source, track in tracked.keys:
            cell = live_cell(source, leaves)
            own = leaves[source.place]._track if isinstance(source, ArgumentInput) else track
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
                node = execute.note_write(cell, node, changes, calls)
            if node is not cell.node:
                changes.append((cell, "node", node))
            changes.append((cell, "version", cell.version + 1))
            if cell.mode != mode and cell.mode < LEAF:
                changes.append((cell, "mode", mode))
