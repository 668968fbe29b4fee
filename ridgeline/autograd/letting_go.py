"""Freeing graphs after backward(), and the error if a later pass needs freed values.

A tensor whose graph a pass went through stays with its value. The ways from it to variables on
which a rule reads values are closed: `LetGo` leaves stand for them, and know to which variables
they led. Another pass may go by every other way (`graph/passes/autodiff/remains.py`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from ridgeline.errors import GradientError
from ridgeline.graph.node import Node, twin
from ridgeline.graph.origins import describe, running
from ridgeline.graph.passes.autodiff.remains import remains_below
from ridgeline.ops.differentiate import flowing, reach
from ridgeline.record import recorder
from ridgeline.record.captures import RunningCapture
from ridgeline.record.cells import GRAPH, Behind, Cell, LetGo, Track, graph_track, rare
from ridgeline.record.graph_recorder import settle
from ridgeline.record.modes import modes
from ridgeline.record.values import nodes_of, read
from ridgeline.tensors.differentiable import observed
from ridgeline.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that a graph leads to, each as a node with a bit, in order."""

    owners: Sequence[Tensor]
    reach: Mapping[Node, int]  # which of them nodes lead to


def variables_of(order: Sequence[Node], keys: Mapping[Node, Tensor] | None = None) -> Variables:
    """What a graph leads to: all of its variables, or those of some nodes."""
    if keys is None:
        keys = owners_in(order)
    bits = {key: 1 << index for index, key in enumerate(keys)}
    return Variables([*keys.values()], reach(order, bits))


def owners_in(order: Iterable[Node]) -> dict[Node, Tensor]:
    """The nodes of a graph that stand for variables, with these."""
    found: dict[Node, Tensor] = {}
    for node in order:
        if node.owner is not None and (owner := node.owner()) is not None:
            found[node] = owner
    return found


def let_go(
    roots: Sequence[Tensor], passed: Set[Node], variables: Variables, known: bool = True
) -> None:
    """A pass from roots through some nodes is over: close the ways on which values were read.

    Where not all variables behind them are `known`, another pass may go none of these ways.
    """
    tops: dict[Track, Node] = {root._resolved()[1]: read(root) for root in roots}
    cells = recorder.tracked() if modes.capture is None else _made_in(modes.capture)
    for cell in cells:
        if cell.node in passed:
            tops[graph_track(cell)] = cell.node
    found, closed = remains_below(dict.fromkeys(tops.values()), passed, variables.reach)
    references = [*map(_reference, variables.owners)] if known else None
    running.let_go += 1
    partly = 0  # variables to which copies lead
    copied: dict[Node, tuple[Node, ...]] = {}
    for track, node in tops.items():
        copy, lost, left = found[node]
        if lost and track.mode == GRAPH:
            details = rare(track)
            details.spent, details.behind, details.rest = True, _behind(references, lost), None
            details.formers += (weakref.ref(node),)
            if left & ~lost:
                partly |= left
                details.rest = twin(copy)  # whoever reads the copy does not keep the value alive
                details.formers += (weakref.ref(copy),)
                copied[node] = (copy, details.rest)
    for node in closed if partly else ():
        ended = LetGo(node.types[0], _behind(references, found[node].lost), partly)
        found[node].copy.attrs = ended
    if observed:
        _move_watches(passed, {n: copied.get(n, (part.copy,)) for n, part in found.items()})
    for cell in cells if modes.capture is None else ():
        part = found.get(cell.node)
        if part is not None and part.lost and cell.node.buffer is not None:
            settle(cell)


def _behind(references: Sequence[Callable[[], Tensor | None]] | None, lost: int) -> Behind:
    return None if references is None else (references, lost)


def _made_in(capture: RunningCapture) -> list[Cell]:
    """The cells with a graph that a traced function made and still holds."""
    made = [cell for reference in capture.made if (cell := reference()) is not None]
    return [cell for cell in made if graph_track(cell).mode == GRAPH]


def _reference(owner: Tensor) -> Callable[[], Tensor | None]:
    """A weak reference to a variable, that by which graphs know it where there is one."""
    details = owner._track.rare
    known = None if details is None else details.owner
    return known if known is not None and known() is owner else weakref.ref(owner)


def _move_watches(passed: Set[Node], copies: Mapping[Node, Iterable[Node]]) -> None:
    """Hooks go with what is left of a graph, and stay where tensors do."""
    for node in passed:
        if node in observed:
            for copy in copies.get(node, ()):
                if copy is not node:
                    copy.watches = list(node.watches)
                    observed.add(copy)
            # the same expression recorded again has nothing to do with old hooks
            node.watches = [watch for watch in node.watches if watch.owner() is not None]


def check_root(root: Tensor, wanted: Sequence[Tensor] | None) -> None:
    """Raise where a pass from a tensor would go a way that was let go."""
    details = root._resolved()[1].rare
    if details is not None and details.spent and _is_behind(wanted, details.behind):
        raise GradientError(
            "backward() ran through this tensor before, and its graph was let go",
            help="pass retain_graph=True to the first call, or compute the tensor again",
        )


def check_history(order: Sequence[Node], wanted: Sequence[Tensor] | None) -> None:
    """Raise where a way to something wanted was let go."""
    for node in order:
        attrs = node.attrs
        if isinstance(attrs, LetGo) and _is_behind(wanted, attrs.behind, attrs.besides, node):
            line = describe(node)
            raise GradientError(
                "the graph behind one of the tensors was let go by an earlier backward()",
                note=f"the tensor is {node.types[0]}" + (f", made at {line}" if line else ""),
                help="pass retain_graph=True to the earlier call, or compute the tensor again",
            )


def _is_behind(
    wanted: Sequence[Tensor] | None, behind: Behind, besides: int = 0, end: Node | None = None
) -> bool:
    """True where a way to something wanted, or to any variable, was let go, or may have been.

    Of a tensor inside a graph that was let go nobody knows where it was; but then ways to all
    variables below it were lost or copied. The tensor that stands at the `end` is not behind it.
    """
    if wanted is None or behind is None:
        return True
    variables, lost = behind
    index_of: dict[int, int] = {}
    for index, variable in enumerate(variables):
        index_of[id(variable())] = index_of.get(id(variable()), 0) | 1 << index
    for tensor in wanted:
        if tensor.is_leaf:
            if index_of.get(id(tensor), 0) & lost:
                return True
        elif end is not None and end in nodes_of(tensor):
            continue
        elif all(index_of.get(owner, 0) & (lost | besides) for owner in _below(tensor)):
            return True
    return False


def _below(wanted: Tensor) -> set[int]:
    """The variables below a tensor, by identity; those to which ways were let go are some too."""
    order = flowing([read(wanted)])
    found = {id(owner) for owner in owners_in(order).values()}
    for node in order:
        if isinstance(node.attrs, LetGo) and node.attrs.behind is not None:
            variables, lost = node.attrs.behind
            found.update(id(v()) for index, v in enumerate(variables) if lost >> index & 1)
    return found
