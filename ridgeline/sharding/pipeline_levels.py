"""Which pass of which microbatch a value of a step belongs to.

Parts of the model come one after the other, forwards and then backwards: of `p` parts, part `k` is
passed forwards at level `k` and backwards at `2p - 1 - k`. Before all of them is what depends on no
sample's way through the model, after them what is made of whole gradients. A value that reads of
several levels and microbatches belongs to the latest of both: then everything that it needs is
there in every schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.ops.placed import (
    MICROBATCH,
    PLACED,
    PLACED_AS_STATE,
    PLACED_LIKE,
    OnStage,
    Replicate,
)

Level = tuple[int, int]  # of the passes, and the microbatch; -1 for none
BEFORE: Level = (-1, -1)


def after_all(parts: int) -> Level:
    """The level of what is made of whole gradients."""
    return 2 * parts, -1


def backward_level(part: int, parts: int) -> int:
    """The level at which a part is passed backwards."""
    return 2 * parts - 1 - part


def latest(levels: Iterable[Level], parts: int) -> Level:
    """The level of what reads of several."""
    number = microbatch = -1
    for level in levels:
        number, microbatch = max(number, level[0]), max(microbatch, level[1])
    return after_all(parts) if number == 2 * parts else (number, microbatch)


def levels(graph: Graph, begins: Mapping[Node, int], parts: int) -> dict[Node, Level]:
    """For each node of a step, whose microbatches begin at some nodes, its level."""
    found: dict[Node, Level] = {}
    for node in graph.order:
        below = () if graph.is_input(node) else node.inputs
        number, microbatch = latest([found[source] for source in below], parts)
        if node in begins:
            number, microbatch = max(number, 0), max(microbatch, begins[node])
        elif node.op is PLACED:
            number = max(number, _asked(dict(node.attrs.forward), parts))
        elif node.op in (PLACED_LIKE, PLACED_AS_STATE):
            number = 2 * parts
        found[node] = after_all(parts) if number == 2 * parts else (number, microbatch)
    return found


def is_one_step(graph: Graph, found: Mapping[Node, Level]) -> bool:
    """True where what goes from part to part is of microbatches, and before whole gradients are.

    What undecorated lines leave to be computed may be the end of one step and the beginning of the
    next: of that no schedule knows.
    """
    between = [
        node for node in graph.computed
        if node.op is PLACED and isinstance(dict(node.attrs.forward).get("pp"), OnStage)
    ]  # fmt: skip
    return all(found[node][1] >= 0 for node in between)


def _asked(wishes: Mapping[str, object], parts: int) -> int:
    """The level that begins where a value is placed; -1 for none."""
    stage = wishes.get("pp")
    if isinstance(stage, OnStage) and stage.part >= 0:
        return backward_level(stage.part, parts) if stage.backward else stage.part
    return parts if isinstance(wishes.get(MICROBATCH), Replicate) else -1
