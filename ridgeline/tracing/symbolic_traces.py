"""Templates: a trace with symbolic sizes, from which the trace for each set of sizes is made.

Tracing and compiling happen once, and what was decided about sizes meanwhile is checked for new
ones: for them the compiled code gets a layout of its own. What cannot be compiled with symbolic
sizes is settled and compiled for each set of sizes instead, and `refused` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ridgeline.config import config
from ridgeline.errors import RidgelineError
from ridgeline.execution.tiers import program_for
from ridgeline.graph.facts import Facts
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.tensors.tensor import alias
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.dynamic import Pattern
from ridgeline.tracing.executable import Executable
from ridgeline.tracing.recording import Recording
from ridgeline.tracing.side_effects import Effects, Given, Tracked
from ridgeline.tracing.signatures import Signature
from ridgeline.tracing.trace import Trace

MOST_SIZES = 256  # sets of sizes whose traces are kept


class Template:
    """A recording with unknown sizes, and its program where there is one for all of them."""

    def __init__(self, recording: Recording, conditions: Conditions, pattern: Pattern) -> None:
        self.recording, self.conditions, self.pattern = recording, conditions, pattern
        self._facts = Facts(pattern.facts.values)  # what compiling has decided
        self._executable: Executable | None = None
        self._made: dict[tuple[tuple[str, int], ...], Trace] = {}
        self.refused = self._compile()
        self.compilations = int(not self.refused)

    def _compile(self) -> str:
        """Make the program for all sizes; says why there is none."""
        if self.pattern.facts.pinned:
            return f"{', '.join(self.pattern.facts.pinned)} is used as a number"
        if config.tier == "interpreter":
            return "config.tier pins the interpreter"
        from ridgeline.runtime.cpu.symbolic import SymbolicProgram  # loads LLVM

        def make(graph: Graph, pairs: Sequence[tuple[int, int]]) -> SymbolicProgram:
            return SymbolicProgram(graph, self.pattern.sizes, pairs)

        try:
            with self._facts.deciding():
                executable = Executable(self.recording, self.conditions.changed, make)
        except RidgelineError as error:  # an op without symbolic sizes: every size by itself
            return str(error)
        if self._facts.pinned:
            return f"compiling it needs {', '.join(self._facts.pinned)} as a number"
        self._executable = executable
        return ""

    def values(self, signature: Signature, leaves: Sequence[Any]) -> dict[str, int] | None:
        """The unknowns of a call for which this stands."""
        values = self.pattern.values(signature)
        if values is None or self.pattern.broken(values) is not None:
            return None
        return values if self.conditions.changed(leaves) is None else None

    def broken(self, signature: Signature, leaves: Sequence[Any]) -> str | None:
        """Why this does not stand for a call, where only sizes or guards differ."""
        values = self.pattern.values(signature)
        if values is None:
            return None
        return self.pattern.broken(values) or self.conditions.changed(leaves)

    def at(self, values: Mapping[str, int] | None, signature: Signature) -> Trace:
        """The trace for these sizes; None stands for those of the call that was traced."""
        values = self.pattern.facts.values if values is None else values
        key = tuple(values.items())
        found = self._made.pop(key, None)
        if found is None:
            found = self._settle(values, signature)
            while len(self._made) >= MOST_SIZES:
                del self._made[next(iter(self._made))]
        self._made[key] = found  # the last used comes last
        return found

    def _settle(self, values: Mapping[str, int], signature: Signature) -> Trace:
        settled = Settled(values)
        recording = _settled_recording(self.recording, signature, settled)
        executable = self._executable
        if executable is not None and self._facts.broken(values) is None:
            made = executable.at(recording, settled, executable.program.at(values))
            return Trace(recording, self.conditions, made)
        recording.pattern = None  # all of its sizes are known
        inputs = settled.nodes(list(recording.inputs), _has_value)
        recording.inputs = dict(zip(inputs, recording.inputs.values()))
        recording.outputs = settled.nodes(recording.outputs, _has_value)
        self.compilations += 1
        made = Executable(recording, self.conditions.changed, program_for)
        return Trace(recording, self.conditions, made)


def _settled_recording(old: Recording, signature: Signature, settled: Settled) -> Recording:
    """What a call returns and sets, with sizes that are known."""
    results = [*old.returns, *(leaf for store in old.stores for leaf in store.leaves)]
    specs = {id(spec): _settled_return(spec, settled) for spec in results}
    stores = [
        replace(store, leaves=tuple([specs[id(spec)] for spec in store.leaves]))
        for store in old.stores
    ]
    effects = Effects(
        [settled.value(write) for write in old.effects.writes],
        [settled.value(change) for change in old.effects.gradients],
        old.effects.modes,
        [(generator, settled.value(count)) for generator, count in old.effects.drawn],
    )
    return replace(
        old,
        signature=signature,
        returns=[specs[id(spec)] for spec in old.returns],
        stores=stores,
        effects=effects,
        tracked=None if old.tracked is None else _settled_tracked(old.tracked, settled),
    )


def _has_value(node: Node) -> bool:
    return node.buffer is not None


def _settled_return(spec: Any, settled: Settled) -> Any:
    if not isinstance(spec, Given):
        return settled.value(spec)
    spec = replace(spec, gradient=settled.value(spec.gradient))
    steps = settled.value(spec.tensor._steps)
    if steps is spec.tensor._steps:
        return spec
    tensor = alias(spec.tensor)
    tensor._steps = steps
    return replace(spec, tensor=tensor)


def _settled_tracked(tracked: Tracked, settled: Settled) -> Tracked:
    def node(old: Node) -> Node:
        return settled.nodes([old], _has_value)[0]

    return Tracked(
        {number: node(old) for number, old in tracked.outputs.items()},
        {number: node(old) for number, old in tracked.saved.items()},
        [(node(key), source, track) for key, source, track in tracked.keys],
        {node(old): source for old, source in tracked.inputs.items()},
    )
