"""Identity ops that only differentiation sees; the compiler never does (they are erased first).

`tag` gives a value a name of its own, so that two equal expressions have separate gradients.
`variable` does the same and ends differentiation: it is what a leaf tensor reads as after its
value was replaced by a computed one. `replaced` keeps a way to what a value was written over, which
gets zeros. `custom` ties values to a gradient rule written by a user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from ridgeline.dtypes import DType
from ridgeline.graph.node import (
    PROJ,
    Attrs,
    Node,
    Op,
    TensorType,
    doubles,
    inside,
    leaf,
    node,
    proj,
)
from ridgeline.ops.batching import leading, outputs_of
from ridgeline.ops.elementwise import cast, full_like
from ridgeline.ops.movement import spread, spread_all
from ridgeline.scalars import Array

if TYPE_CHECKING:
    from ridgeline.graph.vectorize import Batching

_numbers = count()


@dataclass(frozen=True, slots=True)
class TagAttrs(Attrs):
    """A number that keeps this node apart from all others."""

    number: int


@dataclass(frozen=True, slots=True)
class NarrowAttrs(Attrs):
    """The type that a gradient is rounded to."""

    dtype: DType


class Rule(Protocol):
    """A gradient rule for some outputs of some inputs, as nodes; `reads` are those it keeps.

    One that has an attribute `settled` gives the same in any pass, and does nothing else.
    """

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]: ...

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]: ...

    def reads(self, current: Node) -> Sequence[Node]: ...


@dataclass(frozen=True, slots=True)
class CustomAttrs(Attrs):
    """How many of the inputs are the values passed through, and the rule for the others."""

    outputs: int
    rule: Any  # a Rule; compared by identity
    kept: int = 0  # of the inputs after these: values that the rule reads, and no ways

    @property
    def first(self) -> int:
        """The place of the first input that has derivatives."""
        return self.outputs + self.kept


def tag(a: Node) -> Node:
    """The same value under a name of its own; derivatives pass."""
    return node(TAG, (a,), TagAttrs(next(_numbers)))


def apart(result: Node, values: Sequence[Any]) -> Node:
    """A node of its own for a result that equals an earlier one, with the same derivatives.

    An operand handed through is tagged. An expression is repeated over a tagged operand, so that
    the gradient by one of two equal tensors does not count the uses of the other.
    """
    for value in values:
        if value is result or (type(value) is list and any(v is result for v in value)):
            return tag(result)
    if result.op is PROJ:
        return proj(apart(result.inputs[0], ()), result.attrs.output)
    if not result.inputs:
        return result
    first, *others = result.inputs
    return node(result.op, (tag(first), *others), result.attrs)


doubles.apart = apart


def tracked(body: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a call that gradients flow through: what it makes is apart from tensors."""

    def run(*values: Any, **named: Any) -> Any:
        try:
            inside.tracked = True
            return body(*values, **named)
        finally:
            inside.tracked = False

    return run


def variable(a: Node, attrs: Any = None) -> Node:
    """The same value as a new independent variable, or as what some attributes say of it."""
    return node(VARIABLE, (a,), TagAttrs(next(_numbers)) if attrs is None else attrs)


def replaced(before: Node, value: Node) -> Node:
    """A value that was written over another: its derivatives, and zeros for what was there."""
    return node(REPLACED, (value, before))


def narrowed(a: Node, dtype: DType) -> Node:
    """The same value, whose gradient is rounded to a narrower type on its way back."""
    return node(NARROWED, (a,), NarrowAttrs(dtype))


def custom(
    outputs: Sequence[Node], inputs: Sequence[Node], rule: Rule, kept: Sequence[Node] = ()
) -> Node:
    """`outputs` as they are, with derivatives by `inputs` that `rule` gives, which reads `kept`."""
    return node(CUSTOM, (*outputs, *kept, *inputs), CustomAttrs(len(outputs), rule, len(kept)))


class _Unchanged:
    """The rule of a value that was put in another's place: derivatives are the other's."""

    settled = True

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Reverse mode."""
        return cotangents

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Forward mode."""
        return tangents

    def reads(self, current: Node) -> Sequence[Node]:
        """Nothing is kept."""
        return ()


_UNCHANGED = _Unchanged()


