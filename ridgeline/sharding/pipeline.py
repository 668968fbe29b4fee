"""A rank's share of a step in microbatches, cut into the passes of its stage's schedule.

Every value is computed in the pass that its level names (`pipeline_levels.py`): before all of them,
in one of them, or after. A pass is a program by itself, the same for every microbatch, so it is
compiled once; between passes values go to other stages and come from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ridgeline.errors import PlacementError
from ridgeline.graph.graph import Graph, elements
from ridgeline.graph.node import Node
from ridgeline.graph.origins import describe
from ridgeline.ops.attention import ATTENTION_GRADIENT
from ridgeline.ops.collectives import COLLECTIVES, MESSAGES, RECEIVE, SEND
from ridgeline.ops.contract import CONTRACT
from ridgeline.ops.gather import SCATTER
from ridgeline.sharding.ordering import in_order
from ridgeline.sharding.pipeline_levels import BEFORE, Level, after_all, backward_level, latest

_HEAVY = (CONTRACT, SCATTER, ATTENTION_GRADIENT)  # what a gradient of weights ends with
Pass = tuple[str, int, int]  # its kind, microbatch and chunk


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One pass: what it waits for, a graph, what it gives away, and values nobody reads later."""

    name: str
    graph: Graph
    results: tuple[Node, ...]  # the values that the graph's outputs are
    receives: tuple[Node, ...]
    sends: tuple[Node, ...]
    last_uses: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class StagePasses:
    """The passes of a stage in order, with what comes before and after them."""

    stage: int
    stages: int
    parts: int
    row: tuple[Pass, ...]

    @property
    def last(self) -> int:
        """The place after all passes; 0 is the one before."""
        return len(self.row) + 1

    def places(self) -> tuple[dict[Level, int], dict[Level, int]]:
        """Where levels are passed, and of split backward passes the gradients of weights."""
        found: dict[Level, int] = {}
        of_weights: dict[Level, int] = {}
        for place, (kind, microbatch, chunk) in enumerate(self.row, 1):
            part = chunk * self.stages + self.stage
            number = part if kind == "F" else backward_level(part, self.parts)
            (of_weights if kind == "W" else found)[number, microbatch] = place
        return found, of_weights

    def names(self) -> list[str]:
        """Words for every place."""
        passes = [f"{k}{m}" + (f".{c}" if c else "") for k, m, c in self.row]
        return ["before", *passes, "after"]


def pipeline_steps(
    graph: Graph,
    collectives: Mapping[Node, tuple[int, int]],
    levels: Mapping[Node, Level],
    passes: StagePasses,
    results: Set[Node],
) -> list[PipelineStep]:
    """The graph of a rank's share as the passes of its stage; `results` are kept to the end."""
    alone = _alone(graph)
    places = places_of(graph, levels, passes, alone)
    _check(graph, places, passes)
    between = _between(graph, places, passes)
    wanted = _wanted(graph, places, passes, alone, between)
    made = [
        _cut(graph, list(values), places, place, alone, between, collectives)
        for place, values in enumerate(wanted)
    ]
    messages = [n for n in graph.computed if n in between]
    last = _last_reads(graph, made, messages, places)
    last.update({n: places[n] for n in graph.outputs if n not in last and n in places})
    return [
        PipelineStep(
            name, each, tuple(wanted[place]),
            tuple(n for n in messages if n.op is RECEIVE and places[n] == place),
            tuple(n for n in messages if n.op is SEND and places[n] == place),
            tuple(n for n, at in last.items() if at == place and n not in results),
        )
        for place, (name, each) in enumerate(zip(passes.names(), made))
    ]  # fmt: skip


def _wanted(
    graph: Graph, places: Mapping[Node, int], passes: StagePasses,
    alone: frozenset[Node], between: frozenset[Node],
) -> list[dict[Node, None]]:  # fmt: skip
    """What each pass gives: to those after it, to other stages, as results."""
    found: list[dict[Node, None]] = [{} for _ in range(passes.last + 1)]
    for node in graph.computed:
        if node.op is RECEIVE:
            continue
        is_sent = node in between
        for source in node.inputs:
            if source in alone:
                if is_sent:
                    found[places[node]][source] = None
                continue
            later = places.get(source, 0) < places[node] or is_sent
            if later and source not in between and not graph.is_input(source):
                found[places[source]][source] = None
    for output in graph.outputs:
        if output not in between and not graph.is_input(output):
            found[passes.last if output in alone else places[output]][output] = None
    return found


