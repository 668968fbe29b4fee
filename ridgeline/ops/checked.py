"""An identity op that checks its elements: within limits, not zero, valid class labels.

Values that the host has already are checked at once, on the user's own line. Others are checked
when the work runs: by the interpreter here, by a program through the flag of `index_checks`, which
is known before any state is overwritten; kernels see the value alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from ridgeline.errors import BadValueError, DivisionByZeroError, IndexRangeError
from ridgeline.graph.node import Attrs, Node, Op, TensorType, node
from ridgeline.graph.origins import describe
from ridgeline.ops.batching import leading
from ridgeline.ops.elementwise import CAST, CONSTANT, full_like
from ridgeline.ops.gather import asked, on_host
from ridgeline.ops.movement import BROADCAST, PERMUTE, RESHAPE
from ridgeline.scalars import Array


@dataclass(frozen=True, slots=True)
class NotZero(Attrs):
    """Integers that something is divided by."""

    what: str  # the function that asks

    def wrong(self, values: Node) -> Node:
        """Where an element breaks the rule."""
        return values.eq(0)

    def check(self, values: Array, recorded: str = "") -> None:
        """Raise if an element breaks the rule; the line is told where it is not the caller's."""
        if not values.all():
            raise DivisionByZeroError(f"{self.what}: an integer divided by zero", note=recorded)


@dataclass(frozen=True, slots=True)
class Label(Attrs):
    """Integers that name one of some classes, or are `besides`."""

    what: str
    classes: int
    besides: int | None

    def wrong(self, values: Node) -> Node:
        """Where an element breaks the rule."""
        low = values < 0
        outside = low | (full_like(values, self.classes) <= values)
        if self.besides is None:
            return outside
        return outside & values.ne(self.besides)

    def check(self, values: Array, recorded: str = "") -> None:
        """Raise if an element breaks the rule; the line is told where it is not the caller's."""
        if not values.size or (values.min() >= 0 and values.max() < self.classes):
            return
        outside = (values < 0) | (values >= self.classes)
        wrong = values[outside if self.besides is None else outside & (values != self.besides)]
        if wrong.size:
            raise IndexRangeError(
                f"{self.what}: label {int(wrong.flat[0])} is not one of the {self.classes} classes",
                note=recorded,
                help=f"labels run from 0 to {self.classes - 1}"
                + ("" if self.besides is None else f"; {self.besides} stands for none"),
            )


@dataclass(frozen=True, slots=True)
class Within(Attrs):
    """Real numbers between two limits, both included; NaN is not."""

    what: str
    low: float
    high: float

    def wrong(self, values: Node) -> Node:
        """Where an element breaks the rule."""
        right = full_like(values, self.low) <= values
        if self.high < math.inf:
            right = right & (values <= self.high)
        return ~right

    def check(self, values: Array, recorded: str = "") -> None:
        """Raise if an element breaks the rule; the line is told where it is not the caller's."""
        wrong = values[~((values >= self.low) & (values <= self.high))]
        if wrong.size:
            limits = f"in {self.low:g}…{self.high:g}" if self.high < math.inf else f"≥ {self.low:g}"
            raise BadValueError(
                f"{self.what}: {float(wrong.flat[0]):g} is not {limits}", note=recorded
            )


Rule: TypeAlias = NotZero | Label | Within


def labels(values: Node, classes: int, what: str, besides: int | None = None) -> Node:
    """Integers that must name classes, or be `besides`."""
    return _checked(values, Label(what, classes, besides))


def divisor(values: Node, what: str) -> Node:
    """Integers that must not be zero."""
    return _checked(values, NotZero(what))


def within(values: Node, low: float, high: float, what: str) -> Node:
    """Real numbers that must lie in low … high."""
    return _checked(values, Within(what, low, high))


def _checked(values: Node, rule: Rule) -> Node:
    source = values
    while source.op in (BROADCAST, PERMUTE, RESHAPE, CAST):
        source = source.inputs[0]
    if source.op is CONSTANT:
        rule.check(np.asarray(source.attrs.value))
        return values
    if on_host(values):
        asked(values, partial(_keeps, rule))
        return values
    return node(CHECKED, (values,), rule)


def _keeps(rule: Rule, values: Array, made: Node) -> None:
    rule.check(values)


def _infer(types: Sequence[TensorType], rule: Rule) -> tuple[TensorType, ...]:
    return (types[0],)


def _value(current: Node, inputs: Sequence[Array]) -> tuple[Array, ...]:
    rule: Rule = current.attrs
    line = describe(current)
    rule.check(np.asarray(inputs[0]), f"recorded at {line}" if line else "")
    return (inputs[0],)


def _pass(current: Node, derivatives: Sequence[Node | None]) -> Sequence[Node | None]:
    return derivatives


CHECKED = Op("checked", "movement", _infer, _value, _pass, _pass, leading)
