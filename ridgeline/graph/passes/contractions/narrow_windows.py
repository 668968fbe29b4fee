"""Shrink contractions to the part of their result that is used.

%2 = contract %0, %1 : float32[8, 64, 58, 58]                becomes a contraction of 56 by 56
%3 = slice %2 [starts=(0, 0, 1, 1), sizes=(8, 64, 56, 56)]

The gradient of a padded convolution by its input is the case that counts: it would compute the
gradient of the margin too, and then cut it off, in groups behind a reshape. Padding that no index
reaches is not written, and multiplications by the zeros between spread elements are left out
(`polyphase.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.graph import Graph
from ridgeline.graph.node import Node
from ridgeline.graph.passes.contractions.polyphase import Shift, over_less, read_from
from ridgeline.graph.sizes import Size
from ridgeline.ops.contract import CONTRACT, ContractAttrs, contract
from ridgeline.ops.movement import PAD, RESHAPE, SLICE, SliceAttrs, reshape
from ridgeline.ops.strides import axis_runs


def narrow_windows(graph: Graph) -> Graph:
    """The graph with contractions that compute only the part that is used."""
    if not _has_padded(graph):
        return graph
    uses = graph.uses()

    def narrow(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is not SLICE or uses[current.inputs[0]] != 1:
            return None
        whole, cut = inputs[0], current.attrs
        if not all(isinstance(start, int) for start in cut.starts):
            return None
        if whole.op is RESHAPE and uses[current.inputs[0].inputs[0]] == 1:
            seen, whole = whole, whole.inputs[0]
            moved = _before_reshape(cut, whole, seen) if whole.op is CONTRACT else None
            return None if moved is None else reshape(narrowed(moved, whole), current.shape)
        return narrowed(cut, whole) if whole.op is CONTRACT else None

    return graph.rebuilt(narrow)


def fit_windows(graph: Graph) -> Graph:
    """The graph without padding that no index of a contraction reaches."""
    if not _has_padded(graph):
        return graph

    def fit(current: Node, inputs: Sequence[Node]) -> Node | None:
        padded = current.op is CONTRACT and any(i.op is PAD for i in inputs)
        return over_less(inputs[0], inputs[1], current.attrs) if padded else None

    return graph.rebuilt(fit)


def _has_padded(graph: Graph) -> bool:
    return any(n.op is CONTRACT and any(i.op is PAD for i in n.inputs) for n in graph.computed)


def _before_reshape(cut: SliceAttrs, whole: Node, seen: Node) -> SliceAttrs | None:
    """A slice of a reshaped value as a slice before the reshape, if it keeps the cut axes."""
    rank = len(whole.shape)
    starts: list[Size] = [0] * rank
    sizes, steps = list(whole.shape), [1] * rank
    for old, new in axis_runs(whole.shape, seen.shape):
        changed = [a for a in new if cut.sizes[a] != seen.shape[a] or cut.steps[a] != 1]
        if not changed:
            continue
        before = [a for a in old if whole.shape[a] != 1]
        after = [a for a in new if seen.shape[a] != 1]
        if changed != after or len(before) != 1 or len(after) != 1:
            return None
        starts[before[0]], sizes[before[0]] = cut.starts[after[0]], cut.sizes[after[0]]
        steps[before[0]] = cut.steps[after[0]]
    return SliceAttrs(tuple(starts), tuple(sizes), tuple(steps))


def narrowed(cut: SliceAttrs, whole: Node) -> Node:
    """A slice of a contraction as a contraction."""
    attrs = whole.attrs
    extents = list(attrs.extents)
    shifts: dict[int, Shift] = {}
    for number, start, size, step in zip(attrs.output, cut.starts, cut.sizes, cut.steps):
        assert isinstance(start, int)
        shifts[number] = (step, start)
        extents[number] = size
    left, right = (read_from(maps, shifts) for maps in (attrs.left, attrs.right))
    made = ContractAttrs(tuple(extents), attrs.output, left, right)
    return contract(whole.inputs[0], whole.inputs[1], made)
