"""Dynamic axes: which sizes of a call's arguments a trace leaves open, and for which calls it fits.

An axis is named by the place of a tensor among the arguments' leaves and its number. Axes that are
equally long when a function is traced get one unknown, and must be equally long in every call that
uses the trace. Lengths 0 and 1 are traced by themselves: broadcasting treats them in a way of
their own. Other lengths come in a few buckets, so that what is chosen by size suits it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.errors import ArgumentError
from ridgeline.graph.facts import Facts
from ridgeline.graph.node import TensorType
from ridgeline.graph.sizes import Size, SizeExpr, Sym, evaluate, symbol, symbols
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.signatures import Signature, TensorSpec, are_floats, argument_value

Axis = tuple[int, int]
_BUCKETS = (1, 1 << 10, 1 << 15, 1 << 20, (1 << 31) - 1)  # the highest length of each


@dataclass(frozen=True, slots=True)
class Pattern:
    """A signature with unknown sizes, and the facts under which it was traced."""

    signature: Signature
    sizes: tuple[Sym, ...]
    facts: Facts

    @property
    def types(self) -> dict[int, TensorType]:
        """The types of tensors with unknown sizes, by place."""
        return {
            place: leaf.type
            for place, leaf in enumerate(self.signature.leaves)
            if isinstance(leaf, TensorSpec) and symbols(leaf.type.shape)
        }

    def values(self, signature: Signature) -> dict[str, int] | None:
        """The unknowns for which it is that signature; None where it differs in other ways."""
        if replace(signature, leaves=()) != replace(self.signature, leaves=()):
            return None
        values: dict[str, int] = {}
        for mine, given in zip(self.signature.leaves, signature.leaves, strict=True):
            if not isinstance(mine, TensorSpec) or not isinstance(given, TensorSpec):
                if mine != given:
                    return None
            elif not _bind(mine, given, values):
                return None
        return values

    def broken(self, values: Mapping[str, int]) -> str | None:
        """Why these sizes need a trace of their own; None if they do not."""
        for size in self.sizes:
            if not size.lo <= values[size.name] <= size.hi:
                return f"{size} is {values[size.name]}, outside {size.lo} to {size.hi}"
        fact = self.facts.broken(values)
        if fact is None:
            return None
        known = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"with {known} it is not true that {fact}"


def _bind(mine: TensorSpec, given: TensorSpec, values: dict[str, int]) -> bool:
    """Whether a spec fits, with the unknowns that this settles."""
    shape = given.type.shape
    if len(shape) != len(mine.type.shape):
        return False
    for size, length in zip(mine.type.shape, shape):
        if not isinstance(size, SizeExpr):
            continue
        assert isinstance(length, int), "live tensors have known sizes"
        (name,) = (s.name for s in symbols([size]))
        if values.setdefault(name, length) != length:
            return False
    here = tuple(evaluate(size, values) for size in mine.type.shape)
    return replace(mine, type=replace(mine.type, shape=here)) == given


def pattern(signature: Signature, axes: set[Axis]) -> Pattern | None:
    """The signature with unknowns for the lengths of some axes; None where none can be."""
    made: dict[int, SizeExpr] = {}
    leaves: list[Any] = list(signature.leaves)
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, TensorSpec) or leaf.steps:
            continue
        shape = tuple(
            _unknown(length, made) if (place, axis) in axes else length
            for axis, length in enumerate(leaf.type.shape)
        )
        if leaf.same_as != place:  # another handle on the same memory
            shape = leaves[leaf.same_as].type.shape
        leaves[place] = replace(leaf, type=replace(leaf.type, shape=shape))
    if not made:
        return None
    values = {symbols([size])[0].name: length for length, size in made.items()}
    sizes = tuple(symbols(made.values()))
    return Pattern(replace(signature, leaves=tuple(leaves)), sizes, Facts(values))


def _unknown(length: Size, made: dict[int, SizeExpr]) -> Size:
    assert isinstance(length, int), "live tensors have known sizes"
    if length <= _BUCKETS[0] or length > _BUCKETS[-1]:
        return length
    if length not in made:
        high = next(b for b in _BUCKETS if length <= b)
        low = _BUCKETS[_BUCKETS.index(high) - 1] + 1
        made[length] = symbol(f"N{len(made)}", low, high)
    return made[length]


def differing_axes(before: Signature, after: Signature) -> set[Axis]:
    """The axes in whose length two signatures differ, if they differ in nothing but floats."""
    if replace(before, leaves=()) != replace(after, leaves=()):
        return set()
    found: set[Axis] = set()
    for place, (old, new) in enumerate(zip(before.leaves, after.leaves, strict=True)):
        if old == new or are_floats(old, new):
            continue
        if not isinstance(old, TensorSpec) or not isinstance(new, TensorSpec) or new.steps:
            return set()
        if len(old.type.shape) != len(new.type.shape):
            return set()
        if replace(old, type=replace(old.type, shape=new.type.shape)) != new:
            return set()
        lengths = enumerate(zip(old.type.shape, new.type.shape))
        found |= {(place, axis) for axis, (a, b) in lengths if a != b}
    return found


class Policy:
    """Which axes of each structure of arguments are dynamic: named ones, or those that change."""

    def __init__(self, function: Callable[..., Any], dynamic: Any) -> None:
        self.watching = dynamic is True
        self._named = [] if isinstance(dynamic, bool) else _pairs(dynamic)
        self._function = function
        self._axes: dict[Hashable, set[Axis]] = {}
        self._fixed: dict[Hashable, set[Axis]] = {}

    @property
    def active(self) -> bool:
        """True where any axis may be dynamic."""
        return self.watching or bool(self._named)

    def axes(
        self, signature: Signature, leaves: Sequence[Any], args: Any, kwargs: Any
    ) -> set[Axis]:
        """The dynamic axes of a call."""
        known = self._axes.setdefault(signature.structure, set())
        for argument, axes in self._named:
            value = argument_value(self._function, argument, args, kwargs, "dynamic")
            inside: list[Any] = []
            flatten(value, inside)
            own = {id(leaf) for leaf in inside if isinstance(leaf, Tensor)}
            for place, leaf in enumerate(leaves):
                if id(leaf) in own:
                    known |= {(place, _axis(axis, leaf, argument)) for axis in axes}
        return known - self._fixed.get(signature.structure, set())

    def watch(self, before: Sequence[Signature], signature: Signature) -> None:
        """Axes in which a call differs from a former one, and in nothing else, are dynamic."""
        if not self.watching:
            return
        for former in before:
            found = differing_axes(former, signature)
            if found:
                self._axes.setdefault(signature.structure, set()).update(found)
                return

    def fix(self, shape: Pattern, everything: bool = False) -> list[str]:
        """Axes whose lengths were used as numbers, or all, are dynamic no longer; says which."""
        pinned = " ".join(shape.facts.pinned)
        said = []
        for place, kind in shape.types.items():
            for axis, size in enumerate(kind.shape):
                if isinstance(size, SizeExpr) and (everything or str(size) in pinned):
                    self._fixed.setdefault(shape.signature.structure, set()).add((place, axis))
                    said.append(f"axis {axis} of argument {place + 1}")
        return said


def _axis(axis: int, leaf: Tensor, argument: str | int) -> int:
    rank = len(leaf.shape)
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"jit: dynamic names axis {axis} of argument {argument!r}, which has {rank} axes"
        )
    return axis % rank


def _pairs(dynamic: Any) -> list[tuple[str | int, tuple[int, ...]]]:
    """(argument, axes) from a dict, or from a sequence of pairs."""
    try:
        rows = list(dynamic.items() if isinstance(dynamic, Mapping) else dynamic)
        pairs = [(name, (axes,) if isinstance(axes, int) else tuple(axes)) for name, axes in rows]
    except (TypeError, ValueError):
        pairs = [(None, ())]
    if not all(
        isinstance(n, str | int) and all(isinstance(a, int) for a in axes) for n, axes in pairs
    ):
        raise ArgumentError(
            f"jit: dynamic is {dynamic!r}",
            help='give True, {"x": 0}, {0: (0, 1)} or [("x", 0)]: arguments and their axes',
        )
    return pairs
