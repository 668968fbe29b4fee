"""Activation checkpointing: backward() computes a part of the graph again.

The function runs once. What it recorded is then known as a graph of its own, from its arguments and
what else it read to its results. These are tied to that graph by a rule (`ops/tracking.py`) whose
derivatives write the graph out a second time, over arguments that are there only after the gradient
of the results is (`ops/barrier.py`). So nothing inside the function is kept for the backward pass,
no compiler finds the second computation in the first, and it does not begin before it is due.
Random numbers are functions of a stream's place, which is one of the things read: they come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from ridgeline.atomic import Switch
from ridgeline.errors import ArgumentError, BadValueError
from ridgeline.graph.graph import Graph, substitute
from ridgeline.graph.node import LEAF as LEAF_OP, PROJ, Node, proj, shows_constant, topological
from ridgeline.graph.origins import here, stamp
from ridgeline.ops.attention import ATTENTION
from ridgeline.ops.barrier import after
from ridgeline.ops.contract import PRODUCTS
from ridgeline.ops.differentiate import forward, leading_to, reverse
from ridgeline.ops.tracking import VARIABLE, custom, tag
from ridgeline.record import recorder
from ridgeline.record.cells import GRAPH, filled_leaf
from ridgeline.record.modes import called, modes
from ridgeline.record.values import read
from ridgeline.tensors.pytree import flatten, unflatten
from ridgeline.tensors.tensor import Tensor, wrap

Policy = Literal["none", "selective", "full"]


def checkpoint(
    function: Callable[..., Any], *args: Any, policy: Policy = "full", **kwargs: Any
) -> Any:
    """Call a function whose values backward() computes again, to keep only its arguments.

    Results, gradients and random numbers are those of a plain call; the function itself runs once.
    Tensors among the arguments, also in tuples, lists and dicts, are where computing begins again;
    what the function reads besides is kept, and all values where it writes to an argument. With the
    policy "selective" the results of matrix products, convolutions and attention are kept too,
    which are what takes time; "none" is a plain call.

    >>> block = rl.nn.Sequential(rl.nn.Linear(4, 64), rl.nn.GELU(), rl.nn.Linear(64, 4))
    >>> x = rl.rand(8, 4, requires_grad=True)
    >>> rl.checkpoint(block, x).sum().backward()
    >>> x.grad.shape
    ridgeline.Size([8, 4])
    """
    if not callable(function):
        raise ArgumentError(f"checkpoint needs a function, not {type(function).__name__}")
    if policy not in get_args(Policy):
        names = ", ".join(map(repr, get_args(Policy)))
        raise BadValueError(f"there is no policy {policy!r}", help=f"policies are {names}")
    leaves: list[Any] = []
    flatten((args, kwargs), leaves)
    given = [value for value in leaves if isinstance(value, Tensor)]
    del leaves
    if not modes.gradients or not given or policy == "none":
        return called(function)(*args, **kwargs)
    if _may_be_matched(given):
        return _matched(function, args, kwargs, given, policy == "selective")
    starts = dict.fromkeys(read(value) for value in given)
    with Switch(modes, eager=False):  # what would run at once would leave values, and no graph
        result = called(function)(*args, **kwargs)
    found: list[Any] = []
    structure = flatten(result, found)
    tied = _tied(found, starts, policy == "selective")
    del result
    for index in tied:
        found[index] = None  # or its graph would be kept for as long as a new tensor is made
    for index, node in tied.items():
        found[index] = wrap(node, GRAPH)
    return unflatten(structure, found)


def _may_be_matched(given: Sequence[Tensor]) -> bool:
    """True where what the results are tied to can be told by the tensors alone, without nodes.

    A view with a graph may read as another node for every handle that shows it.
    """
    if modes.eager or modes.capture is not None or modes.on_read or modes.anomaly is not None:
        return False
    return not any(value._steps and value._track.mode >= GRAPH for value in given)


def _matched(
    function: Callable[..., Any], args: Any, kwargs: Any, given: Sequence[Tensor], selective: bool
) -> Any:
    """The same where no node is read before the results are tied: that is one call to a tape."""
    before = [value._cell.version for value in given]
    found: list[Any] = []
    structure = flatten(function(*args, **kwargs), found)
    if before != [value._cell.version for value in given]:
        return unflatten(structure, found)  # what it began with is written over: all is kept
    places = [place for place, value in enumerate(found) if _is_tracked(value)]
    for place, made in zip(places, _tied_tensors([found[p] for p in places], given, selective)):
        found[place] = found[place] if made is None else made
    return unflatten(structure, found)


@recorder.taped
def _tied_tensors(
    results: Sequence[Tensor], given: Sequence[Tensor], selective: bool
) -> tuple[Tensor | None, ...]:
    """Results that come from what a function was given, tied to a graph; None for all others."""
    tied = _tied(results, dict.fromkeys(map(read, given)), selective)
    nodes = [tied.get(place) for place in range(len(results))]
    return tuple([None if node is None else wrap(node, GRAPH) for node in nodes])


def _tied(found: Sequence[Any], starts: Mapping[Node, None], selective: bool) -> dict[int, Node]:
    """Of the leaves of a result, by place, those that come from the arguments, tied to a graph."""
    results = [value for value in found if _is_tracked(value) and read(value) not in starts]
    nodes = list(dict.fromkeys(read(value) for value in results))
    inside = _made_inside(nodes, starts)
    outputs = [node for node in nodes if node in inside]
    if not outputs:
        return {}
    graph, sources = _between(outputs, inside, starts)
    kept = [n for n in graph.order if not graph.is_input(n) and _is_slow(n)] if selective else []
    waits = [s in starts or _is_number(s) for s in sources]
    held, shown = outputs, kept
    if modes.capture is None and any(n.buffer is not None for n in graph.order if n in inside):
        # values inside exist already, and whoever holds the outputs' graph would hold them
        recorder.realize([value._resolved()[0] for value in results])
        held = [filled_leaf(node.types[0], node.buffer) for node in outputs]
        shown = _apart(graph.giving(kept), sources, waits) if kept else []
    rule = _Again(graph.giving([*outputs, *kept]).on_fresh_leaves(), waits, len(kept))
    tie = custom(held, [*sources, *shown], rule)
    stamp(tie, here())
    made = {node: proj(tie, number) for number, node in enumerate(outputs)}
    return {
        index: made[read(value)]
        for index, value in enumerate(found)
        if _is_tracked(value) and read(value) in made
    }


def _apart(graph: Graph, sources: Sequence[Node], waits: Sequence[bool]) -> list[Node]:
    """Values that exist already, without what they were made of: a derivative makes that again."""
    held = [
        node if node.buffer is None else filled_leaf(node.types[0], node.buffer)
        for node in graph.outputs
    ]
    tie = custom(held, sources, _Again(graph.on_fresh_leaves(), waits, 0))
    return [proj(tie, number) for number in range(len(held))]


def _is_slow(node: Node) -> bool:
    """True for a result of what takes most of the time: products, convolutions, attention."""
    made_by = node.inputs[0].op if node.op is PROJ else node.op
    return len(node.types) == 1 and made_by in (*PRODUCTS, ATTENTION)


def _is_tracked(value: Any) -> bool:
    return isinstance(value, Tensor) and value._resolved()[1].mode == GRAPH


def _made_inside(outputs: Sequence[Node], starts: Mapping[Node, None]) -> set[Node]:
    """What is computed again: all that comes from arguments, or from single numbers alone.

    The latter are random numbers, whose stream's place is a number, and ramps and masks; whether
    they were made inside the function or before it, they are cheap to make again.
    """
    found: set[Node] = set()
    small: set[Node] = set()
    for node in topological(outputs, lambda n: n in starts or n.owner is not None):
        if node in starts:
            continue
        if any(i in found or i in starts for i in node.inputs):
            found.add(node)
        elif _is_number(node) or (node.op is not LEAF_OP and small.issuperset(node.inputs)):
            small.add(node)
    return found | {node for node in small if node.inputs and node.buffer is None}


def _is_number(node: Node) -> bool:
    """True for a single number that is given: not a variable, nor part of one."""
    return node.op is LEAF_OP and node.shape == () and node.owner is None


def _between(
    outputs: Sequence[Node], inside: set[Node], starts: Mapping[Node, None]
) -> tuple[Graph, tuple[Node, ...]]:
    """The graph from arguments to results, and what it stands on: these and what else is read."""

    def is_given(node: Node) -> bool:
        return node in starts or (node not in inside and not _is_made_again(node))

    graph = Graph.below(outputs, is_given)
    return graph, graph.inputs


def _is_made_again(node: Node) -> bool:
    """True for constants, and for what one variable is turned into, as by a cast or a transpose."""
    if shows_constant(node):
        return True
    own = node
    while len(own.inputs) == 1 and own.op is not VARIABLE and own.owner is None:
        own = own.inputs[0]
    return own is not node and (own.owner is not None or own.op is LEAF_OP)


class _Again:
    """The rule of results that are computed again: `graph` is over leaves of its own.

    Its last outputs are values inside that are kept: they are read, and not computed again.
    """

    settled = True

    def __init__(self, graph: Graph, waits: Sequence[bool], kept: int) -> None:
        self._graph, self._waits, self._kept = graph, waits, kept

    def reads(self, current: Node) -> Sequence[Node]:
        """What computing again starts from."""
        return current.inputs[current.attrs.outputs :]

    def _over(self, inputs: Sequence[Node]) -> list[Node]:
        return substitute(self._graph.outputs, dict(zip(self._graph.inputs, inputs)))

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Reverse mode: the graph once more, and back through that."""
        due = next((ct for ct in cotangents if ct is not None), None)
        nothing: list[Node | None] = [None] * self._kept  # flows by way of the second computation
        if due is None:
            return [None] * len(self._waits) + nothing
        read = self.reads(current)
        pairs = zip(read, self._waits)
        # a name of its own ends the way of each, also where one is made of another
        again = [tag(after(node, due) if fits else node) for node, fits in pairs]
        made = self._over(again)
        seeds = [(output, ct) for output, ct in zip(made, cotangents) if ct is not None]
        outputs = [output for output, _ in seeds]
        stops = set(again)
        order = topological(outputs, stops.__contains__)
        active = leading_to(order, again)
        found = reverse(outputs, [ct for _, ct in seeds], again, None, order, active)
        if not self._kept:
            return found
        shown = dict(zip(made[-self._kept :], read[-self._kept :]))
        present = [node for node in found if node is not None]
        now = dict(zip(present, substitute(present, shown)))
        return [None if node is None else now[node] for node in found] + nothing

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Forward mode, which keeps nothing."""
        own = [tag(node) for node, _ in zip(self.reads(current), self._waits)]
        moving = [(node, t) for node, t in zip(own, tangents) if t is not None]
        results = self._over(own)[: current.attrs.outputs]
        return forward(results, [node for node, _ in moving], [t for _, t in moving])
