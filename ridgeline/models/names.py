"""How files call a model's tensors, and in which form they hold them.

A model's parameters have names of their own here. A table of names says for modules, with `{}`
for numbers, how the files call them: `{"blocks.{}.attention.query": "layers.{}.self_attn.q_proj"}`.
Reading and writing follow the same list of `FileForm`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = Mapping[str, tuple[Any, ...]]
BY_HEADS = 0  # the queries' rows of a head of keys, that key's, that value's, and so on
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class FileForm:
    """Tensors of the files, and the entries of our state_dict that they hold.

    One tensor may hold several entries as its rows, and several tensors may be the parts of one.
    """

    names: tuple[str, ...]
    ours: tuple[str, ...]
    transposed: bool = False
    groups: int = 1  # the entries' rows lie side by side in each of so many groups

    def expected(self, shapes: Shapes) -> tuple[int, ...]:
        """The shape of each of the tensors."""
        first = tuple(int(n) for n in shapes[self.ours[0]])
        if len(self.names) > 1:
            first = first[1:]
        elif len(self.ours) > 1:
            first = (sum(int(shapes[name][0]) for name in self.ours), *first[1:])
        return tuple(reversed(first)) if self.transposed else first

    def read(self, arrays: list[NDArray[Any]], shapes: Shapes) -> Iterator[tuple[str, Any]]:
        """Our entries, made of the files' tensors."""
        arrays = [array.T if self.transposed else array for array in arrays]
        if len(self.names) > 1:
            yield self.ours[0], np.stack(arrays)
            return
        if len(self.ours) == 1:
            yield self.ours[0], arrays[0]
            return
        rows = [int(shapes[name][0]) // self.groups for name in self.ours]
        whole = arrays[0].reshape((self.groups, sum(rows), *arrays[0].shape[1:]))
        start = 0
        for name, count in zip(self.ours, rows):
            piece = whole[:, start : start + count]
            yield name, piece.reshape((-1, *piece.shape[2:]))
            start += count

    def written(self, arrays: list[NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The files' tensors, made of our entries."""
        if len(self.names) > 1:
            pieces = list(arrays[0])
        elif len(arrays) > 1:
            grouped = [a.reshape((self.groups, -1, *a.shape[1:])) for a in arrays]
            whole = np.concatenate(grouped, 1)
            pieces = [whole.reshape((-1, *whole.shape[2:]))]
        else:
            pieces = arrays
        for name, piece in zip(self.names, pieces):
            yield name, piece.T if self.transposed else piece


@dataclass(frozen=True, slots=True)
class Joint:
    """A tensor that is not simply one of ours under another name."""

    name: str
    members: tuple[str, ...] = ()  # all modules whose rows it holds
    transposed: bool = False  # its weights are
    groups: int = 1  # how often its rows begin anew with the first member, or BY_HEADS
    numbered: bool = False  # there is one for each row of ours, the last `{}` of the name


Table = Mapping[str, "str | Joint"]


def joint(name: str, *members: str, **how: Any) -> dict[str, Joint]:
    """A table for modules that files hold as one."""
    return dict.fromkeys(members, Joint(name, members, **how))


def inside(ours: str, theirs: str, table: Table) -> dict[str, str | Joint]:
    """A table for what is inside a module."""
    return moved(table, f"{theirs}.", f"{ours}.")


def moved(table: Table, theirs: str, ours: str = "") -> dict[str, str | Joint]:
    """A table whose names begin with more."""

    def longer(value: str | Joint) -> str | Joint:
        if isinstance(value, str):
            return theirs + value
        members = tuple(ours + member for member in value.members)
        return replace(value, name=theirs + value.name, members=members)

    return {ours + name: longer(value) for name, value in table.items()}


def stored(table: Table, shapes: Shapes, heads: int = 1) -> Iterator[FileForm]:
    """How files hold the entries of a state_dict, by the table of their names.

    `heads` is how many heads of keys there are.
    """
    done: set[str] = set()
    for name in shapes:
        if name in done:
            continue
        entry = _entry(name, table, shapes, heads)
        done.update(entry.ours)
        yield entry


def _entry(name: str, table: Table, shapes: Shapes, heads: int) -> FileForm:
    template, numbers = _NUMBER.sub("{}", name), _NUMBER.findall(name)
    path, rest = template, ""
    while path not in table:
        if "." not in path:
            raise LookupError(f"no name in files is known for {name}")
        path, _, last = path.rpartition(".")
        rest = f".{last}{rest}"
    value = table[path]
    if isinstance(value, str):
        return FileForm(((value + rest).format(*numbers),), (name,))
    theirs = value.name + rest
    if value.numbered:
        count = range(int(shapes[name][0]))
        return FileForm(tuple(theirs.format(*numbers, n) for n in count), (name,), value.transposed)
    members = tuple((member + rest).format(*numbers) for member in value.members)
    ours = tuple(member for member in members if member in shapes)
    turned = value.transposed and len(shapes[name]) > 1
    return FileForm((theirs.format(*numbers),), ours, turned, value.groups or heads)


def without(prefix: str, entries: Iterable[FileForm]) -> list[FileForm]:
    """The same list for files that leave out where the names below a head begin."""
    return [
        FileForm(
            tuple(name.removeprefix(prefix) for name in entry.names),
            entry.ours, entry.transposed, entry.groups,
        )
        for entry in entries
    ]  # fmt: skip
