"""Donated arguments: results may overwrite their memory.

`jit(step, donate="state")`: after a call the tensors that were given as `state` are gone, and using
one raises an error that names the call. Where a result has the type of a donated tensor, and nobody
else holds that memory, it is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from ridgeline.atomic import Change
from ridgeline.errors import ArgumentError
from ridgeline.graph.node import TensorType, leaf
from ridgeline.record.captures import Donated
from ridgeline.tensors.pytree import flatten
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.signatures import argument_value

Donate: TypeAlias = bool | str | int | Sequence[str | int]


class Donation:
    """Which arguments of a function are donated."""

    def __init__(self, function: Callable[..., Any], donate: Donate) -> None:
        self._function, self._everything = function, donate is True
        chosen = donate if isinstance(donate, list | tuple) else (donate,)
        self._named: tuple[Any, ...] = () if isinstance(donate, bool) else tuple(chosen)
        if not all(isinstance(name, str | int) for name in self._named):
            raise ArgumentError(
                f"jit: donate is {donate!r}", help='give True, "x", 0 or ("x", "y"): arguments'
            )

    def indices(self, leaves: Sequence[Any], args: Any, kwargs: Any) -> frozenset[int]:
        """The indices of donated tensors among the leaves of a call's arguments."""
        if not self._everything and not self._named:
            return frozenset()
        values: Iterable[Any] = [
            argument_value(self._function, name, args, kwargs, "donate") for name in self._named
        ]
        inside: list[Any] = []
        flatten((args, kwargs) if self._everything else list(values), inside)
        own = {id(item) for item in inside if isinstance(item, Tensor)}
        found = frozenset(index for index, item in enumerate(leaves) if id(item) in own)
        for index in found:
            if leaves[index]._steps:
                raise ArgumentError(
                    f"jit: argument {index + 1} is donated, but it is a view: its memory belongs "
                    "to another tensor",
                    help="give x.clone(), or leave it out of donate",
                )
        return found


def donated_pairs(
    outputs: Iterable[tuple[int, TensorType]],
    donated: Iterable[tuple[int, TensorType]],
    taken: Iterable[tuple[int, int]],
) -> list[tuple[int, int]]:
    """For each donated tensor the first result of its type that has no memory yet."""
    used = {output for output, _ in taken}
    free = [(output, kind) for output, kind in outputs if output not in used]
    found: list[tuple[int, int]] = []
    for index, kind in donated:
        fitting = next((o for o, other in free if other == kind), None)
        if fitting is not None:
            found.append((fitting, index))
            free = [(o, other) for o, other in free if o != fitting]
    return found


def give_away(tensors: Iterable[Tensor], function: str, line: str, changes: list[Change]) -> None:
    """After these changes the tensors, and all that share their memory, have no value."""
    for tensor in tensors:
        cell = tensor._cell
        changes.append((cell, "node", leaf(cell.node.types[0])))
        changes.append((cell, "version", cell.version + 1))
        changes.append((cell, "rare", None))
        changes.append((cell, "capture", Donated(function, line)))
