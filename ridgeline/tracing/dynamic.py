"""Dynamic sizes: which sizes and numbers of a call's arguments a trace leaves unknown.

An axis is named by the place of a tensor among the arguments' leaves and its number. Axes that are
equally long when a function is traced get one unknown, and must be equally long in every call that
uses the trace. Lengths 0 and 1 are traced by themselves: broadcasting treats them in a way of
their own. Other lengths come in a few buckets, so that what is chosen by size suits it.

A whole number among the arguments is left open as soon as a call comes with another one: a place in
a cache, a length, a count. Code that needs the number itself gets it, and is traced for each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ridgeline.errors import ArgumentError
from ridgeline.graph.facts import SizeFacts
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
    facts: SizeFacts

    @property
    def numbers(self) -> dict[int, SizeExpr]:
        """The unknowns for whole numbers, by argument leaf."""
        leaves = enumerate(self.signature.leaves)
        return {index: leaf for index, leaf in leaves if isinstance(leaf, SizeExpr)}

    @property
    def types(self) -> dict[int, TensorType]:
        """The types of tensors with unknown sizes, by argument leaf."""
        return {
            index: leaf.type
            for index, leaf in enumerate(self.signature.leaves)
            if isinstance(leaf, TensorSpec) and symbols(leaf.type.shape)
        }

    def values(self, signature: Signature) -> dict[str, int] | None:
        """The values of the unknowns that match a signature; None if it differs otherwise."""
        if replace(signature, leaves=()) != replace(self.signature, leaves=()):
            return None
        values: dict[str, int] = {}
        for mine, given in zip(self.signature.leaves, signature.leaves, strict=True):
            if isinstance(mine, SizeExpr):
                if type(given) is not int:
                    return None
                values[str(mine)] = given
            elif not isinstance(mine, TensorSpec) or not isinstance(given, TensorSpec):
                if mine != given:
                    return None
            elif not _bind(mine, given, values):
                return None
        return values

    def broken(self, values: Mapping[str, int]) -> str | None:
        """Why these sizes need another trace; None if they do not."""
        for size in self.sizes:
            if not size.lo <= values[size.name] <= size.hi:
                return f"{size} is {values[size.name]}, outside {size.lo} to {size.hi}"
        fact = self.facts.broken(values)
        if fact is None:
            return None
        known = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"with {known} it is not true that {fact}"


def _bind(mine: TensorSpec, given: TensorSpec, values: dict[str, int]) -> bool:
    """Whether a spec matches, with the unknowns that this determines."""
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


def pattern(
    signature: Signature, axes: set[Axis], numbers: Set[int] = frozenset()
) -> Pattern | None:
    """The signature with unknowns for some lengths and numbers; None if none can be unknown."""
    made: dict[int, SizeExpr] = {}
    leaves: list[Any] = list(signature.leaves)
    values: dict[str, int] = {}
    for index, leaf in enumerate(leaves):
        if index in numbers and type(leaf) is int and 0 <= leaf <= _BUCKETS[-1]:
            high = next(b for b in _BUCKETS[1:] if leaf <= b)
            leaves[index] = symbol(f"I{index}", 0, high)
            values[f"I{index}"] = leaf
        if not isinstance(leaf, TensorSpec) or leaf.steps:
            continue
        shape = tuple(
            _unknown(length, made) if (index, axis) in axes else length
            for axis, length in enumerate(leaf.type.shape)
        )
        if leaf.same_as != index:  # another handle on the same memory
            shape = leaves[leaf.same_as].type.shape
        leaves[index] = replace(leaf, type=replace(leaf.type, shape=shape))
    values |= {symbols([size])[0].name: length for length, size in made.items()}
    if not values:
        return None
    whole = [leaf for leaf in leaves if isinstance(leaf, SizeExpr)]
    sizes = tuple(symbols([*made.values(), *whole]))
    return Pattern(replace(signature, leaves=tuple(leaves)), sizes, SizeFacts(values))


def _unknown(length: Size, made: dict[int, SizeExpr]) -> Size:
    assert isinstance(length, int), "live tensors have known sizes"
    if length <= _BUCKETS[0] or length > _BUCKETS[-1]:
        return length
    if length not in made:
        high = next(b for b in _BUCKETS if length <= b)
        low = _BUCKETS[_BUCKETS.index(high) - 1] + 1
        made[length] = symbol(f"N{len(made)}", low, high)
    return made[length]


@dataclass(slots=True)
class Difference:
    """The sizes and numbers in which two signatures differ, besides floats."""

    axes: set[Axis] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)


def differing(before: Signature, after: Signature) -> Difference | None:
    """Axes and numbers in which two signatures differ; None if they differ otherwise."""
    if replace(before, leaves=()) != replace(after, leaves=()):
        return None
    found = Difference()
    for index, (old, new) in enumerate(zip(before.leaves, after.leaves, strict=True)):
        if old == new or are_floats(old, new):
            continue
        if type(old) is int and type(new) is int:
            found.numbers.add(index)
            continue
        if not isinstance(old, TensorSpec) or not isinstance(new, TensorSpec) or new.steps:
            return None
        if len(old.type.shape) != len(new.type.shape):
            return None
        if replace(old, type=replace(old.type, shape=new.type.shape)) != new:
            return None
        lengths = enumerate(zip(old.type.shape, new.type.shape))
        found.axes |= {(index, axis) for axis, (a, b) in lengths if a != b}
    return found


SEVERAL = 3  # other lengths after which an axis of which nobody spoke is dynamic


class Policy:
    """What is dynamic in a structure of arguments: named axes, or those and numbers that change.

    Of axes that nobody named, those that change: with `dynamic=True` from the second length on,
    and where nothing was said after several, for code that is made for one length is faster.
    """

    def __init__(self, function: Callable[..., Any], dynamic: Any) -> None:
        # lengths besides that of a call from which on an axis is seen to change; None: never
        self._others = {None: SEVERAL, True: 1}.get(dynamic) if _is_a_word(dynamic) else None
        self._named = [] if _is_a_word(dynamic) else _pairs(dynamic)
        self._function = function
        self._axes: dict[Hashable, set[Axis]] = {}
        self._fixed: dict[Hashable, set[Axis]] = {}
        self._numbers: dict[Hashable, set[int]] = {}
        self._plain: dict[Hashable, set[int]] = {}  # numbers that the function needs themselves

    def numbers(self, signature: Signature) -> set[int]:
        """The whole numbers that change from call to call, by argument leaf."""
        plain = self._plain.get(signature.structure, set())
        return self._numbers.get(signature.structure, set()) - plain

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
            for index, leaf in enumerate(leaves):
                if id(leaf) in own:
                    known |= {(index, _axis(axis, leaf, argument)) for axis in axes}
        return known - self._fixed.get(signature.structure, set())

    def changes(self, signature: Signature) -> bool:
        """True if axes that nobody named were seen to change."""
        if self._others in (None, 1):
            return self._others == 1
        return bool(self._axes.get(signature.structure))

    def watch(self, before: Sequence[Signature], signature: Signature) -> None:
        """Make dynamic what differs between a call and former ones, if nothing else does."""
        found = [d for former in before if (d := differing(former, signature)) is not None]
        changed = [d.axes for d in found if d.axes]
        if self._others is not None and len(changed) >= self._others:
            axes = changed[0] if self._others == 1 else set.union(*changed)
            self._axes.setdefault(signature.structure, set()).update(axes)
        opened = self._named or self.changes(signature)
        for difference in found:
            if (difference.axes and opened) or (difference.numbers and not difference.axes):
                numbers = self._numbers.setdefault(signature.structure, set())
                numbers.update(difference.numbers)
                return

    def fix(self, shape: Pattern, everything: bool = False) -> list[str]:
        """What was used as a plain number, or all, is dynamic no longer; says which.

        Where all would be, and there are numbers, axes get another try without these.
        """
        pinned = " ".join(shape.facts.pinned)
        said = []
        for index, number in shape.numbers.items():
            if everything or str(number) in pinned:
                self._plain.setdefault(shape.signature.structure, set()).add(index)
                said.append(f"argument {index + 1}")
        if everything and said:
            return said
        for index, kind in shape.types.items():
            for axis, size in enumerate(kind.shape):
                if isinstance(size, SizeExpr) and (everything or size.text in pinned):
                    self._fixed.setdefault(shape.signature.structure, set()).add((index, axis))
                    said.append(f"axis {axis} of argument {index + 1}")
        return said


def _is_a_word(dynamic: Any) -> bool:
    """True where axes are not named."""
    return dynamic is None or isinstance(dynamic, bool)


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
