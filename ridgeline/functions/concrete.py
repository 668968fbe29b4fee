"""Values that decide a shape or a Python bool: read at once, or an error while jit traces.

`nonzero`, boolean masks and `unique` have results whose size depends on the numbers. Everything
recorded so far is computed to learn it. jit has no numbers: there masks are counted by a stage of
their own (`tracing/counted.py`), and the others must be avoided.
"""

from __future__ import annotations

from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType
from ridgeline.graph.origins import describe, running, user_line
from ridgeline.graph.placement import movable
from ridgeline.record.captures import CaptureError
from ridgeline.record.cells import filled_leaf
from ridgeline.record.memory import adopt
from ridgeline.record.modes import modes
from ridgeline.record.recorder import flush, match
from ridgeline.scalars import Array


def concrete(node: Node, what: str, remedy: str = "") -> Array:
    """The value of a node, computed if need be; not to be written to."""
    capture = modes.capture
    if capture is not None:
        if capture.depends(node):
            raise _unknown(node, what, remedy, capture.name)
        return evaluate([node])[0]
    running.looked = True
    if node.buffer is None:
        flush()
    if node.buffer is None:
        match([node]).run()
    array: Array = node.buffer.array(node.dtype, node.shape)
    return array


def _unknown(node: Node, what: str, remedy: str, tracer: str) -> Exception:
    line = user_line()
    lines = [f"at {line}"] if line else []
    origin = describe(node)
    if origin:
        lines.append(f"the tensor {node.types[0]} was made at {origin}")
    return CaptureError(
        f"{what} depends on values, which {tracer} does not have while it traces",
        note="\n".join(lines),
        help=remedy or "choose with where(), or move this line out of the traced function",
    )


def given(array: Array, type: TensorType) -> Node:
    """An array as a node that has its value; only the element type of `type` counts."""
    found = TensorType(array.shape, type.dtype, type.device)
    made = filled_leaf(found, adopt(array.astype(type.dtype.numpy), type.device))
    movable.add(made)
    return made
