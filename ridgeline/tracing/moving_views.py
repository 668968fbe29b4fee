"""Views that move from call to call, such as `f(data[i : i + 50])`, passed by value.

A view's place in its memory is part of a signature, because a function may write to it or return
it. Where a function did neither, and is called with another view that shows as much, the argument
is from then on a tensor of its own for its traces: a block of memory is read where it lies, and any
other view is copied. So one trace serves all places.

A batch that is cut from data is such a block, and most move: where the first trace needs nothing
but its values, the trace itself is put over these (`MovingViews.by_value`), and is the only one.

A call is traced so only where a trace over a view says what it will do: nothing else has changed.
Else Python would run a second time where the function, over its copy, turned out to write to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ridgeline.graph.graph import substitute
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.record.cells import GRAPH, PLAIN, apply_steps, is_block
from ridgeline.record.values import read
from ridgeline.tensors.tensor import Tensor, holding
from ridgeline.tracing.capture import ArgumentInput, CellInput
from ridgeline.tracing.signatures import Signature, TensorSpec

if TYPE_CHECKING:
    from ridgeline.tracing.conditions import Conditions
    from ridgeline.tracing.recording import Recording
    from ridgeline.tracing.trace import Trace


class MovingViews:
    """Which arguments of a function are passed by value, by how its arguments are nested."""

    def __init__(self) -> None:
        self._places: dict[Hashable, set[int]] = {}
        self._exact: dict[Hashable, set[int]] = {}  # where the function needs the view itself

    def shown(self, structure: Hashable, leaves: list[Any]) -> list[Any]:
        """The arguments with views as tensors of their own, where they may be."""
        indices = self._places.get(structure)
        if not indices:
            return leaves
        return [
            holding(read(value), PLAIN) if index in indices and _is_plain_view(value) else value
            for index, value in enumerate(leaves)
        ]

    def by_value(
        self, recording: Recording, conditions: Conditions, leaves: Sequence[Any]
    ) -> Recording:
        """A recording over the values of blocks among its arguments, if only these matter."""
        if conditions.open or conditions.fleeting or recording.symbolic:
            return recording
        structure = recording.signature.structure
        exact = recording.touched | self._exact.get(structure, set())
        blocks = {i for i, v in enumerate(leaves) if i not in exact and _is_plain_block(v)}
        tensors = ((i, v) for i, v in enumerate(leaves) if isinstance(v, Tensor))
        shared = {tensor._cell for index, tensor in tensors if index not in blocks}
        blocks = {index for index in blocks if leaves[index]._cell not in shared}
        if not blocks or not _changes_nothing(recording, blocks, leaves):
            return recording
        made = _over_values(recording, blocks, leaves)
        if made is None:
            return recording
        self._places.setdefault(structure, set()).update(blocks)
        return made

    def learn(self, traces: Iterable[Trace], signature: Signature, leaves: Sequence[Any]) -> bool:
        """Note views in which a call differs from a traced one, if nothing else differs."""
        known = self._places.setdefault(signature.structure, set())
        exact = self._exact.get(signature.structure, set())
        for trace in traces:
            moved = _moved(trace.signature, signature)
            if not moved or moved & exact or trace.conditions.changed(leaves) is not None:
                continue
            if _changes_nothing(trace.recording, known | moved, leaves):
                known |= moved
                return True
        return False

    def refuse(self, structure: Hashable, trace: Trace) -> None:
        """Pass the views themselves to a trace that needs them, from now on."""
        wrong = self._places[structure] & trace.recording.touched
        self._places[structure] -= wrong
        self._exact.setdefault(structure, set()).update(wrong)


def is_fit(trace: Trace, given: Sequence[Any], shown: Sequence[Any]) -> bool:
    """True if a trace can take arguments by value: it writes nothing under them."""
    by_value = {index for index, (a, b) in enumerate(zip(given, shown)) if a is not b}
    return _changes_nothing(trace.recording, by_value, given)


def _changes_nothing(recording: Recording, by_value: Set[int], given: Sequence[Any]) -> bool:
    sources = [write.source for write in recording.effects.writes]
    written = {source.cell for source in sources if isinstance(source, CellInput)}
    # what is written through another argument, of which this one may show a part
    written |= {given[s.index]._cell for s in sources if isinstance(s, ArgumentInput)}
    return not by_value & recording.touched and not any(given[p]._cell in written for p in by_value)


def _is_plain_view(value: Any) -> bool:
    """True for a view that is just values: no gradient flows, and no hook waits."""
    return (
        type(value) is Tensor
        and bool(value._steps)
        and value._track.mode < GRAPH
        and value._extra is None
    )


def _is_plain_block(value: Any) -> bool:
    """True for a contiguous plain view."""
    return _is_plain_view(value) and is_block(value._cell.node.shape, value._steps)


def _over_values(recording: Recording, blocks: Set[int], given: Sequence[Any]) -> Recording | None:
    """A recording over leaves for the values of views; None if it reads more of their memory."""
    memory = {
        source.index: node
        for node, source in recording.inputs.items()
        if isinstance(source, ArgumentInput)
    }
    specs = list(recording.signature.leaves)
    values: dict[Node, Node] = {}
    inputs = dict(recording.inputs)
    for index in sorted(blocks):
        spec: TensorSpec = specs[index]
        specs[index] = TensorSpec(_type(spec), PLAIN, (), index)
        start = memory.get(spec.same_as)
        if start is None:  # which the function does not read
            continue
        inputs.pop(start, None)
        shown = apply_steps(start, spec.steps)
        if shown in values:  # one view twice: it reads as one node, and would be two tensors
            return None
        values[shown] = leaf(shown.types[0])
        values[shown].origins = shown.origins or start.origins
        inputs[values[shown]] = ArgumentInput(index)
    outputs = substitute(recording.outputs, values)
    gone = recording.inputs.keys() - inputs.keys()
    if not gone.isdisjoint(topological(outputs, gone.__contains__)):
        return None
    tracked = recording.tracked
    if tracked is not None:
        graphs, saved = ({n: outputs[n] for n in part} for part in (tracked.outputs, tracked.saved))
        tracked = replace(tracked, outputs=graphs, saved=saved, inputs=dict(inputs))
    return replace(
        recording, signature=replace(recording.signature, leaves=tuple(specs)), inputs=inputs,
        outputs=outputs, tracked=tracked, by_value=frozenset(blocks),
    )  # fmt: skip


def _moved(before: Signature, after: Signature) -> set[int]:
    """The views that show as much of something else, if there is no other difference."""
    same = (before.structure, before.gradients, before.autocast)
    if same != (after.structure, after.gradients, after.autocast):
        return set()
    moved = set()
    for index, (old, new) in enumerate(zip(before.leaves, after.leaves, strict=True)):
        if old == new:
            continue
        if not isinstance(old, TensorSpec) or not isinstance(new, TensorSpec):
            return set()
        if not new.steps or not _alike(old, new, index):
            return set()
        moved.add(index)
    return moved


def _alike(old: TensorSpec, new: TensorSpec, index: int) -> bool:
    """True for two values of one type; in the trace it was a value of its own, or shared alike."""
    plain = max(old.mode, new.mode) < GRAPH
    return plain and old.same_as in (new.same_as, index) and _type(old) == _type(new)


def _type(spec: TensorSpec) -> TensorType:
    return apply_steps(leaf(spec.type), spec.steps).types[0] if spec.steps else spec.type


def touched(recording: Recording, conditions: Conditions, leaves: Sequence[Any]) -> set[int]:
    """The arguments that a trace writes to, returns or differentiates, and so needs themselves."""
    found = {index for index, _ in conditions.pinned}
    found |= {index for _, index, _ in conditions.gradients_read if index is not None}
    found |= {
        change.argument for change in recording.effects.gradients if change.argument is not None
    }
    found |= set(recording.donated)
    sources: list[Any] = [write.source for write in recording.effects.writes]
    for spec in recording.returns:
        sources.append(getattr(spec, "source", None))
        argument = getattr(spec, "argument", None)
        if argument is not None:
            found.add(argument)
    found |= {source.index for source in sources if isinstance(source, ArgumentInput)}
    changed = {track for track, _ in recording.effects.modes}
    return found | {
        index
        for index, value in enumerate(leaves)
        if isinstance(value, Tensor) and changed & {value._track, value._cell}
    }
