"""An optimization barrier: a value that is only available after another one.

Equal expressions are one node, so a value that is computed again from the same operands would be
the value that was computed before, kept in memory all the time. `after(a, b)` is `a` as an operand
of its own: what is made of it is no expression that was there before, and its kernels wait for `b`.
No pass knows it; code generators give its first operand.
"""

from __future__ import annotations

from ridgeline.graph.node import Node
from ridgeline.graph.sizes import bounds, product
from ridgeline.ops.elementwise import apply, cast
from ridgeline.ops.movement import broadcast_scalar, reshape, slice_


def after(a: Node, b: Node) -> Node:
    """`a`, once `b` is computed; if that order cannot be expressed, `a` itself."""
    apart = a.type.device != b.type.device or "complex" in (a.dtype.kind, b.dtype.kind)
    if apart or bounds(product(b.shape))[0] < 1:
        return a
    ones = (1,) * len(b.shape)
    first = reshape(slice_(b, (0,) * len(b.shape), ones, ones), ())
    return apply("after", a, broadcast_scalar(cast(first, a.dtype), a.shape))
