"""What a backward pass reads of the forward pass, and so lets go of when it is the last one.

A second pass over the same graph is possible where no rule reads such a value: the graph of
`(x + 1).sum()` can be gone through any number of times, that of `(x * y).sum()` once.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from ridgeline.graph.node import LEAF, Node
from ridgeline.graph.passes.autodiff.differentiate import ends
from ridgeline.ops.tracking import CUSTOM

_NOTHING = frozenset((
    "add", "sub", "neg", "conj", "real", "imag", "complex", "cast", "sign", "floor", "ceil",
    "round", "trunc", "reinterpret", "fourier", "half_fourier", "real_fourier",
))  # fmt: skip
_SUMS = frozenset(("reduce", "scan"))  # of other monoids the rules read values
_BY_OTHER = frozenset(("mul", "div", "fmod", "mod", "contract"))  # linear in one operand
_BY_CHOICE = frozenset(("select", "gather", "scatter"))  # linear in what is chosen from


def lets_go(root: Node, passed: Set[Node], free: set[Node]) -> bool:
    """True where a pass through the nodes `passed` reads values of the forward pass below `root`.

    `free` are nodes known to need none, and grow by what is found.
    """
    seen = {root}
    stack = [root]
    while stack:
        current = stack.pop()
        if not current.inputs or ends(current) or current in free:
            continue
        if _reads_values(current):
            return True
        for source in current.inputs:
            if source not in seen and source in passed:
                seen.add(source)
                stack.append(source)
    free |= seen
    return False


def _reads_values(current: Node) -> bool:
    """True where a node's rule needs more than the cotangent and constants."""
    name = current.op.name
    if current.op is CUSTOM:
        return bool(current.attrs.rule.reads())
    if current.op.family == "movement" or name in _NOTHING:
        return False
    if name in _SUMS:
        monoid: str = current.attrs.monoid
        return monoid != "sum"
    if name in _BY_OTHER:
        return _varying(current.inputs[1:]) and (
            name not in ("mul", "contract") or _varying(current.inputs[:1])
        )
    if name in _BY_CHOICE:
        return _varying([i for i in current.inputs if not i.types[0].dtype.is_differentiable])
    return True


def _varying(nodes: Iterable[Node]) -> bool:
    """True where data goes into one of the nodes; a single number does not count as data."""
    stack = list(nodes)
    seen = set(stack)
    while stack:
        current = stack.pop()
        if current.owner is not None or current.op.name == "random_bits":
            return True
        if current.op is LEAF and current.shape != ():
            return True
        for source in current.inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False
