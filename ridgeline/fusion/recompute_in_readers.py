"""Values that readers compute again, once it is known which kernel computes and reads what.

Before kernels are merged a value looks worth storing when several folds need it. When those folds
have become one kernel, what is written to memory is for other kernels alone, mostly of the backward
pass, and these often read what the value is made of anyway. Dropping such a value saves its bytes
twice, and its memory between the two passes. Later values come first: a chain is undone from its
end, each step down to what lies below it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.fusion.sizes import nbytes
from ridgeline.fusion.split_chains import MOST_NODES
from ridgeline.graph.node import Node
from ridgeline.loops.lowering.iteration_space import NotFusable
from ridgeline.ops.contract import CONTRACT

if TYPE_CHECKING:
    from ridgeline.fusion.groups import Fuser, Group


def compute_again(fuser: Fuser) -> None:
    """Drop values where the kernels that computed and read them take less time without."""
    pointwise = [v for v in fuser.owner if v.op.family == "pointwise"]
    dropped = [v for v in pointwise if v not in fuser.values.results]
    _forget_unwritten(fuser, dropped)
    for value in sorted(dropped, key=fuser.position.__getitem__, reverse=True):
        if value in fuser.owner:
            _drop_if_faster(fuser, value)


def _forget_unwritten(fuser: Fuser, values: list[Node]) -> None:
    """Values inside one kernel are no values of their own any more."""
    gone = {v for v in values if not fuser.readers.get(v, set()) - {fuser.owner[v]}}
    for group in list(fuser.groups.values()):
        if not gone.isdisjoint(group.values):
            fuser.remove(group)
            group.values = tuple(v for v in group.values if v not in gone)
            fuser.add(group)
    for value in gone:
        del fuser.owner[value]
    fuser.values = replace(fuser.values, stored=fuser.values.stored - gone)


def _drop_if_faster(fuser: Fuser, value: Node) -> None:
    owner = fuser.groups[fuser.owner[value]]
    readers = [fuser.groups[n] for n in fuser.readers.get(value, ()) if n != owner.number]
    if any(_multiplies(group) for group in (owner, *readers)):
        return
    if not _moves_less(fuser, value, owner, readers):
        return
    before = fuser.values
    fuser.values = replace(before, stored=before.stored - {value})
    kept = tuple(v for v in owner.values if v is not value)
    made: list[Group] = []
    try:
        made = [fuser.group(g.values, fuser.leaving(g.values), MOST_NODES) for g in readers]
        _swap(fuser, readers, made)  # what they read now decides what the owner writes
        rest = [fuser.group(kept, fuser.leaving(kept))] if kept else []
    except NotFusable:
        rest = [owner]
    gain = _seconds([*readers, owner]) - _seconds([*made, *rest])
    if len(made) == len(readers) and rest != [owner] and gain > 0:
        _swap(fuser, [owner], rest)
        del fuser.owner[value]
        return
    if len(made) == len(readers):
        _swap(fuser, made, readers)
    fuser.values = before


def _swap(fuser: Fuser, old: list[Group], new: list[Group]) -> None:
    for group in old:
        fuser.remove(group)
    for group in new:
        fuser.add(group)


def _seconds(groups: list[Group]) -> float:
    return sum(group.seconds for group in groups)


def _multiplies(group: Group) -> bool:
    """True for contractions, whose operands lie in memory, and what has no loops."""
    return group.lowered is None or group.lowered.anchor is CONTRACT


def _moves_less(fuser: Fuser, value: Node, owner: Group, readers: list[Group]) -> bool:
    """A bound that needs no loops: more bytes are no longer moved than then are."""
    below = _made_of(fuser, value)
    more = sum(nbytes(v) for v in below if v in owner.values and not fuser.leaving((v,)))
    for group in readers:
        more += sum(nbytes(v) for v in below - group.reads - set(group.values))
    return more < nbytes(value) * (1 + len(readers))


def _made_of(fuser: Fuser, value: Node) -> set[Node]:
    """The values in memory that a value is computed from."""
    found: set[Node] = set()
    stack, seen = list(value.inputs), set(value.inputs)
    while stack:
        node = stack.pop()
        if fuser.values.graph.is_input(node) or node in fuser.values.stored:
            found.add(node)
            continue
        fresh = [i for i in node.inputs if i not in seen]
        seen.update(fresh)
        stack += fresh
    return found
