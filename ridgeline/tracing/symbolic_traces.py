"""Traces with symbolic shapes: a template, from which the trace of each size is made.

Tracing and compiling happen once, and what was decided about sizes meanwhile is checked for new
ones: for them the compiled code gets a layout of its own. What cannot be compiled with symbolic
sizes is settled and compiled for each set of sizes instead, and `refused` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import is_
from typing import Any

from ridgeline.config import config
from ridgeline.errors import MemoryBudgetError, RidgelineError
from ridgeline.execution.tiers import program_for
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.tensors.tensor import alias
from ridgeline.tracing.conditions import Conditions
from ridgeline.tracing.executable import Executable
from ridgeline.tracing.recording import Recording
from ridgeline.tracing.side_effects import Effects, Given, Tracked
from ridgeline.tracing.signatures import Signature
from ridgeline.tracing.staged import StagedExecutable
from ridgeline.tracing.trace import Trace

MOST_SIZES = 256  # sets of sizes whose traces are kept
MOST_PROGRAMS = 8  # for sizes of different kinds: what compiling one has decided does not hold


class Template:
    """A recording with unknown sizes, and its programs, if there are some for all of them."""

    def __init__(self, recording: Recording, conditions: Conditions, budget: int = 0) -> None:
        self._budget = budget
        if budget and recording.stages:
            raise MemoryBudgetError(
                "a memory budget needs sizes that are known before a call, and this function picks "
                "elements by a mask",
                help="compute the mask outside, or use where() in place of picking",
            )
        assert recording.pattern is not None, "only what has unknown sizes has a template"
        self.recording, self.conditions, self.pattern = recording, conditions, recording.pattern
        self._programs: list[tuple[SizeFacts, Executable]] = []  # what compiling each has decided
        self._made: dict[tuple[tuple[str, int], ...], Executable] = {}
        self._example: Executable | None = None  # at some sizes, if all its results are the same
        self.compilations = 0
        self.refused = self._compile(self._apart())
        self._stages = [
            (stage, Template(stage.recording, conditions)) for stage in recording.stages
        ]

    def _apart(self) -> Mapping[str, int]:
        """The sizes of the traced call, with distinct values for counts that agree by chance."""
        values = self.pattern.facts.values
        apart, taken = dict(values), set[int]()
        for size in self.pattern.sizes:
            while apart[size.name] in taken and apart[size.name] < size.hi:
                apart[size.name] += 1
            taken.add(apart[size.name])
        return values if self.pattern.broken(apart) else apart

    def _compile(self, values: Mapping[str, int]) -> str:
        """Make a program for all sizes like these; returns why there is none."""
        if self.pattern.facts.pinned:
            return f"{', '.join(self.pattern.facts.pinned)} is used as a number"
        if config.tier == "interpreter":
            return "config.tier pins the interpreter"
        from ridgeline.runtime.cpu.symbolic import SymbolicProgram  # loads LLVM

        def make(graph: Graph, pairs: Sequence[tuple[int, int]]) -> SymbolicProgram:
            return SymbolicProgram(graph, self.pattern.sizes, pairs, self._budget)

        facts = SizeFacts(values)
        try:
            with facts.deciding():
                executable = Executable(self.recording, self.conditions.changed, make, self._budget)
        except RidgelineError as error:  # an op without symbolic sizes: every size by itself
            return str(error)
        if facts.pinned:
            return f"compiling it needs {', '.join(facts.pinned)} as a number"
        self._programs.append((facts, executable))
        self.compilations += 1
        return ""

    def values(self, signature: Signature, leaves: Sequence[Any]) -> dict[str, int] | None:
        """The unknowns of a matching call, as far as its arguments determine them."""
        values = self.pattern.values(signature)
        if values is None:
            return None
        if not self.recording.stages and self.pattern.broken(values) is not None:
            return None
        return values if self.conditions.changed(leaves) is None else None

    def broken(self, signature: Signature, leaves: Sequence[Any]) -> str | None:
        """Why this does not match a call that differs only in sizes or guards."""
        values = self.pattern.values(signature)
        if values is None:
            return None
        if self.recording.stages:
            return self.conditions.changed(leaves) or "masks pick other numbers of elements"
        return self.pattern.broken(values) or self.conditions.changed(leaves)

    def trace(self, values: Mapping[str, int] | None, signature: Signature) -> Trace:
        """The trace of a call; None stands for the sizes of the call that was traced."""
        if not self._stages:
            values = self.pattern.facts.values if values is None else values
            made = self.at(values, signature)
            return Trace(made.recording, self.conditions, made)
        if values is None:
            values = self.pattern.values(signature)
        assert values is not None, "a template stands for the call that was traced"
        staged = StagedExecutable(self, self._stages, values, signature)
        return Trace(replace(self.recording, signature=signature), self.conditions, staged)

    def at(self, values: Mapping[str, int], signature: Signature) -> Executable:
        """What runs the last stage at these sizes."""
        key = tuple(values.items())
        found = self._made.pop(key, None)
        if found is None:
            found = self._settle(values, signature)
            while len(self._made) >= MOST_SIZES:
                del self._made[next(iter(self._made))]
        self._made[key] = found  # the last used comes last
        return found

    def _program_for(self, values: Mapping[str, int]) -> Executable | None:
        """The program that stands for these sizes; another one is made for those of a new kind."""
        for facts, executable in self._programs:
            if facts.broken(values) is None:
                return executable
        if self.refused or len(self._programs) >= MOST_PROGRAMS or self._compile(values):
            return None
        return self._programs[-1][1]

    def _settle(self, values: Mapping[str, int], signature: Signature) -> Executable:
        executable = self._program_for(values)
        if executable is not None and self._example is not None:
            recording = replace(self.recording, signature=signature)
            return self._example.by(recording, executable.program.at(values))
        settled = Settled(values)
        recording = _settled_recording(self.recording, signature, settled)
        if executable is not None:
            made = executable.at(recording, settled, executable.program.at(values))
            if len(self._programs) == 1 and _is_the_same(self.recording, recording):
                self._example = made
            return made
        recording.pattern = None  # all of its sizes are known
        inputs = settled.nodes(list(recording.inputs), _has_value)
        recording.inputs = dict(zip(inputs, recording.inputs.values()))
        recording.outputs = settled.nodes(recording.outputs, _has_value)
        self.compilations += 1
        make = partial(program_for, budget=self._budget)
        return Executable(recording, self.conditions.changed, make, self._budget)


def _is_the_same(symbolic: Recording, settled: Recording) -> bool:
    """True where nothing that a call returns or sets has an unknown size."""
    kept, now = symbolic.effects, settled.effects
    pairs = [
        (symbolic.returns, settled.returns), (kept.writes, now.writes),
        (kept.gradients, now.gradients), (kept.drawn, now.drawn),
    ]  # fmt: skip
    same = all(all(map(is_, before, after)) for before, after in pairs)
    stored = [store.leaves for store in symbolic.stores] == [s.leaves for s in settled.stores]
    return same and stored and symbolic.tracked is None


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