def overwritten(before: Node, value: Node) -> Node:
    """A value written over another while nobody looked: derivatives pass to what was there."""
    # of several writes, the first found what was computed
    return custom((value,), (written_over(before),), _UNCHANGED)


def must_run(node: Node) -> bool:
    """True for values with a rule that runs in every pass, since it may do anything."""
    return node.op is CUSTOM and not getattr(node.attrs.rule, "settled", False)


def written_over(node: Node) -> Node:
    """What was there before a value was written over it, or the node itself."""
    unchanged = node.op is CUSTOM and node.attrs.rule is _UNCHANGED
    return node.inputs[1] if unchanged else node


def _same_type(types: Sequence[TensorType], attrs: TagAttrs) -> tuple[TensorType, ...]:
    return (types[0],)


def _same_value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    return (inputs[0],)


def _pass(current: Node, derivatives: Sequence[Node | None]) -> Sequence[Node | None]:
    return derivatives


def _narrow(current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
    ct = cotangents[0]
    return [None if ct is None else cast(cast(ct, current.attrs.dtype), ct.dtype)]


def _zeros_below(current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
    ct = cotangents[0]
    return [ct, None if ct is None else full_like(ct, 0)]


def _of_the_value(current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
    return [tangents[0]]


def _end(current: Node, derivatives: Sequence[Node | None]) -> Sequence[Node | None]:
    return [None]


def _custom_vjp(current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
    by_inputs: Sequence[Node | None] = current.attrs.rule.vjp(current, cotangents)
    return [*[None] * current.attrs.first, *by_inputs]


def _custom_jvp(current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
    results: Sequence[Node | None] = current.attrs.rule.jvp(
        current, tangents[current.attrs.first :]
    )
    return results


class BatchedRule:
    """A user's rule for one element, run over a batch: on placeholders, which are then batched."""

    def __init__(self, original: Node, batching: Batching) -> None:
        self.original, self.batching = original, batching

    def vjp(self, current: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Reverse mode."""
        return self._run(self.original.attrs.rule.vjp, self.original.types, cotangents)

    def jvp(self, current: Node, tangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """Forward mode."""
        sources = self.original.inputs[self.original.attrs.first :]
        types = [source.types[0] for source in sources]
        return self._run(self.original.attrs.rule.jvp, types, tangents)

    def reads(self, current: Node) -> Sequence[Node]:
        """What the rule keeps, batched."""
        with self.batching.inside():
            kept = self.original.attrs.rule.reads(self.original)
        return [found for found, _ in self.batching.run(kept)]

    def _run(
        self, rule: Any, types: Sequence[TensorType], given: Sequence[Node | None]
    ) -> list[Node | None]:
        stand_ins = [None if part is None else leaf(t) for part, t in zip(given, types)]
        pairs = {p: part for p, part in zip(stand_ins, given) if p is not None and part is not None}
        with self.batching.inside():
            parts: Sequence[Node | None] = rule(self.original, stand_ins)
        found = iter(self.batching.extended(pairs).run([p for p in parts if p is not None]))
        results: list[Node | None] = []
        for part in parts:
            if part is None:
                results.append(None)
                continue
            made, has_axis = next(found)
            results.append(made if has_axis else spread(made, self.batching.size))
        return results


def _custom_batch(
    current: Node, inputs: Sequence[Node], batched: Sequence[bool], batching: Batching
) -> list[Node]:
    values, attrs = spread_all(inputs, batched, batching), current.attrs
    rule = BatchedRule(current, batching)
    made = custom(values[: attrs.outputs], values[attrs.first :], rule)
    return outputs_of(made)


TAG = Op("tag", "movement", _same_type, _same_value, _pass, _pass, leading)
VARIABLE = Op("variable", "movement", _same_type, _same_value, _end, _end, leading)
CUSTOM = Op(
    "custom",
    "movement",
    lambda types, attrs: tuple(types[: attrs.outputs]),
    lambda current, inputs: tuple(inputs[: current.attrs.outputs]),
    _custom_vjp,
    _custom_jvp,
    _custom_batch,
    mixes_devices=True,
)
NARROWED = Op("narrowed", "movement", _same_type, _same_value, _narrow, _pass, leading)
REPLACED = Op("replaced", "movement", _same_type, _same_value, _zeros_below, _of_the_value, leading)
ERASED = frozenset((TAG, VARIABLE, CUSTOM, NARROWED, REPLACED))
