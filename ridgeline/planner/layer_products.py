"""The products with weights of one layer on one rank, as tensor and expert ranks share them out."""

from __future__ import annotations

from typing import NamedTuple

from ridgeline.planner.layouts import ParallelLayout
from ridgeline.planner.shapes import ModelShape


class RankProduct(NamedTuple):
    """[rows, terms] x [terms, columns], so many times; several experts' are one kernel."""

    rows: int
    columns: int
    terms: int
    times: int = 1


def layer_products(
    shape: ModelShape, layout: ParallelLayout, rows: int, dense: bool
) -> list[RankProduct]:
    """Of a layer that a rank sees `rows` tokens of; `dense` is one that has no experts."""
    split = layout.tensor
    found = [RankProduct(rows, columns, terms) for columns, terms in shape.projections(split)]
    if dense or shape.experts == 1:
        inner = shape.dense_inner if dense else shape.inner
        return found + _feed_forward(shape, rows, inner // split)
    if layout.expert > 1:
        # Where experts are whole, tensor ranks bring each a part of the sequence to them.
        local, apart = max(1, shape.experts // layout.expert), layout.expert_split
        each = _of_each(rows * apart // split * shape.chosen, local)
        found += _feed_forward(shape, each, shape.inner // apart, local)
    else:
        each = _of_each(rows * shape.chosen, shape.experts)
        found += _feed_forward(shape, each, shape.inner // split, shape.experts)
    if shape.shared_inner:
        found += _feed_forward(shape, rows, shape.shared_inner // split)
    return [*found, RankProduct(rows // split, shape.experts, shape.hidden)]


def _of_each(tokens: int, experts: int) -> int:
    return max(1, tokens // experts)


def _feed_forward(shape: ModelShape, rows: int, inner: int, count: int = 1) -> list[RankProduct]:
    ups = 2 if shape.gated else 1
    rows, inner = max(1, rows), max(1, inner)
    return [
        RankProduct(rows, ups * inner, shape.hidden, count),
        RankProduct(rows, shape.hidden, inner, count),
    ]
