"""What a second backward pass can still use of a graph after one without retain_graph.

Where a rule reads values of the forward pass, the way ends: these are let go. Other ways stay open
for another pass: those through rules that need no value, of which a copy without any is kept, and
those that no pass has gone. Of `(a * a + b).sum()` the way to `b` is left, and that to `a` is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

from ridgeline.graph.node import Node, leaf, topological, twin
from ridgeline.graph.passes.autodiff.saved_values import depends_on_data, reads_values
from ridgeline.ops.differentiate import ends, sources


class Remains(NamedTuple):
    """What is left below a node: a copy without values, and the paths to variables."""

    copy: Node
    lost: int  # the bits of variables to which some way is closed
    left: int  # and to which some way is open


def remains_below(
    nodes: Collection[Node], passed: Set[Node], reach: Mapping[Node, int]
) -> tuple[dict[Node, Remains], set[Node]]:
    """What a pass through the nodes `passed` leaves below some nodes.

    `reach` has, for every node that leads to variables, the bits of these. Leaves replace closed
    paths in the copies. A node that reaches no variable has no copy.
    """
    closed: set[Node] = set()

    def is_end(current: Node) -> bool:
        if current not in passed or ends(current):
            return True
        if reads_values(current):
            closed.add(current)
        return current in closed

    found: dict[Node, Remains] = {}
    for current in topological(nodes, is_end, lambda n, i: i in reach and i in sources(n)):
        if current in closed:
            found[current] = Remains(_bare(current), reach[current], 0)
        elif current.owner is not None:
            variable = _bare(current)
            variable.owner = current.owner
            found[current] = Remains(variable, 0, reach.get(current, 0))
        elif current.inputs and current in passed:
            copied = _copied(current, found)
            stays = not copied.lost and current in nodes  # so whoever looks for it finds it
            found[current] = copied._replace(copy=current) if stays else copied
        else:  # no pass went this way
            found[current] = Remains(current, 0, reach.get(current, 0))
    return found, closed


def _copied(current: Node, found: Mapping[Node, Remains]) -> Remains:
    """A node that can be differentiated any number of times, over what is left of its inputs."""
    lost = left = 0
    inputs: list[Node] = []
    for source in current.inputs:
        below = found.get(source)
        if below is None:  # a rule may read numbers, and of data only the type
            inputs.append(_bare(source) if depends_on_data([source]) else source)
        else:
            inputs.append(below.copy)
            lost |= below.lost
            left |= below.left
    return Remains(twin(current, tuple(inputs)), lost, left)


def _bare(node: Node) -> Node:
    """A leaf of the same types."""
    made = leaf(node.types[0])
    made.types, made.origins = node.types, node.origins
    return made
