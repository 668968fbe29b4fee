"""Ring attention: keys and values go from rank to rank, and each meets all queries on its way.

A rank holds its own keys and values and those that are passing. In the backward pass their
gradients travel with them, and are home after a full turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.graph.node import Node
from ridgeline.ops.elementwise import cast
from ridgeline.ops.movement import concat, pad, slice_
from ridgeline.sharding.mesh_shapes import Run
from ridgeline.sharding.rules.attention_blocks import AttentionBlocks, HeldKeys, taken
from ridgeline.sharding.share import RankShare


def ring_rule(
    share: RankShare,
    node: Node,
    axis: int,
    runs: Sequence[tuple[Run, ...]],
    operands: Sequence[Node],
    saved: Sequence[Node],
) -> tuple[Node, ...]:
    """The results of attention, or with `saved` values its gradients, over a rank's part.

    `runs` are those of the sequence that each rank along the axis has.
    """
    turn = _Turn(share, node, axis, runs, operands)
    return turn.backward(saved) if saved else turn.forward()


class _Turn:
    """One turn of keys and values around the ranks along an axis."""

    def __init__(
        self,
        share: RankShare,
        node: Node,
        axis: int,
        runs: Sequence[tuple[Run, ...]],
        operands: Sequence[Node],
    ) -> None:
        self._share, self._node, self._axis, self._runs = share, node, axis, runs
        self._q, self._k, self._v = operands
        self._counts = [sum(count for _, count in each) for each in runs]
        self._own = share.place[axis]
        self._blocks = AttentionBlocks(node.attrs, self._q, runs[self._own])

    def forward(self) -> tuple[Node, ...]:
        """The weighted values and their logarithms."""
        passing = self._message(self._k, self._v)
        for step in range(len(self._runs)):
            self._blocks.see(self._held(passing, step))
            if step < len(self._runs) - 1:
                passing = self._shifted(passing)
        self._share.keep(self._node, passing)  # also where no query sees what came last
        return self._blocks.result(int(self._v.shape[-1]))

    def backward(self, saved: Sequence[Node]) -> tuple[Node, ...]:
        """The gradients by queries, keys and values."""
        self._blocks.remember(*saved)
        passing, total = self._message(self._k, self._v), None
        for step in range(len(self._runs)):
            held = self._held(passing, step)
            if step < len(self._runs) - 1:
                passing = self._shifted(passing)
            added = self._message(*self._blocks.gradients(held))
            total = self._shifted(added if total is None else total + added)
        assert total is not None
        self._share.keep(self._node, passing)
        by_key, by_value = self._parts(total, self._counts[self._own])
        found = [cast(a, self._q.dtype) for a in (by_key, by_value)]
        return self._blocks.by_queries(), *found

    def _shifted(self, message: Node) -> Node:
        return self._share.shifted(self._node, message, self._axis)

    def _held(self, message: Node, step: int) -> HeldKeys:
        """What is at hand after some steps: the part of the rank as many places before."""
        owner = (self._own - step) % len(self._runs)
        return HeldKeys(*self._parts(message, self._counts[owner]), self._runs[owner])

    def _message(self, keys: Node, values: Node) -> Node:
        """Keys beside values, with as many rows on every rank."""
        rank = len(keys.shape)
        joined = concat([keys, values], rank - 1)
        missing = max(self._counts) - int(joined.shape[-2])
        if not missing:
            return joined
        return pad(joined, (0,) * rank, tuple(missing if d == rank - 2 else 0 for d in range(rank)))

    def _parts(self, message: Node, rows: int) -> tuple[Node, Node]:
        whole = taken(message, [(0, rows)])
        return _columns(whole, 0, int(self._k.shape[-1])), _columns(
            whole, int(self._k.shape[-1]), int(self._v.shape[-1])
        )


def _columns(a: Node, start: int, count: int) -> Node:
    rank = len(a.shape)
    starts = (*[0] * (rank - 1), start)
    return slice_(a, starts, (*a.shape[:-1], count), (1,) * rank)
