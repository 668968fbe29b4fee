"""Simplification: every local rule, applied bottom up in one walk until none fits.

Dead code needs no rule: a walk from the results does not reach it. Common subexpressions need
none either: equal nodes are one node, also when a rewrite makes them equal. At the end the
contractions that remain are cut to what is used of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ridgeline.graph.node import PROJ, Node, leaf, node, topological
from ridgeline.graph.passes.algebra import simplify_algebra
from ridgeline.graph.passes.casts import simplify_casts
from ridgeline.graph.passes.fold import fold
from ridgeline.graph.passes.joins import join_parts
from ridgeline.graph.passes.moves import simplify_moves
from ridgeline.graph.passes.products import narrow_products
from ridgeline.graph.passes.rebuild import rebuild, substitute
from ridgeline.graph.passes.windows import fit_windows, narrow_windows
from ridgeline.ops.elementwise import IOTA

Arrange: TypeAlias = Callable[[Sequence[Node]], list[Node]]
RULES = (fold, simplify_algebra, simplify_casts, simplify_moves, join_parts)


def simplified(current: Node) -> Node:
    """A node after all rules that fit it, one after another."""
    changed = True
    while changed:
        changed = False
        for rule in RULES:
            made = rule(current)
            if made is not None and made is not current:
                current, changed = made, True
    return current


def simplify(
    roots: Sequence[Node], stop: Callable[[Node], bool], arrange: Arrange = list
) -> list[Node]:
    """The graph with every node simplified; nodes where `stop` holds are its inputs.

    A rule must not look through an input that happens to be computed, so leaves stand for those.
    `arrange` may put what a device's libraries compute into their form.
    """
    computed = [n for n in topological(roots, stop) if n.inputs and stop(n)]
    if not computed:
        return _simplified(roots, arrange)
    stand_ins = {n: leaf(n.type) for n in computed}
    made = _simplified(substitute(roots, stand_ins), arrange)
    return substitute(made, {place: n for n, place in stand_ins.items()})


def _simplified(roots: Sequence[Node], arrange: Arrange) -> list[Node]:
    narrow = narrow_windows(narrow_products(_rewritten(roots)))
    arranged = arrange(narrow)
    return fit_windows(narrow if arranged == narrow else _rewritten(arranged))


def _rewritten(roots: Sequence[Node]) -> list[Node]:
    def replace(current: Node, inputs: Sequence[Node]) -> Node | None:
        if current.op is PROJ or len(current.types) != 1:
            return None
        if not inputs and current.op is not IOTA:
            return None
        same = tuple(inputs) == current.inputs
        start = current if same else node(current.op, inputs, current.attrs)
        made = simplified(start)
        return None if made is current else made

    return rebuild(roots, replace)
