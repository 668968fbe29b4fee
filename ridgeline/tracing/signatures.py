"""Signatures: what of a call's arguments decides which trace it can use."""

from __future__ import annotations

import inspect
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, is_dataclass
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.errors import ArgumentError
from ridgeline.graph.node import TensorType
from ridgeline.record import mutation
from ridgeline.record.cells import GRAPH, Cell, Step
from ridgeline.record.modes import modes
from ridgeline.tensors.pytree import LEAVES, attribute_names, is_plain
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing import guards


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a signature holds of a tensor argument."""

    type: TensorType  # of the whole cell
    mode: int
    steps: tuple[Step, ...]
    same_as: int  # the first leaf with the same cell

    def __str__(self) -> str:
        notes = [str(self.type)]
        if self.mode >= GRAPH:
            notes.append("requires_grad")
        if self.steps:
            notes.append("view")
        return " ".join(notes)


@dataclass(frozen=True, slots=True)
class Signature:
    """What must be equal for a trace to be used: structure, tensors, other values, modes."""

    structure: Hashable
    leaves: tuple[Any, ...]  # TensorSpec, or the image of another value
    gradients: bool
    autocast: tuple[tuple[str, DType], ...] = ()

    def __str__(self) -> str:
        parts = [str(leaf) if isinstance(leaf, TensorSpec) else repr(leaf) for leaf in self.leaves]
        return f"({', '.join(parts)})" + ("" if self.gradients else " under no_grad")


class Changing:
    """What a signature holds of a float argument that was seen to change from call to call."""

    def __repr__(self) -> str:
        return "float"


CHANGING = Changing()


def signature_of(
    structure: Hashable, leaves: Sequence[Any], changing: Set[int] = frozenset()
) -> Signature:
    """The signature of a call; floats at the indices in `changing` may have any value."""
    first: dict[Cell, int] = {}
    described: list[Any] = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            cell = leaf._cell
            same = first.setdefault(cell, index)
            described.append(TensorSpec(cell.node.types[0], leaf._track.mode, leaf._steps, same))
        elif index in changing and type(leaf) is float:
            described.append(CHANGING)
        else:
            described.append(guards.freeze(leaf))
    return Signature(structure, tuple(described), modes.gradients, modes.autocast)


def described_parts(tree: Any) -> Iterator[Any]:
    """The containers among the arguments whose content a signature holds."""
    waiting = [tree]
    while waiting:
        current = waiting.pop()
        kind: Any = type(current)
        if isinstance(current, dict) and not isinstance(current, mutation.ParamGroup):
            yield current
            waiting += [*current.keys(), *dict.values(current)]
        elif isinstance(current, list | tuple | set | frozenset | deque):
            yield current
            waiting += current
        elif isinstance(current, bytearray | array) or guards.is_small_array(current):
            yield current
        elif is_dataclass(current) and kind not in LEAVES and is_plain(kind):
            yield current
            waiting += [getattr(current, name) for name in attribute_names(current)]


def are_floats(*images: Any) -> bool:
    """True where leaves of signatures stand for float arguments."""
    return all(
        image is CHANGING or (isinstance(image, tuple) and len(image) == 2 and image[0] == "float")
        for image in images
    )


def difference(before: Signature, after: Signature) -> str:
    """What differs between two signatures, in words."""
    if before.gradients != after.gradients:
        return "gradients were switched " + ("on" if after.gradients else "off")
    if before.autocast != after.autocast:
        return "autocast was switched " + ("on or to another type" if after.autocast else "off")
    if before.structure != after.structure or len(before.leaves) != len(after.leaves):
        return "the arguments are nested differently"
    for index, (old, new) in enumerate(zip(before.leaves, after.leaves)):
        if old != new:
            return f"argument {index + 1} was {_shown(old)} and is {_shown(new)}"
    return "the signature differs"


def _shown(leaf: Any) -> str:
    return str(leaf) if isinstance(leaf, TensorSpec) else repr(leaf)


def argument_value(
    function: Callable[..., Any], argument: str | int, args: Any, kwargs: Any, option: str
) -> Any:
    """The value of an argument that an option of jit names by its name or place."""
    if isinstance(argument, int) and -len(args) <= argument < len(args):
        return args[argument]
    if argument in kwargs:
        return kwargs[argument]
    called = getattr(function, "forward", function)  # a module's own names
    parameters = inspect.signature(called).parameters
    names = list(parameters)
    if isinstance(argument, int):
        several = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        if several or -len(names) <= argument < len(names):
            return None if several else kwargs.get(names[argument])
    elif argument in names:
        index = names.index(argument)
        return args[index] if index < len(args) else None
    raise ArgumentError(
        f"jit: {option} names the argument {argument!r}, which the function does not have",
        help=f"its arguments are {', '.join(names)}",
    )
