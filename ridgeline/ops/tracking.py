"""Identity ops that only differentiation sees; the compiler never does (they are erased first).

`tag` gives a value a name of its own, so that two equal expressions have separate gradients.
`variable` does the same and ends differentiation: it is what a leaf tensor reads as after its
value was replaced by a computed one. `custom` ties values to a gradient rule written by a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.scalars import Array

_numbers = count()


@dataclass(frozen=True, slots=True)
class TagAttrs(Attrs):
    """A number that keeps this node apart from all others."""

    number: int


class Rule(Protocol):
    """A gradient rule for some outputs of some inputs, as nodes; `reads` are those it keeps."""

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]: ...

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]: ...

    def reads(self) -> Sequence[Node]: ...


@dataclass(frozen=True, slots=True)
class CustomAttrs(Attrs):
    """How many of the inputs are the values passed through, and the rule for the others."""

    outputs: int
    rule: Any  # a Rule; compared by identity


def tag(a: Node) -> Node:
    """The same value under a name of its own; derivatives pass."""
    return node(TAG, (a,), TagAttrs(next(_numbers)))


def variable(a: Node) -> Node:
    """The same value as a new independent variable."""
    return node(VARIABLE, (a,), TagAttrs(next(_numbers)))


def custom(outputs: Sequence[Node], inputs: Sequence[Node], rule: Rule) -> Node:
    """`outputs` as they are, with derivatives by `inputs` that `rule` gives."""
    return node(CUSTOM, (*outputs, *inputs), CustomAttrs(len(outputs), rule))


def _same_type(types: Sequence[TensorType], attrs: TagAttrs) -> tuple[TensorType, ...]:
    return (types[0],)


def _same_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (inputs[0],)


def _pass(current: Node, derivatives: Sequence[Node | None]) -> Sequence[Node | None]:
    return derivatives


def _end(current: Node, derivatives: Sequence[Node | None]) -> Sequence[Node | None]:
    return [None]


def _custom_vjp(current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
    by_inputs: Sequence[Node | None] = current.attrs.rule.vjp(current, cotangents)
    return [*[None] * current.attrs.outputs, *by_inputs]


def _custom_jvp(current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
    results: Sequence[Node | None] = current.attrs.rule.jvp(
        current, tangents[current.attrs.outputs :]
    )
    return results


TAG = Op("tag", "movement", _same_type, _same_value, _pass, _pass)
VARIABLE = Op("variable", "movement", _same_type, _same_value, _end, _end)
CUSTOM = Op(
    "custom",
    "movement",
    lambda types, attrs: tuple(types[: attrs.outputs]),
    lambda current, inputs: tuple(inputs[: current.attrs.outputs]),
    _custom_vjp,
    _custom_jvp,
)
ERASED = frozenset((TAG, VARIABLE, CUSTOM))
