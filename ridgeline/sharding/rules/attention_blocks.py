"""Attention of some runs of queries over keys and values that come in blocks.

Softmax is online: results of blocks are joined by the logarithms of their sums. Gradients of blocks
add up, given the logarithms of the whole. Of a causal op, keys before a run of queries are a block
without a mask, those beside it a causal one, and later ones are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ridgeline.graph.node import Node
from ridgeline.ops.attention import AttentionAttrs, attention, attention_gradient
from ridgeline.ops.attention.op import wide
from ridgeline.ops.elementwise import apply, cast, constant, full_like
from ridgeline.ops.math import exp, log
from ridgeline.ops.movement import broadcast_scalar, concat, pad, slice_
from ridgeline.ops.reduce import expand_back
from ridgeline.sharding.mesh_shapes import Run


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """Keys and values that are at hand, and which runs of the sequence they are."""

    keys: Node
    values: Node
    runs: tuple[Run, ...]

    def visible(self, start: int, count: int) -> Iterator[tuple[bool, list[Run]]]:
        """What a run of queries sees: columns that are all earlier, and those beside it."""
        earlier, beside, at = list[Run](), list[Run](), 0
        for first, length in self.runs:
            seen = min(length, max(start - first, 0))
            if seen:
                earlier.append((at, seen))
            low, high = max(first, start), min(first + length, start + count)
            if low < high:
                assert low == start, "queries and keys are cut at the same places"
                beside.append((at + low - first, high - low))
            at += length
        if earlier:
            yield False, earlier
        if beside:
            yield True, beside


class AttentionBlocks:
    """Runs of queries, and what was computed for each so far."""

    def __init__(self, attrs: AttentionAttrs, q: Node, runs: Sequence[Run]) -> None:
        """`runs` are the places in the sequence of the queries' rows."""
        self._attrs, self._q, self._wide = attrs, q, wide(q.dtype)
        rows, at = int(q.shape[-2]), 0
        self._places: list[tuple[int, Run]] = []  # the first row of each run, and the run
        for run in runs if attrs.causal else [(0, rows)]:
            if 0 not in q.shape and run[1]:
                self._places.append((at, run))
            at += run[1]
        self._found: list[tuple[Node, Node] | None] = [None] * len(self._places)
        self._saved: list[list[Node]] = []
        self._changes: list[Node | None] = [None] * len(self._places)

    def _blocks(self, held: HeldKeys) -> Iterator[tuple[int, bool, list[Run]]]:
        """The runs of queries that see something, how, and which columns."""
        for number, (_, (start, count)) in enumerate(self._places):
            if self._attrs.causal:
                for beside, columns in held.visible(start, count):
                    yield number, beside, columns
            elif int(held.keys.shape[-2]):
                yield number, False, [(0, int(held.keys.shape[-2]))]

    def see(self, held: HeldKeys) -> None:
        """Take some keys and values into the results."""
        for number, causal, columns in self._blocks(held):
            k, v = (taken(a, columns) for a in (held.keys, held.values))
            out, lse = attention(self._rows(self._q, number), k, v, None, self._attrs.scale, causal)
            made = cast(out, self._wide), lse
            before = self._found[number]
            self._found[number] = made if before is None else _joined(before, made)

    def result(self, width: int) -> tuple[Node, Node]:
        """The weighted values, `width` wide, and the logarithms, of all rows."""
        found = [each for each in self._found if each is not None]
        shape = self._q.shape[:-1]
        if not found:  # nothing at all
            nothing = constant(0, self._wide, self._q.type.device)
            out = broadcast_scalar(nothing, (*shape, width))
            return cast(out, self._q.dtype), broadcast_scalar(nothing, shape)
        rows = len(self._q.shape) - 2
        out, lse = (concat([each[part] for each in found], rows) for part in (0, 1))
        return cast(out, self._q.dtype), lse

    def remember(self, lse: Node, delta: Node, ct: Node) -> None:
        """What the gradient needs of each row."""
        self._saved = [
            [self._rows(a, n, tail) for a, tail in ((lse, 1), (delta, 1), (ct, 2))]
            for n in range(len(self._places))
        ]

    def gradients(self, held: HeldKeys) -> tuple[Node, Node]:
        """What these queries add to the gradients of keys and values, in the wide type."""
        sums: list[Node] = [full_like(cast(a, self._wide), 0) for a in (held.keys, held.values)]
        for number, causal, columns in self._blocks(held):
            operands = (
                self._rows(self._q, number),
                taken(held.keys, columns),
                taken(held.values, columns),
            )
            attrs = replace(self._attrs, causal=causal)
            lse, delta, ct = self._saved[number]
            dq, dk, dv = attention_gradient(operands, lse, delta, ct, attrs)
            change, before = cast(dq, self._wide), self._changes[number]
            self._changes[number] = change if before is None else before + change
            length = int(held.keys.shape[-2])
            for place, part in enumerate((dk, dv)):
                sums[place] = sums[place] + _among(cast(part, self._wide), columns, length)
        return sums[0], sums[1]

    def by_queries(self) -> Node:
        """The gradient by all queries."""
        found = [each for each in self._changes if each is not None]
        if not found:
            return self._q
        return cast(concat(found, len(self._q.shape) - 2), self._q.dtype)

    def _rows(self, a: Node, number: int, tail: int = 2) -> Node:
        at, (_, count) = self._places[number]
        return taken(a, [(at, count)], tail)


def taken(a: Node, runs: Sequence[Run], tail: int = 2) -> Node:
    """Some runs of rows of [..., rows, width], or of [..., rows] with a tail of 1."""
    dim, rank = len(a.shape) - tail, len(a.shape)
    if list(runs) == [(0, a.shape[dim])]:
        return a
    parts = []
    for start, count in runs:
        starts = tuple(start if d == dim else 0 for d in range(rank))
        sizes = tuple(count if d == dim else size for d, size in enumerate(a.shape))
        parts.append(slice_(a, starts, sizes, (1,) * rank))
    return concat(parts, dim) if len(parts) > 1 else parts[0]


def _among(a: Node, runs: Sequence[Run], length: int) -> Node:
    """Rows at their places among zeros."""
    dim, rank, at = len(a.shape) - 2, len(a.shape), 0
    total: Node | None = None
    for start, count in runs:
        part = taken(a, [(at, count)])
        at += count
        low = tuple(start if d == dim else 0 for d in range(rank))
        high = tuple(length - start - count if d == dim else 0 for d in range(rank))
        placed = pad(part, low, high)
        total = placed if total is None else total + placed
    assert total is not None
    return total


def _joined(a: tuple[Node, Node], b: tuple[Node, Node]) -> tuple[Node, Node]:
    """Results over two sets of keys as that over both."""
    top = apply("max", a[1], b[1])
    weights = [exp(lse - top) for lse in (a[1], b[1])]
    total = weights[0] + weights[1]
    columns = (len(a[0].shape) - 1,)
    shares = [expand_back(weight / total, a[0].shape, columns) for weight in weights]
    return a[0] * shares[0] + b[0] * shares[1], top + log(total)
