"""Mixture-of-experts dispatch over tensors; see `ops/experts.py`."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.graph.node import Node
from ridgeline.graph.origins import here, stamp
from ridgeline.ops import experts
from ridgeline.record.cells import GRAPH, PLAIN
from ridgeline.record.values import read, result_mode
from ridgeline.tensors.tensor import Tensor, wrap


def expert_counts(chosen: Tensor, count: int) -> Tensor:
    """How many choices each of some experts was given."""
    return _applied(lambda a: experts.expert_counts(a, count), chosen)


def to_experts(x: Tensor, chosen: Tensor, counts: Tensor) -> Tensor:
    """The choices of tokens, [tokens, choices, width], laid by expert."""
    return _applied(experts.to_experts, x, chosen, counts)


def from_experts(rows: Tensor, chosen: Tensor, counts: Tensor) -> Tensor:
    """Rows that lie by expert, back where their tokens are."""
    return _applied(experts.from_experts, rows, chosen, counts)


def grouped_product(rows: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Rows times the transposed weights, [experts, out, in], of their experts."""
    return _applied(experts.grouped_product, rows, weights, counts)


def _applied(build: Callable[..., Node], *operands: Tensor) -> Tensor:
    mode = result_mode(max(each._resolved()[1].mode for each in operands))
    made = build(*map(read, operands))
    stamp(made, here(3))
    if mode == GRAPH and not made.types[0].dtype.is_differentiable:
        mode = PLAIN
    return wrap(made, mode)