def places_of(
    graph: Graph, levels: Mapping[Node, Level], passes: StagePasses, alone: frozenset[Node]
) -> dict[Node, int]:
    """The place of the pass in which each value is computed."""
    slots, of_weights = passes.places()
    found: dict[Node, int] = {}
    own: dict[Node, Level] = {}
    for node in graph.order:
        below = [] if graph.is_input(node) else [own[source] for source in node.inputs]
        level = BEFORE if node in alone else levels.get(node, BEFORE)
        own[node] = latest([level, *below], passes.parts)
    readers = graph.readers()
    for node in reversed(graph.computed):
        level = own[node]
        read = [found[r] for r in readers.get(node, ()) if r is not node]
        first = min(read, default=passes.last)
        if node.op is RECEIVE or node in alone:
            found[node] = first
        elif level == after_all(passes.parts):
            found[node] = passes.last
        elif level[1] < 0:
            found[node] = 0 if first < passes.last else first
        else:
            found[node] = slots.get(level, first)
        late = of_weights.get(level)
        if late is not None and _is_for_weights(node, readers.get(node, ()), found, late):
            found[node] = late
    return found


def _is_for_weights(
    node: Node, readers: Sequence[Node], found: Mapping[Node, int], late: int
) -> bool:
    """True for the last product of a gradient of weights, and what only adds it up."""
    if node.op in COLLECTIVES:
        return False
    own = [r for r in readers if r is not node]
    return all(found[r] >= late and (found[r] > late or r.op not in _HEAVY) for r in own)


def _alone(graph: Graph) -> frozenset[Node]:
    """Values that need nothing: each pass makes its own."""
    found: set[Node] = set()
    for node in graph.computed:
        if node.op not in COLLECTIVES and all(source in found for source in node.inputs):
            found.add(node)
    return frozenset(found)


def _between(graph: Graph, places: Mapping[Node, int], passes: StagePasses) -> frozenset[Node]:
    """Messages between passes; those after all passes are among the other collectives there."""
    messages = (n for n in graph.computed if n.op in MESSAGES)
    return frozenset(n for n in messages if places[n] < passes.last)


def _check(graph: Graph, places: Mapping[Node, int], passes: StagePasses) -> None:
    for node in graph.computed:
        late = [s for s in node.inputs if places.get(s, 0) > places[node]]
        if late and node.op is not RECEIVE:
            names = passes.names()
            raise PlacementError(
                f"{node.op.name} in the pass {names[places[node]]} of stage {passes.stage} needs "
                f"what comes in {names[places[late[0]]]}: microbatches cannot be taken one by one",
                note=f"at {describe(node)}",
                help="give Plan(microbatches=1), or compute of each sample by itself",
            )


def _cut(
    graph: Graph, outputs: Sequence[Node], places: Mapping[Node, int], place: int,
    alone: frozenset[Node], between: frozenset[Node], collectives: Mapping[Node, tuple[int, int]],
) -> Graph:  # fmt: skip
    """The graph of a pass: over what was given, came in, or was made before."""

    def is_given(node: Node) -> bool:
        if graph.is_input(node) or node in between:
            return True
        return node not in alone and places[node] < place

    return in_order(Graph.below(outputs, is_given), collectives)


def _last_reads(
    graph: Graph, made: Sequence[Graph], messages: Sequence[Node], places: Mapping[Node, int]
) -> dict[Node, int]:
    """After which pass nobody reads a value any more."""
    last: dict[Node, int] = {}
    for place, each in enumerate(made):
        for node in each.inputs:
            last[node] = place
    for node in messages:
        if node.op is SEND:
            source = node.inputs[0]
            last[source] = max(last.get(source, 0), places[node])
    return {n: at for n, at in last.items() if not graph.is_input(n)}


def peak_activations(steps: Sequence[PipelineStep], passes: StagePasses) -> int:
    """The most forward passes of which a stage keeps activations; a loss so far is none."""
    held: dict[Node, int] = {}
    most = 0
    for place, step in enumerate(steps):
        made = (n for n in (*step.results, *step.receives) if elements(n) > 1)
        held.update(dict.fromkeys(made, place))
        for node in step.last_uses:
            held.pop(node, None)
        kept = {at for at in held.values() if 0 < at < passes.last and passes.row[at - 1][0] == "F"}
        most = max(most, len(kept))
    return most
