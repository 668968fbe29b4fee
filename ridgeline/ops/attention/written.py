"""Attention and its gradient, decomposed into ops that kernels implement.

The gradient computes the weights again, from the scores and `lse`, with keys along rows: kᵀ's
matrices are other nodes than those of the forward pass, so that none of them is kept for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline import dtypes
from ridgeline.dtypes import DType
from ridgeline.graph.node import Node
from ridgeline.graph.sizes import Size
from ridgeline.ops.contract import ContractAttrs, axis, contract
from ridgeline.ops.elementwise import (
    cast,
    full_like,
    iota,
    select,
    stop_gradient,
)  # fmt: skip
from ridgeline.ops.math import exp, log, reciprocal
from ridgeline.ops.movement import broadcast, broadcast_to, permute, reshape
from ridgeline.ops.reduce import expand_back, reduce, sum_

_STEPS = {dtypes.float32: 23, dtypes.float64: 52}  # bits behind the point


def is_masked(current: Node) -> bool:
    """True where the fourth input of either op is a mask."""
    return len(current.inputs) in (4, 7)


def attention(current: Node, inputs: Sequence[Node]) -> tuple[Node, Node]:
    """The weighted values and `lse`."""
    form = _Form(current, inputs)
    scores = form.scores("ts")
    columns = (len(scores.shape) - 1,)
    top = stop_gradient(reduce(scores, "max", columns))
    if form.mask is not None:
        top = _where(top, -math.inf, full_like(top, 0), top)
    grown = exp(scores - expand_back(top, scores.shape, columns))
    total = sum_(grown, columns)
    lse = top + log(total)
    if form.mask is not None:  # a row that keeps nothing
        lse = _where(total, 0, full_like(total, math.inf), lse)
        total = _where(total, 0, full_like(total, 1), total)
    out = form.product("ts,se->te", _rounded(grown, form.own), form.v)
    out = out / expand_back(total, out.shape, columns)  # once a row, not once a weight
    return cast(reshape(out, current.types[0].shape), form.own), reshape(
        lse, current.types[1].shape
    )


def gradient(current: Node, inputs: Sequence[Node]) -> tuple[Node, Node, Node]:
    """The gradients by q, k and v."""
    form = _Form(current, inputs)
    lse, delta, ct = inputs[-3:]
    weights, change = form.changes(lse, delta, ct)
    change = _rounded(change * current.attrs.scale, form.own)
    by_q = form.product("st,se->te", change, form.k)
    by_k = form.product("st,te->se", change, form.q)
    by_v = form.product("st,te->se", _rounded(weights, form.own), form.grouped(ct))
    by_q = reshape(by_q, current.types[0].shape)
    made = [cast(part, form.own) for part in (by_q, by_k, by_v)]
    return made[0], made[1], made[2]


def mask_gradient(current: Node, lse: Node, delta: Node, ct: Node) -> Node:
    """The gradient by a floating mask of an attention."""
    form = _Form(current, current.inputs)
    change = form.swapped(form.changes(lse, delta, ct)[1])
    mask, rows = current.inputs[3], current.types[1].shape
    change = reshape(change, (*rows, change.shape[-1]))
    repeated = [a for a, (m, s) in enumerate(zip(mask.shape, change.shape)) if m == 1 and s != 1]
    found = reshape(sum_(change, repeated), mask.shape) if repeated else change
    return cast(found, mask.dtype)


def lost_factor(current: Node, lse: Node) -> Node:
    """What exp(score - lse) must be multiplied by, for each row, to be its weights: mostly 1.

    Where the largest number of a floating mask in a row is so far below 0 that sums with it leave
    no more than itself, scores and the logarithm of their number are lost in `lse`, which is it.
    """
    mask, rows, keys = cast(current.inputs[3], lse.dtype), lse.shape, current.inputs[1].shape[-2]
    last = len(mask.shape) - 1
    top = reduce(mask, "max", (last,))
    kept = mask.eq(expand_back(top, mask.shape, (last,)))
    number = sum_(cast(kept, mask.dtype), (last,))
    if mask.shape[last] == 1:
        number = full_like(number, keys)
    share = broadcast_to(reciprocal(number), rows)
    far = lse < -(2.0 ** (_STEPS[mask.dtype] + 6))
    lost = far & lse.eq(broadcast_to(top, rows))
    return stop_gradient(select(lost, share, full_like(lse, 1)))


class _Form:
    """The operands of either op: widened, with queries by the head of keys that they share."""

    def __init__(self, current: Node, inputs: Sequence[Node]) -> None:
        self.attrs, self.own = current.attrs, inputs[0].dtype
        self.wide = dtypes.float32 if self.own.itemsize < 4 else self.own
        self.shared = inputs[1].shape[-3]
        self.several = inputs[0].shape[-3] != self.shared
        self.q = self.grouped(inputs[0])
        self.k, self.v = cast(inputs[1], self.wide), cast(inputs[2], self.wide)
        self.mask = inputs[3] if is_masked(current) else None
        if self.mask is not None and self.mask.dtype is not dtypes.bool_:
            self.mask = cast(self.mask, self.wide)

    def grouped(self, a: Node, tail: int = 2) -> Node:
        """A value widened, its axis of heads cut in two where several share one of keys."""
        return cast(reshape(a, self._cut(a.shape, tail)), self.wide)

    def _cut(self, shape: tuple[Size, ...], tail: int) -> tuple[Size, ...]:
        if not self.several:
            return shape
        at = len(shape) - tail - 1
        both = (1, 1) if shape[at] == 1 else (self.shared, int(shape[at]) // int(self.shared))
        return (*shape[:at], *both, *shape[at + 1 :])

    def scores(self, order: str) -> Node:
        """The scores of all pairs, -inf where one is hidden; `order` is "ts" or "st"."""
        if order == "ts":
            found = self.product("te,se->ts", self.q, self.k)
        else:
            found = self.product("se,te->st", self.k, self.q)
        scale: float = self.attrs.scale
        found = found * scale
        hidden = full_like(found, -math.inf)
        if self.attrs.causal:
            last = len(found.shape) - 1
            row, column = (
                iota(found.shape, last - 1 + order.index(name), dtypes.int64, found.type.device)
                for name in "ts"
            )
            return select(column <= row, found, hidden)
        if self.mask is None:
            return found
        mask = reshape(self.mask, self._cut(self.mask.shape, 2))
        mask = broadcast_to(mask if order == "ts" else self.swapped(mask), found.shape)
        if mask.dtype is dtypes.bool_:
            return select(mask, found, hidden)
        return found + mask

    def changes(self, lse: Node, delta: Node, ct: Node) -> tuple[Node, Node]:
        """The weights, and the gradient by scores after their factor; keys along rows."""
        scores = self.scores("st")
        lse, delta = (self._along_rows(part, scores.shape) for part in (lse, delta))
        weights = exp(scores - lse)
        by_weight = self.product("se,te->st", self.v, self.grouped(ct))
        return weights, weights * (by_weight - delta)

    def _along_rows(self, a: Node, shape: tuple[Size, ...]) -> Node:
        """A number for each query, the same for all keys."""
        rank = len(shape)
        return broadcast(self.grouped(a, 1), shape, (*range(rank - 2), rank - 1))

    def swapped(self, a: Node) -> Node:
        """The last two axes exchanged."""
        rank = len(a.shape)
        return permute(a, (*range(rank - 2), rank - 1, rank - 2))

    def product(self, spelled: str, left: Node, right: Node) -> Node:
        """A contraction, spelled by the last two axes; one of keys has no axis of queries."""
        operands, result = spelled.split("->")
        sides = operands.split(",")
        batch = len(self.k.shape) - 2
        extra = "g" if self.several else ""
        names = [extra + side if "t" in side else side for side in sides]
        given = extra + result if "t" in result else result
        letters = list(dict.fromkeys(given + "".join(names)))
        number = {letter: batch + index for index, letter in enumerate(letters)}
        size: dict[int, Size] = dict(enumerate(left.shape[:batch]))
        maps = []
        for name, operand in zip(names, (left, right)):
            axes = (*range(batch), *(number[letter] for letter in name))
            size |= dict(zip(axes, operand.shape))
            maps.append(tuple(map(axis, axes)))
        extents = tuple(size[n] for n in range(len(size)))
        output = (*range(batch), *(number[letter] for letter in given))
        return contract(left, right, ContractAttrs(extents, output, maps[0], maps[1]))


def _rounded(a: Node, own: DType) -> Node:
    """A value rounded to the operands' type, as a factor of a product."""
    return cast(cast(a, own), a.dtype)


def _where(a: Node, number: float, yes: Node, no: Node) -> Node:
    """`yes` where a value is a number, `no` elsewhere."""
    return select(a.eq(number), yes, no)
