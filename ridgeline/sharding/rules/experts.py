"""Mixtures of experts: each rank along ep computes the rows of its own experts alone.

A rank lays its tokens' rows by expert, sends each to the rank of the expert, and gets back what
comes of it. How many rows come is known only when it runs, so they lie in memory for as many as
could come: those that came first, zeros behind them. Between the two, rows are *dispatched*: they
can be computed with elementwise and multiplied by experts' weights, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node
from ridgeline.ops import experts as ops
from ridgeline.ops.collectives import ALL_TO_ALL, ALL_TO_ALL_ROWS
from ridgeline.ops.movement import concat, reshape, slice_
from ridgeline.ops.placed import Dispatched, Partial, Placement, Shard
from ridgeline.ops.reduce import sum_
from ridgeline.sharding.mesh_shapes import REPLICATE, Spec, local_size, split
from ridgeline.sharding.share import RankShare


def counts_rule(share: RankShare, node: Node) -> None:
    """A rank counts the rows that it has for each expert, and is told what comes for its own."""
    (chosen,), experts = node.inputs, node.attrs.experts
    tokens = _tokens(share, chosen)
    share.asked = node
    table = ops.expert_counts(share.at(chosen, tokens), experts)
    lengths = _experts_of_ranks(share, experts)
    if lengths:
        came = (lengths[_place_along_ep(share)],) * len(lengths)
        table = share.collective(node, ALL_TO_ALL, table, "ep", counts=lengths, receives=came)
    share.set(node, table, _dispatched(tokens, int(table.shape[0]), tokens))


def _tokens(share: RankShare, chosen: Node) -> Spec:
    """Tokens are shared out as they come, and along ep in any case."""
    found: list[Placement] = []
    for name, placement in zip(share.shape.names, share.spec(chosen)):
        shared = isinstance(placement, Shard) and placement.dim == 0
        if name != "tp" and (shared or name == "ep"):
            found.append(placement if shared else Shard(0))
        else:
            found.append(REPLICATE)
    return tuple(found)


def _dispatched(tokens: Spec, rows: int, beside: Spec) -> Spec:
    """Placements of rows on their way, and along axes that tokens are not shared out along."""
    return tuple(
        Dispatched(rows, t) if isinstance(t, Shard) else other for t, other in zip(tokens, beside)
    )


def _tokens_of(spec: Spec) -> Spec:
    """How the tokens lie whose rows are dispatched."""
    return tuple(p.tokens if isinstance(p, Dispatched) else REPLICATE for p in spec)


def _experts_of_ranks(share: RankShare, experts: int) -> tuple[int, ...]:
    """How many experts each rank along ep has; nothing where there is no such axis."""
    if "ep" not in share.shape.names:
        return ()
    ranks = share.shape.size(share.shape.names.index("ep"))
    return tuple(split(experts, ranks, rank)[1] for rank in range(ranks))


def _place_along_ep(share: RankShare) -> int:
    return share.place[share.shape.names.index("ep")]


def _most(share: RankShare, chosen: Node, tokens: Spec) -> int:
    """The rows that all ranks along ep have together: they may all come to one."""
    count, choices = share.sizes(chosen)
    places = [share.place]
    if "ep" in share.shape.names:
        axis = share.shape.names.index("ep")
        others = range(share.shape.size(axis))
        places = [(*share.place[:axis], at, *share.place[axis + 1 :]) for at in others]
    return choices * sum(local_size(share.shape, tokens, 0, count, place) for place in places)


def _exchanged(share: RankShare, node: Node, own: Node, rows: Node, most: int, back: bool) -> Node:
    """Rows to the ranks of their experts, or from there back; `own` counts this rank's rows."""
    counts = node.inputs[2]
    table, lengths = (
        share.at(counts, share.spec(counts)),
        _experts_of_ranks(share, int(own.shape[0])),
    )
    if not lengths:
        return rows
    came = (lengths[_place_along_ep(share)],) * len(lengths)
    sends, receives = _per_rank(own, lengths), _per_rank(table, came)
    operands = (receives, sends, rows) if back else (sends, receives, rows)
    return share.collective(node, ALL_TO_ALL_ROWS, operands, "ep", rows=most)


def _per_rank(counts: Node, lengths: Sequence[int]) -> Node:
    """Sums of as many numbers as belong to each rank."""
    found, at = [], 0
    for length in lengths:
        part = slice_(counts, (at,), (length,), (1,))
        found.append(reshape(sum_(part, (0,)), (1,)))
        at += length
    return concat(found, 0)


