"""Structural keys: equal for what is built alike, whichever leaves it reads."""

from __future__ import annotations

from ridgeline import dtypes
from ridgeline.graph.graph import Graph, structure
from ridgeline.graph.node import Node, TensorType, leaf
from ridgeline.weak import Structure, fingerprint


def _leaf(size: int = 4) -> Node:
    return leaf(TensorType((size,), dtypes.float32, "cpu"))


def test_graphs_of_one_form_have_one_key() -> None:
    a, b, c, d = (_leaf() for _ in range(4))
    one = structure(Graph([a * b + a], [a, b]))
    assert one == structure(Graph([c * d + c], [c, d])) and hash(one) == hash(
        structure(Graph([c * d + c], [c, d]))
    )
    assert repr(one) == repr(structure(Graph([c * d + c], [c, d])))
    others = [
        Graph([c * d + d], [c, d]), Graph([c * d + c], [d, c]), Graph([c * c + c], [c, c]),
        Graph([c * d + c, c * d], [c, d]), Graph([c * d - c], [c, d]),
        Graph([c * d + c], [c, d, a]), Graph([_leaf(5) * 2], []),
    ]  # fmt: skip
    keys = {one, *map(structure, others)}
    assert len(keys) == len({repr(key) for key in keys}) == 1 + len(others)


def test_given_nodes_count_by_their_type_alone() -> None:
    a, b = _leaf(), _leaf()
    assert structure(Graph([a * 2 + 1], [a * 2])) == structure(Graph([b * 3 + 1], [b * 3]))


def test_fingerprints_are_the_same_in_every_process() -> None:
    assert fingerprint("kernel", 8) == fingerprint(b"kernel", 8) == "5793113e90ea3f27"
    assert Structure((1, "a")) != (1, "a") and len(fingerprint("")) == 32
