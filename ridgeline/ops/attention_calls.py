"""Attention and its gradient as a library computes them.

No program is written in these ops: where a device's library has an attention, a pass puts them in
the place of `ops/attention.py`'s (`graph/passes/libraries/attention_calls.py`). The values are the
same, but for the signs of zeros in joined gradients. The gradient reads the result itself where
our kernels read sums over it (`delta`):

    attention_call            q, k, v              ->  out, lse
    attention_gradient_call   q, k, v, lse, out, ct  ->  by q, k and v
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node, Op, TensorType
from ridgeline.ops.attention import ATTENTION, ATTENTION_GRADIENT, AttentionAttrs
from ridgeline.scalars import Array


def _infer_gradient(types: Sequence[TensorType], attrs: AttentionAttrs) -> tuple[TensorType, ...]:
    q, k, v, lse, out, ct = types
    assert out == ct, "a result and its cotangent are alike"
    return ATTENTION_GRADIENT.infer((q, k, v, lse, lse, ct), attrs)


def _gradient_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    *operands, lse, out, ct = inputs
    delta = (out.astype(lse.dtype) * ct.astype(lse.dtype)).sum(-1, dtype=lse.dtype)
    return ATTENTION_GRADIENT.value(current, (*operands, lse, delta, ct))


ATTENTION_CALL = Op("attention_call", "opaque", ATTENTION.infer, ATTENTION.value)
ATTENTION_GRADIENT_CALL = Op(
    "attention_gradient_call", "opaque", _infer_gradient, _gradient_value
)  # fmt: skip
CALLS = (ATTENTION_CALL, ATTENTION_GRADIENT_CALL)
