"""Placements of values on a mesh of ranks, and identity ops that request one.

A value on a mesh has one placement for each axis of the mesh: sharded along a dimension,
replicated, or partial, which is a value that is the sum of what the ranks along the axis hold. The
ops here compute nothing; who shares a graph out over ranks (`sharding/`) reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.ops.movement import spread_all
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching


@dataclass(frozen=True, slots=True)
class Shard:
    """Ranks hold consecutive parts of a dimension, whose lengths differ by one at most.

    A dimension that joins several may be sharded along one of these: then it is `outer` blocks of
    equal length, and ranks hold parts of each block. What is `stored` in shards is brought together
    where it is used for more than arithmetic on its elements: parameters under ZeRO. With `zigzag`
    there are twice as many parts as ranks, and a rank holds one from either end: rank 0 the first
    and the last, so that all have as much to do where later elements look back at earlier ones.
    """

    dim: int
    outer: int = 1
    stored: bool = False
    zigzag: bool = False


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank holds the whole."""


@dataclass(frozen=True, slots=True)
class Partial:
    """The value is what the ranks hold, joined: their sum, or the largest or smallest of it."""

    monoid: str = "sum"


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Rows on their way to experts: which ones a rank has is known only when it runs.

    They lie in memory for `rows` of them, along the first dimension; `tokens` is how the tokens lie
    that they are of.
    """

    rows: int
    tokens: Shard


@dataclass(frozen=True, slots=True)
class OnStage:
    """Of a pipeline, the stage that has a value from here on; a wish along the axis pp alone.

    With it a part of the model begins, counted from its input, forwards or backwards.
    """

    stage: int
    part: int = -1
    backward: bool = False


# the axis of microbatches: a wish for a shard cuts a batch up; a cotangent of which the whole is
# wanted is where a backward pass begins
MICROBATCH = "microbatch"
Placement: TypeAlias = Shard | Replicate | Partial | Dispatched
Wishes: TypeAlias = tuple[
    tuple[str, Placement | OnStage], ...
]  # by the names of axes; others are left open


@dataclass(frozen=True, slots=True)
class PlacedAttrs(Attrs):
    """What is asked of a value, and of its gradient."""

    forward: Wishes
    backward: Wishes
    inserted: bool = False  # by a plan, not by a line of the user's


def placed(value: Node, forward: Wishes, backward: Wishes = (), inserted: bool = True) -> Node:
    """The value, placed as asked along some axes of its mesh."""
    if not forward and not backward:
        return value
    return node(PLACED, (value,), PlacedAttrs(forward, backward, inserted))


def placed_like(value: Node, memory: Node) -> Node:
    """The value, placed as what was in the memory before."""
    return node(PLACED_LIKE, (value, memory))


@dataclass(frozen=True, slots=True)
class StateAttrs(Attrs):
    """Whether the value is a parameter's gradient, or state of the optimizer."""

    gradient: bool


def placed_as_state(value: Node, parameter: Node, gradient: bool = False) -> Node:
    """The value, placed as the mesh's plan wants a parameter's state, or its gradient, to lie."""
    return node(PLACED_AS_STATE, (value, parameter), StateAttrs(gradient))


def _same(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0],)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (inputs[0],)


def _placed_vjp(current: Node, cotangents: Sequence[Node | None]) -> list[Node | None]:
    ct, attrs = cotangents[0], current.attrs
    return [None if ct is None else placed(ct, attrs.backward, attrs.forward, attrs.inserted)]


def _pass_first(current: Node, derivatives: Sequence[Node | None]) -> list[Node | None]:
    return [derivatives[0], *[None] * (len(current.inputs) - 1)]


def _tangent(current: Node, tangents: Sequence[Node | None]) -> list[Node | None]:
    return [tangents[0]]


def _batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    """A batch is placed by who uses it."""
    return [*spread_all(inputs[:1], batched[:1], batching)]


PLACED = Op("placed", "movement", _same, _value, _placed_vjp, _tangent, _batch)
PLACED_LIKE = Op("placed_like", "movement", _same, _value, _pass_first, _tangent, _batch)
PLACED_AS_STATE = Op("placed_as_state", "movement", _same, _value, _pass_first, _tangent, _batch)
PLACED_OPS = (PLACED, PLACED_LIKE, PLACED_AS_STATE)
