"""Attention as a device computes it whole: results beside one another, and joined gradients.

The graph before and after the pass is run by the interpreter, and must give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline import dtypes
from ridgeline.graph.graph import Graph
from ridgeline.graph.interpreter import evaluate
from ridgeline.graph.node import Node, TensorType, leaf, topological
from ridgeline.graph.passes.libraries.attention import lay_out_heads
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, attention
from ridgeline.ops.differentiate import reverse
from ridgeline.ops.movement import permute, reshape, slice_

BATCH, LENGTH, HEADS, WIDTH = 2, 5, 3, 4
ROW = HEADS * WIDTH


def unbound(base: Node) -> list[Node]:
    """Heads as `reshape(...).permute(2, 0, 3, 1, 4).unbind(0)` gives them."""
    parts = permute(reshape(base, (BATCH, LENGTH, 3, HEADS, WIDTH)), (2, 0, 3, 1, 4))
    shape = (1, BATCH, HEADS, LENGTH, WIDTH)
    pieces = [slice_(parts, (n, 0, 0, 0, 0), shape, (1,) * 5) for n in range(3)]
    return [reshape(piece, shape[1:]) for piece in pieces]


def split(base: Node) -> list[Node]:
    """Heads as `split(width, -1)` and a view of each part give them."""
    pieces = [slice_(base, (0, 0, n * ROW), (BATCH, LENGTH, ROW), (1, 1, 1)) for n in range(3)]
    return [permute(reshape(p, (BATCH, LENGTH, HEADS, WIDTH)), (0, 2, 1, 3)) for p in pieces]


@pytest.mark.parametrize("cut", [unbound, split])
def test_gradients_of_one_projection_are_one_result(cut: Any) -> None:
    base = leaf(TensorType((BATCH, LENGTH, 3 * ROW), dtypes.float32, "cpu"))
    ct = leaf(TensorType((BATCH, LENGTH, ROW), dtypes.float32, "cpu"))
    out, _ = attention(*cut(base), None, 0.5, True)
    flat = reshape(permute(out, (0, 2, 1, 3)), (BATCH, LENGTH, ROW))
    (gradient,) = reverse([flat], [ct], [base])
    assert gradient is not None
    given = {base, ct}.__contains__
    before = [flat, gradient]
    after = lay_out_heads(Graph(before, [base, ct])).outputs
    found = {n.op: n for n in topological(after, given)}
    assert found[ATTENTION].attrs.beside and found[ATTENTION_GRADIENT].attrs.joined
    assert "concat" not in {op.name for op in found} and "pad" not in {op.name for op in found}
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(n.shape).astype(np.float32) for n in (base, ct)}
    for one, other in zip(evaluate(before, values), evaluate(after, values)):
        np.testing.assert_array_equal(one, other)


def test_heads_one_after_the_other_stay_so() -> None:
    q = leaf(TensorType((BATCH, HEADS, LENGTH, WIDTH), dtypes.float32, "cpu"))
    out, _ = attention(q, q, q, None, 0.5, False)
    assert lay_out_heads(Graph([out], [q])).outputs == (out,)
