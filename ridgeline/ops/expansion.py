"""Derivatives of an op through its decomposition, if it has no shorter rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.graph.graph import substitute
from ridgeline.graph.node import Node, Transpose, leaf
from ridgeline.ops.differentiate import forward, reverse

Expand = Callable[[Node, Sequence[Node]], Sequence[Node]]  # a node's outputs over given inputs


def vjp_through(expand: Expand) -> Transpose:
    """Reverse mode: the written-out form, differentiated."""

    def rule(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
        stand_ins = _fresh(current.inputs)
        made = expand(current, stand_ins)
        pairs = [(out, ct, leaf(ct.type)) for out, ct in zip(made, cotangents) if ct is not None]
        found = reverse([out for out, _, _ in pairs], [at for _, _, at in pairs], stand_ins)
        known = {at: ct for _, ct, at in pairs} | dict(zip(stand_ins, current.inputs))
        return _with(found, known)

    return rule


def jvp_through(expand: Expand) -> Transpose:
    """Forward mode: the written-out form, differentiated."""

    def rule(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
        stand_ins = _fresh(current.inputs)
        pairs = [(at, t, leaf(t.type)) for at, t in zip(stand_ins, tangents) if t is not None]
        made = expand(current, stand_ins)
        found = forward(made, [at for at, _, _ in pairs], [moved for _, _, moved in pairs])
        known = {moved: t for _, t, moved in pairs} | dict(zip(stand_ins, current.inputs))
        return _with(found, known)

    return rule


def _fresh(nodes: Sequence[Node]) -> list[Node]:
    """A leaf for each input: two may be one node, and nothing below them is to be seen."""
    return [leaf(node.types[0]) for node in nodes]


def _with(found: Sequence[Node | None], known: dict[Node, Node]) -> list[Node | None]:
    """The nodes, over what the leaves stand for."""
    made = iter(substitute([part for part in found if part is not None], known))
    return [None if part is None else next(made) for part in found]
