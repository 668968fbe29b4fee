"""A contraction plus a vector along its last axis, rounded once, as libraries compute it.

No program is written in this op: it is a contraction, a sum and a conversion. Where a device's
library computes the three in one call, a pass puts this op in their place
(`graph/passes/libraries/bias_epilogue.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ridgeline import scalars
from ridgeline.graph.node import Node, Op, TensorType, node
from ridgeline.ops.contract import CONTRACT, ContractAttrs, summed
from ridgeline.scalars import Array


def biased(left: Node, right: Node, bias: Node, attrs: ContractAttrs) -> Node:
    """The contraction of two operands and a bias, all of one element type."""
    return node(BIASED, (left, right, bias), attrs)


def _infer(types: Sequence[TensorType], attrs: ContractAttrs) -> tuple[TensorType, ...]:
    left, right, bias = types
    (made,) = CONTRACT.infer((left, right), attrs)
    assert bias == TensorType(made.shape[-1:], made.dtype, made.device), "a bias for the last axis"
    return (made,)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    left, right, bias = (array.astype(np.float32) for array in inputs)
    return (scalars.cast(summed(current.attrs, (left, right)) + bias, current.dtype),)


BIASED = Op("biased", "opaque", _infer, _value)
PRODUCTS = (CONTRACT, BIASED)
