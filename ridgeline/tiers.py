"""Tiers: how a piece of recorded work is run, by the NumPy interpreter or as compiled code.

A piece is known by its structure. The interpreter's cost is reckoned (not measured, so that runs
are reproducible) and added up per structure; when it exceeds what compiling would cost, the piece
is compiled. A piece that is large enough is compiled when it is first seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node
from ridgeline.runtime.buffer import Buffer
from ridgeline.scalars import Array


def compute(roots: Sequence[Node], tracked: Sequence[Node]) -> None:
    """Give every root its value, and what a backward pass from `tracked` will read."""
    for node, array in zip(roots, evaluate(roots)):
        node.buffer = as_buffer(array)


def as_buffer(array: Array) -> Buffer:
    """An interpreter's result in memory of the pool."""
    buffer = Buffer.allocate(array.nbytes)
    if array.nbytes:
        memory = np.asarray(buffer)[: array.nbytes].view(array.dtype)
        memory.reshape(array.shape)[...] = array
    return buffer