def to_rule(share: RankShare, node: Node) -> None:
    """Rows are laid by expert and sent to the ranks of these."""
    x, chosen, counts = node.inputs
    tokens = _tokens_of(share.spec(counts))
    share.asked = node
    wanted = tuple(
        t if isinstance(t, Shard) else p if p == Partial() else REPLICATE
        for t, p in zip(tokens, share.spec(x))
    )
    local = share.at(chosen, tokens)
    own = ops.expert_counts(local, share.sizes(counts)[0])
    rows, most = ops.to_experts(share.at(x, wanted), local, own), _most(share, chosen, tokens)
    made = _exchanged(share, node, own, rows, most, False)
    share.set(node, made, _dispatched(tokens, most, wanted))


def from_rule(share: RankShare, node: Node) -> None:
    """Rows come back to the ranks of their tokens; sums over parts of experts may stay apart."""
    rows, chosen, counts = node.inputs
    tokens = _tokens_of(share.spec(counts))
    share.asked = node
    spec = tuple(REPLICATE if isinstance(p, Shard) else p for p in share.spec(rows))
    local = share.at(chosen, tokens)
    own = ops.expert_counts(local, share.sizes(counts)[0])
    most = int(local.shape[0]) * int(local.shape[1])
    came = _exchanged(share, node, own, share.at(rows, spec), most, True)
    result = tuple(t if isinstance(t, Shard) else p for t, p in zip(tokens, spec))
    share.set(node, ops.from_experts(came, local, own), result)


def product_rule(share: RankShare, node: Node) -> None:
    """Experts along ep; along tp columns of the result, or sums over parts of the rows."""
    rows, weights, counts = node.inputs
    row_wants: list[Placement] = []
    weight_wants: list[Placement] = []
    result: list[Placement] = []
    for axis, name in enumerate(share.shape.names):
        of_rows, of_weights = share.spec(rows)[axis], share.spec(weights)[axis]
        if isinstance(of_rows, Dispatched):
            row_wants.append(of_rows)
            weight_wants.append(Shard(0) if name == "ep" else REPLICATE)
            result.append(of_rows)
            continue
        inner = isinstance(of_rows, Shard) or (
            isinstance(of_weights, Shard) and of_weights.dim == 2
        )
        if isinstance(of_weights, Shard) and of_weights.dim == 1 and not of_weights.stored:
            row_wants.append(REPLICATE)
            weight_wants.append(of_weights)
            result.append(Shard(1))
        elif inner and not (isinstance(of_weights, Shard) and of_weights.stored):
            row_wants.append(Shard(1))
            weight_wants.append(Shard(2))
            result.append(Partial())
        else:
            kept = of_rows if of_rows == Partial() else REPLICATE
            row_wants.append(kept)
            weight_wants.append(REPLICATE)
            result.append(kept)
    share.asked = node
    made = ops.grouped_product(
        share.at(rows, tuple(row_wants)),
        share.at(weights, tuple(weight_wants)),
        share.at(counts, share.spec(counts)),
    )
    share.set(node, made, tuple(result))


def outer_rule(share: RankShare, node: Node) -> None:
    """Gradients of weights: of a rank's own experts along ep, sums over its rows along data."""
    rows, columns, counts = node.inputs
    wants: tuple[list[Placement], list[Placement]] = [], []
    result: list[Placement] = []
    experts = node.attrs.experts
    for axis, name in enumerate(share.shape.names):
        have = [share.spec(source)[axis] for source in (rows, columns)]
        if isinstance(have[0], Dispatched):
            made: Placement = Shard(0) if name == "ep" else Partial()
        elif isinstance(have[1], Shard):
            have[0], made = REPLICATE, Shard(1)
        elif isinstance(have[0], Shard):
            have[1], made = REPLICATE, Shard(2)
        elif have.count(Partial()) == 1:
            made = Partial()
        else:
            have, made = [REPLICATE, REPLICATE], REPLICATE
        for wanted, placement in zip(wants, have):
            wanted.append(placement)
        result.append(made)
        if name == "ep":
            experts = split(node.attrs.experts, share.shape.size(axis), share.place[axis])[1]
    share.asked = node
    local = [share.at(a, tuple(want)) for a, want in zip((rows, columns), wants)]
    table = share.at(counts, share.spec(counts))
    share.set(node, ops.grouped_outer(local[0], local[1], table, experts), tuple(result))
