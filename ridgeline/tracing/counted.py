"""Data-dependent sizes: `nonzero`, boolean indexing, `where` with a condition alone.

How many elements a mask picks is an unknown while a function is traced, as a dynamic length is. A
call of such a function runs in stages. The first program computes the masks that depend on nothing
unknown; where they hold and how often is read from it. Masks that depend on these come next, and
the last program does the rest, at the counts that were found. What a stage computes and a later
one needs is handed on: index vectors and values are further arguments of the stages behind.

The counts of the call that is traced are known from interpreting its masks: they answer what
Python and the compiler ask of sizes (`graph/facts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeline import dtypes
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import substitute
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import LEAF, PROJ, Node, TensorType, leaf, topological
from ridgeline.graph.passes.legalize.specialize_sizes import Settled
from ridgeline.graph.sizes import Sym, bounds, product, symbol, symbols
from ridgeline.record.cells import PLAIN, filled_leaf, known
from ridgeline.record.memory import adopt
from ridgeline.scalars import Array
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor, holding
from ridgeline.tracing.capture import ArgumentInput, Source
from ridgeline.tracing.side_effects import Effects, Fresh, live_buffer

if TYPE_CHECKING:
    from ridgeline.tracing.recording import Recording


@dataclass(frozen=True, slots=True, eq=False)
class CountedMask:
    """A mask, the unknown for its number of true elements, and its index vectors."""

    mask: Node
    size: Sym
    places: tuple[Node, ...]
    first: int  # the number of the first of these among the arguments


@dataclass(frozen=True, slots=True)
class Stage:
    """A program that runs before the last one; its masks come first among its results."""

    recording: Recording
    masks: tuple[CountedMask, ...]
    handed: tuple[int, ...]  # the numbers, among the arguments, of the values behind them


class CountedMasks:
    """The masks of a function that is being traced, with their values in the call at hand."""

    def __init__(
        self,
        facts: SizeFacts | None,
        inputs: Mapping[Node, Source],
        leaves: Sequence[Any],
        may_begin: bool = False,
    ) -> None:
        """`facts` are those of a trace with unknown sizes; another one may get its first here."""
        self.facts, self._inputs, self._leaves = facts, inputs, leaves
        self._may_begin = may_begin
        self._settled = Settled({} if facts is None else facts.values)
        self._values: dict[Node, Array] = {}  # of the nodes at known sizes
        self._arguments: dict[int, Array] = {}  # further arguments of the call at hand
        self.found: list[CountedMask] = []

    def begin(self) -> bool:
        """Sizes may be unknown from now on; False if they may not."""
        if self.facts is None and self._may_begin:
            self.facts = SizeFacts({})
            self._settled = Settled(self.facts.values)
            self.facts.decide_from_now_on()
        return self.facts is not None

    def add(self, mask: Node) -> CountedMask:
        """The true elements of a mask, as index vectors of unknown length."""
        before = next((counted for counted in self.found if counted.mask is mask), None)
        if before is not None:
            return before
        assert self.facts is not None, "somebody asked whether sizes may be unknown"
        where = np.nonzero(self.value(mask))
        highest = max(bounds(product(mask.shape))[1], 1)
        size = symbol(f"C{len(self.found)}", 0, highest)
        (unknown,) = symbols([size])
        self.facts.values[unknown.name] = len(where[0])
        first = len(self._leaves) + sum(len(counted.places) for counted in self.found)
        made = []
        for number, array in enumerate(where, first):
            made.append(leaf(TensorType((size,), dtypes.int64)))
            self._arguments[number] = array
            self._values[self._settled.node(made[-1])] = array
        self.found.append(CountedMask(mask, unknown, tuple(made), first))
        return self.found[-1]

    def value(self, root: Node) -> Array:
        """The value of a node in the call at hand."""
        values, settled = self._values, self._settled
        for node in topological([root], self._inputs.__contains__):
            source = self._inputs.get(node)
            at_hand = settled.nodes([node], self._inputs.__contains__)[0]
            if source is not None and at_hand not in values:
                buffer = live_buffer(source, self._leaves)
                values[at_hand] = buffer.array(
                    at_hand.dtype, [known(size) for size in at_hand.shape]
                )
        (at_hand,) = settled.nodes([root], self._inputs.__contains__)

        def keep(node: Node, results: Sequence[Array]) -> None:
            if len(node.types) == 1:
                values[node] = results[0]

        return evaluate([at_hand], values, keep)[0]

    def arguments(self, recording: Recording) -> list[Tensor]:
        """The further arguments of the call at hand, for all stages."""
        sources = recording.inputs.items()
        further = {s.index: n for n, s in sources if isinstance(s, ArgumentInput)}
        for stage in recording.stages:
            handed = stage.recording.outputs[len(stage.masks) :]
            for number, node in zip(stage.handed, handed):
                array = self._arguments[number] = self.value(node)
                self._values[self._settled.node(further[number])] = array
        return [as_tensor(self._arguments[number]) for number in sorted(self._arguments)]


def as_tensor(array: Array) -> Tensor:
    """An array as an argument of a stage."""
    dtype = dtypes.from_numpy(array.dtype)
    assert dtype is not None
    kind = TensorType(array.shape, dtype)
    return holding(filled_leaf(kind, adopt(array)), PLAIN)


def in_stages(recording: Recording, found: Sequence[CountedMask], arguments: int) -> Recording:
    """A recording as its last stage, with those before it; `arguments` is how many a call has."""
    levels = _levels(found)
    inputs, outputs = dict(recording.inputs), list(recording.outputs)
    masks = [[counted.mask for counted in level] for level in levels]
    number = arguments + sum(len(counted.places) for counted in found)
    stages = []
    computed: set[Node] = set()
    everything = topological(
        [*outputs, *(m for level in masks for m in level)], inputs.__contains__
    )
    for index, level in enumerate(levels):
        own = _computed(masks[index], everything, inputs) - computed
        computed |= own
        handed = _needed_later(own, computed, everything, outputs)
        leaves = {node: leaf(node.types[0]) for node in handed}
        stages.append(
            Stage(
                _stage_recording(recording, [*masks[index], *handed], inputs),
                tuple(level),
                tuple(range(number, number + len(handed))),
            )
        )
        inputs |= {n: ArgumentInput(i) for i, n in enumerate(leaves.values(), number)}
        number += len(handed)
        later = [mask for level_masks in masks[index + 1 :] for mask in level_masks]
        new = substitute([*outputs, *later], leaves)
        outputs, rest = new[: len(outputs)], iter(new[len(outputs) :])
        masks[index + 1 :] = [
            [next(rest) for _ in level_masks] for level_masks in masks[index + 1 :]
        ]
        everything = topological([*outputs, *new[len(outputs) :]], inputs.__contains__)
        computed = set()
    return replace(recording, inputs=inputs, outputs=outputs, stages=tuple(stages))


def _levels(found: Sequence[CountedMask]) -> list[list[CountedMask]]:
    """Masks, grouped by how many reads must come before theirs."""
    level_of: dict[str, int] = {}  # by the name of the count
    levels: list[list[CountedMask]] = []
    for counted in found:
        shapes = [kind.shape for node in topological([counted.mask]) for kind in node.types]
        below = {unknown.name for shape in set(shapes) for unknown in symbols(shape)}
        level = 1 + max((level_of[name] for name in below if name in level_of), default=-1)
        level_of[counted.size.name] = level
        if level == len(levels):
            levels.append([])
        levels[level].append(counted)
    return levels


def _computed(
    masks: Sequence[Node], everything: Sequence[Node], inputs: Mapping[Node, Source]
) -> set[Node]:
    """What a stage computes for its masks."""
    own = {node for node in topological(masks, inputs.__contains__) if node not in inputs}
    own |= {node for node in everything if node.op is PROJ and node.inputs[0] in own}
    return {node for node in own if node.buffer is None}


def _needed_later(
    own: set[Node], computed: set[Node], everything: Sequence[Node], outputs: Sequence[Node]
) -> list[Node]:
    """Values that a stage passes on; what only moves or repeats others is computed again."""
    read = [i for node in everything if node not in computed for i in node.inputs if i in own]
    read += [node for node in outputs if node in own]
    needed: dict[Node, None] = {}
    while read:
        node = read.pop()
        if node not in own or node in needed or node.op is LEAF or not node.inputs:
            continue
        if node.op.family == "movement" and node.op is not PROJ:
            read += node.inputs
        else:
            needed[node] = None
    return list(needed)


def _stage_recording(
    recording: Recording, outputs: Sequence[Node], inputs: Mapping[Node, Source]
) -> Recording:
    """A call that returns some values and changes nothing."""
    below = topological(outputs, inputs.__contains__)
    read = {node: inputs[node] for node in below if node in inputs}
    returns = [Fresh(number, node.types[0], PLAIN) for number, node in enumerate(outputs)]
    structure = flatten((None,) * len(outputs), [])
    return replace(
        recording, donated=frozenset(), inputs=read, outputs=list(outputs),
        returns=list(returns), result_structure=structure, stores=(),
        effects=Effects([], [], [], []), simple=False, leaks=False, tracked=None, stages=(),
    )  # fmt: skip
