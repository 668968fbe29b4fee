"""The interpreter: a graph evaluated node by node in NumPy. It is the definition of every op.

Nodes that already have a value (`node.buffer`) are not computed again. Intermediate arrays are
let go as soon as their last user has run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ridgeline.errors import ComputeError, RidgelineError
from ridgeline.float_errors import float_errors_ignored
from ridgeline.graph.node import LEAF, PROJ, Node, topological
from ridgeline.graph.origins import describe
from ridgeline.scalars import Array


def value_of(node: Node) -> Array:
    """The array of a node that has a value; it must not be written to."""
    shape = node.shape
    array: Array = node.buffer.array(node.dtype, shape)
    return array


def _computed(current: Node, operands: Sequence[Array]) -> tuple[Array, ...]:
    """Evaluate one node; an error of NumPy's becomes one that names the op and the user's line."""
    try:
        return current.op.value(current, operands)
    except RidgelineError:
        raise
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        line = describe(current)
        raise ComputeError(
            f"{current.op.name} giving {current.types[0]} cannot be computed: "
            f"{error or type(error).__name__}",
            note=f"made at {line}" if line else "",
        ) from error


def evaluate(
    roots: Sequence[Node],
    given: Mapping[Node, Array] | None = None,
    watch: Callable[[Node, Sequence[Array]], None] | None = None,
    order: Sequence[Node] | None = None,
) -> list[Array]:
    """The values of `roots`. `given` supplies leaves, or replaces any node.

    Nodes with buffers count as given too. `watch` is called with every computed node and its
    results. `order` is the topological order of the nodes to compute, if the caller knows it.
    """
    known: dict[Node, tuple[Array, ...]] = {}
    if given:
        known = {node: (array,) for node, array in given.items()}
    if order is None:
        order = topological(roots, lambda n: n in known or n.buffer is not None)
    uses: dict[Node, int] = {}
    for current in order:
        if current not in known and current.buffer is None:
            for source in current.inputs:
                uses[source] = uses.get(source, 0) + 1
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    with float_errors_ignored():
        for current in order:
            if current in known:
                continue
            if current.buffer is not None:
                known[current] = (value_of(current),)
                continue
            if current.op is PROJ:
                source = current.inputs[0]
                known[current] = (known[source][current.attrs.output],)
            elif current.op is LEAF:
                current.op.value(current, ())
            else:
                operands = [known[source][0] for source in current.inputs]
                known[current] = _computed(current, operands)
            if watch is not None:
                watch(current, known[current])
            for source in current.inputs:
                uses[source] -= 1
                if not uses[source]:
                    del known[source]
    return [np.asarray(known[root][0]) for root in roots]
