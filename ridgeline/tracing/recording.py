"""Recording: one call of a function as data: its graph, results and effects.

Inputs and outputs of one graph, what a call returns and what it sets. Nothing here is compiled, and
nothing says when it stands for another call: see `executable.py` and `conditions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import starmap
from threading import RLock, local
from typing import Any

from ridgeline.atomic import apply
from ridgeline.collector import paused
from ridgeline.graph.node import Node
from ridgeline.graph.passes.autodiff.saved_values import saved_for_backward
from ridgeline.graph.sizes import SizeExpr, undecided
from ridgeline.ops.collectives import recorded
from ridgeline.record.cells import GRAPH, LEAF, Cell
from ridgeline.record.modes import modes
from ridgeline.record.numbers import Lifted
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import Capture, Source, StateInput
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.counted import CountedMasks, Stage, in_stages
from ridgeline.tracing.dynamic import Pattern
from ridgeline.tracing.kept_state import Stores, adopt
from ridgeline.tracing.moving_views import touched
from ridgeline.tracing.reads.calls import CallRecorder
from ridgeline.tracing.reads.holds import Guards
from ridgeline.tracing.reads.kinds import is_fixed
from ridgeline.tracing.reads.observing import observe
from ridgeline.tracing.side_effects import (
    Argument,
    CellWrite,
    Effects,
    Fresh,
    Tracked,
    argument_index,
    gradient_write,
    return_spec,
    track_source,
)
from ridgeline.tracing.signatures import CHANGING, Signature, described_parts, signature_of


@dataclass(slots=True, eq=False)
class Recording:
    """One call: a graph over inputs, and what its outputs are for."""

    name: str
    signature: Signature
    pattern: Pattern | None  # the signature with unknown sizes
    donated: Set[int]  # places of tensors that a call is given for good
    inputs: dict[Node, Source]
    outputs: list[Node]
    returns: list[Any]  # the leaves of the result: values, and how tensors are made again
    result_structure: Hashable
    stores: Sequence[Any]  # tensors that a call leaves in objects
    effects: Effects
    simple: bool  # the arguments are tensors and nothing else
    symbolic: bool  # recorded with unknown sizes
    leaks: bool = False  # somebody holds tensors that the function made
    tracked: Tracked | None = None  # results through which gradients flow on
    touched: Set[int] = frozenset()  # arguments that cannot be given by value
    by_value: Set[int] = frozenset()  # views among the arguments of which only values are read
    stages: Sequence[Stage] = ()  # programs that come first, where sizes follow from values
    at_hand: list[Tensor] = field(default_factory=list)  # what they give in the traced call

    @property
    def only_returns(self) -> bool:
        """True if a call only returns one new tensor without a graph."""
        only = self.returns[0] if len(self.returns) == 1 else None
        if not isinstance(only, Fresh) or only.mode == GRAPH or self.result_structure is not None:
            return False
        if self.donated or self.stores:
            return False
        changes = self.effects
        return not (changes.writes or changes.gradients or changes.modes or changes.drawn)

    @property
    def held(self) -> set[Any]:
        """Locations in objects from which the graph reads what earlier calls left there."""
        return {s.held for s in self.inputs.values() if isinstance(s, StateInput)}


_one_rank = RLock()
_EFFECTS = "_effects_of_the_trace"


def note_effects(error: Exception, effects: str) -> None:
    """Note, in an error that ended a trace, what the function had changed by then."""
    if effects:
        setattr(error, _EFFECTS, effects)


def effects_before(error: Exception) -> str:
    """What a function had changed before an error ended its trace."""
    found: str = getattr(error, _EFFECTS, "")
    return found


def record(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    changing: Set[int] = frozenset(),
    pattern: Pattern | None = None,
    donated: Set[int] = frozenset(),
    counts: bool = False,
) -> tuple[Recording, Conditions]:
    """Run a function as one that is traced; under which conditions another run would be the same.

    The arguments at the places `changing` are floats that every call reads anew. Without a
    pattern, `counts` says that the recording may get one: where the function picks by a mask.
    """
    deciding = undecided() if pattern is None else pattern.facts.deciding()
    # what is made is told from what was there by the collector's generations, which is one for all:
    # simulated ranks, which trace at the same moment, do it one after another
    with nullcontext() if modes.rank is None else _one_rank, paused, deciding:
        return _Recorded(function, args, kwargs, changing, pattern, donated, counts).run()


class _Recorded:
    """One function and its arguments, on the way to a recording."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        changing: Set[int],
        pattern: Pattern | None,
        donated: Set[int],
        counts: bool,
    ) -> None:
        self.function, self.donated, self.pattern = function, donated, pattern
        self.simple = not kwargs and all(isinstance(a, Tensor) for a in args)
        self.leaves: list[Any] = []
        self.structure = flatten((args, kwargs), self.leaves)
        self.signature = signature_of(self.structure, self.leaves, changing)
        self.call = local()  # the arguments of the call that a thread makes
        self.lifts = any(leaf is CHANGING for leaf in self.signature.leaves)
        self.unknown = {} if pattern is None else pattern.numbers
        if self.lifts or self.unknown:
            self.call.leaves = self.leaves
            args, kwargs = unflatten(self.structure, self._lifted())
        self.args, self.kwargs = args, kwargs
        self.conditions = Conditions(self.call if self.lifts else None)
        self.capture = Capture() if pattern is None else Capture(pattern.types)
        facts = None if pattern is None else pattern.facts
        self.capture.counted = CountedMasks(facts, self.capture.inputs, self.leaves, counts)
        self.outputs: list[Node] = []
        self.recorder: CallRecorder | None = None

    def run(self) -> tuple[Recording, Conditions]:
        """Run Python, and describe what it did while its tensors are there."""
        capture = self.capture
        gradients, narrow = modes.gradients, modes.autocast
        modes.capture = capture
        recorded.count = 0
        try:
            result, stores, guards, reason = self._run_python()
            self.recorder = None  # it holds all that the function made
            capture.memory.end(replayed=not reason)
            if self.pattern is None and capture.counted is not None and capture.counted.found:
                assert capture.counted.facts is not None
                self.pattern = Pattern(self.signature, (), capture.counted.facts)
            if capture.refusal is not None:  # whatever the function did about it
                raise capture.refusal
            reason = reason or capture.memory.changed
            if not self._is_unchanged():
                reason = reason or "the function changes an argument"
            recording = self._described(result, stores)
            del result
            recording.leaks = self._keep_leaked(recording.effects)
            recording.tracked = self._track(recording)
        except BaseException as error:
            apply(starmap(setattr, capture.detached))
            if isinstance(error, Exception):
                note_effects(error, self._left_behind())
            raise
        finally:
            modes.capture = None
            # an interrupt may end a block of the function before it has set these back
            modes.gradients, modes.autocast = gradients, narrow
            capture.close()
        self.conditions.learn(capture, guards, stores, self.leaves, reason)
        recording.touched = touched(recording, self.conditions, self.leaves)
        return self._staged(recording), self.conditions

    def _staged(self, recording: Recording) -> Recording:
        """A recording in stages, if sizes follow from values."""
        counted = self.capture.counted
        if counted is None or not counted.found:
            return recording
        assert self.pattern is not None
        sizes = (*self.pattern.sizes, *(mask.size for mask in counted.found))
        recording.pattern = replace(self.pattern, sizes=sizes)
        staged = in_stages(recording, counted.found, len(self.leaves))
        staged.at_hand = counted.arguments(staged)
        return staged

    def _run_python(self) -> tuple[Any, Stores, Guards, str]:
        """The result, what was stored in objects, what was read, and why that is not comparable."""
        capture = self.capture
        recorder = CallRecorder(capture.watch, described_parts((self.args, self.kwargs)), capture)
        self.recorder = recorder
        recorder.found(self.function)
        recorder.found(getattr(self.function, "__self__", None))
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                capture.argument(leaf._cell, index)
            else:
                recorder.found(leaf)
        modes.call_recorder = recorder
        try:
            result = recorder.called(self.function)(*self.args, **self.kwargs)
            observe(recorder, result, instances=False)  # it is built anew from this
        finally:
            modes.call_recorder = None
        self._give_back(recorder, result)
        reads = recorder.reads()
        self._open_lent(recorder, result)
        stores = Stores() if recorder.open else recorder.stores
        if stores.all:
            reads = adopt(stores, reads, capture)
        # guards keep alive what they compare; the recorder held all that the function made
        return result, stores, Guards(() if recorder.open else reads), recorder.open

    def _give_back(self, recorder: CallRecorder, result: Any) -> None:
        """Take note of the objects among the results: an argument is found again in each call."""
        returned: list[Any] = []
        flatten(result, returned)
        for leaf in returned:
            if not isinstance(leaf, Tensor) and argument_index(leaf, self.leaves) is None:
                recorder.returns(leaf)

    def _left_behind(self) -> str:
        """What an interrupted function has changed outside, if anything is seen."""
        if self.recorder is None:
            return ""
        reads = self.recorder.reads()
        if self.recorder.stores.all:
            return "a tensor was left in an object outside"
        return Guards(reads).broken() or ""

    def _open_lent(self, recorder: CallRecorder, result: Any) -> None:
        """Arrays from outside that are changed or shown by tensors made inside are no replay's."""
        capture = self.capture
        if not capture.lent:
            return
        returned: list[Any] = []
        flatten(result, returned)
        shown = {leaf._cell for leaf in returned if isinstance(leaf, Tensor)}
        for cell, array in [*capture.lent.items()]:
            shadow = capture.shadows.get(cell)
            written = isinstance(shadow, Cell) and shadow.version
            if (written or cell in shown) and recorder.is_outer_array(array):
                recorder.opens("a tensor over an array is made, and written to or returned")
                del capture.lent[cell]  # the tensor itself is returned

    def _lifted(self) -> list[Any]:
        """The arguments with changing numbers as ones that every call reads anew."""
        call = self.call
        return [
            Lifted(lambda index=index: call.leaves[index], leaf)  # type: ignore[misc]
            if described is CHANGING
            else self.unknown.get(index, leaf)
            for index, (leaf, described) in enumerate(zip(self.leaves, self.signature.leaves))
        ]

    def _is_unchanged(self) -> bool:
        """True where the call left the containers among its arguments as they were."""
        after: list[Any] = []
        nested = flatten((self.args, self.kwargs), after)
        kept = all(
            a is b or isinstance(b, Lifted | SizeExpr)
            for a, b in zip(self.leaves, after, strict=False)
        )
        return nested == self.structure and kept

    def _described(self, result: Any, stores: Stores) -> Recording:
        """What a replay has to return and to set."""
        capture, leaves, outputs = self.capture, self.leaves, self.outputs
        returned: list[Any] = []
        result_structure = flatten(result, returned)
        made: dict[int, Any] = {}

        def described(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                index = None if is_fixed(leaf) else argument_index(leaf, leaves)
                return leaf if index is None else Argument(index)
            if id(leaf) not in made:  # one tensor returned twice is one tensor
                made[id(leaf)] = return_spec(capture, leaf, leaves, outputs, self.donated)
            return made[id(leaf)]

        returns = [described(leaf) for leaf in returned]
        specs = stores.specs(described)
        effects = self._effects()
        name = getattr(self.function, "__qualname__", repr(self.function))
        return Recording(
            name, self.signature, self.pattern, self.donated, capture.inputs, outputs, returns,
            result_structure, specs, effects, self.simple, self.pattern is not None,
        )  # fmt: skip

    def _effects(self) -> Effects:
        capture, outputs = self.capture, self.outputs
        writes, changed = [], []
        for outer, shadow in capture.shadows.items():
            if isinstance(outer, Cell) and isinstance(shadow, Cell) and shadow.version:
                outputs.append(shadow.node)
                source = capture.source(outer)
                kind = shadow.node.types[0]
                writes.append(CellWrite(source, len(outputs) - 1, kind, shadow.mode))
            variable = LEAF in (shadow.mode, outer.mode) or not isinstance(outer, Cell)
            if shadow.mode != outer.mode and variable:
                changed.append((outer, shadow.mode))
        gradients = []
        outside = {id(tensor) for tensor, _, _ in capture.detached}  # with tracks made inside
        for owner, value in capture.gradients.values():
            if owner._track.capture is None or id(owner) in outside:
                gradients.append(gradient_write(capture, owner, value, self.leaves, outputs))
        drawn = [(generator, stream.used) for generator, stream in capture.streams.items()]
        return Effects(writes, [g for g in gradients if g is not None], changed, drawn)

    def _keep_leaked(self, effects: Effects) -> bool:
        """Whether tensors made inside are still held, such as new optimizer state."""
        self.capture.gradients.clear()
        before = len(effects.writes)
        for cell_ref in self.capture.made:
            cell = cell_ref()
            if cell is not None:
                self.outputs.append(cell.node)
                kind = cell.node.types[0]
                spent = cell.rare is not None and cell.rare.spent
                number = len(self.outputs) - 1
                effects.writes.append(CellWrite(cell_ref, number, kind, cell.mode, spent))
        return len(effects.writes) > before

    def _track(self, recording: Recording) -> Tracked | None:
        """The graphs of outputs through which gradients flow on, and what backward will read."""
        capture, outputs, effects = self.capture, self.outputs, recording.effects
        stored = (leaf for store in recording.stores for leaf in store.leaves)
        results = [*recording.returns, *stored]
        numbers = [r.output for r in results if isinstance(r, Fresh) and r.tracked]
        numbers += [w.output for w in effects.writes if w.mode == GRAPH and not w.spent]
        numbers += [
            g.value.output
            for g in effects.gradients
            if isinstance(g.value, Fresh) and g.value.tracked
        ]
        if not numbers:
            return None
        graphs = {number: outputs[number] for number in numbers}
        known = set(capture.inputs) | set(graphs.values())
        saved = saved_for_backward(
            list(graphs.values()), lambda n: n in known or n.buffer is not None
        )
        node_at = {}
        for node in saved:
            outputs.append(node)
            node_at[len(outputs) - 1] = node
        keys = []
        for outer, shadow in capture.shadows.items():
            if shadow.rare is not None and shadow.rare.key is not None and shadow.mode == LEAF:
                keys.append((shadow.rare.key, track_source(capture, outer, self.leaves), outer))
        return Tracked(graphs, node_at, keys, dict(capture.inputs))
