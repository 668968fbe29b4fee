"""Contractions that compute no more than is used of them.

%2 = contract %0, %1 : float32[8, 64, 58, 58]                becomes a contraction of 56 by 56
%3 = slice %2 [starts=(0, 0, 1, 1), sizes=(8, 64, 56, 56)]

The gradient of a padded convolution by its input is the case that counts: it would compute the
gradient of the margin too, and then cut it off. Padding that no index reaches is not written, and
multiplications by the zeros between spread elements are left out (`phases.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ridgeline.graph.node import Node, topological
from ridgeline.graph.passes.phases import Shift, over_less, read_from
from ridgeline.graph.passes.rebuild import rebuild
from ridgeline.ops.contract import CONTRACT, ContractAttrs, contract
from ridgeline.ops.movement import PAD, SLICE


def narrow_windows(roots: Sequence[Node]) -> list[Node]:
    """The graph with contractions of which a part is used computing that part."""
    order = topological(roots)
    if not _has_padded(order):
        return list(roots)
    uses = Counter([*(source for current in order for source in current.inputs), *roots])

    def narrow(current: Node, inputs: Sequence[Node]) -> Node | None:
        alone = current.op is SLICE and uses[current.inputs[0]] == 1
        return narrowed(current, inputs[0]) if alone and inputs[0].op is CONTRACT else None

    return rebuild(roots, narrow)


def fit_windows(roots: Sequence[Node]) -> list[Node]:
    """The graph with no contraction reading more padding than its indices reach."""
    if not _has_padded(topological(roots)):
        return list(roots)

    def fit(current: Node, inputs: Sequence[Node]) -> Node | None:
        padded = current.op is CONTRACT and any(i.op is PAD for i in inputs)
        return over_less(inputs[0], inputs[1], current.attrs) if padded else None

    return rebuild(roots, fit)


def _has_padded(order: Sequence[Node]) -> bool:
    return any(n.op is CONTRACT and any(i.op is PAD for i in n.inputs) for n in order)


def narrowed(part: Node, whole: Node) -> Node:
    """A slice of a contraction as a contraction."""
    attrs, cut = whole.attrs, part.attrs
    extents = list(attrs.extents)
    shifts: dict[int, Shift] = {}
    for number, start, size, step in zip(attrs.output, cut.starts, cut.sizes, cut.steps):
        shifts[number] = (step, start)
        extents[number] = size
    left, right = (read_from(maps, shifts) for maps in (attrs.left, attrs.right))
    made = ContractAttrs(tuple(extents), attrs.output, left, right)
    return contract(whole.inputs[0], whole.inputs[1], made)
