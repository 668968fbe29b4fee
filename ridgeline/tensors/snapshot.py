"""Snapshots: tensors and tables, restored if a change fails halfway.

Outside of jit a step of an optimizer or a backward pass is a series of writes in Python, which an
interrupt or an error may end anywhere. What was written until then is taken back by C code alone
(see `atomic`), so nothing comes between. To whoever goes by versions or epochs that is a change
like others: what was kept of the values in between never stands for later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat, starmap
from operator import add, attrgetter, call
from typing import Any

from ridgeline.atomic import Change
from ridgeline.record import recorder
from ridgeline.record.cells import Cell
from ridgeline.record.mutation import epoch
from ridgeline.tensors.differentiable import Differentiable


class Snapshot:
    """What some objects hold now."""

    def __init__(self) -> None:
        self._values: list[Change] = []
        self._cells: list[Cell] = []
        self._memory: list[Callable[[], object]] = []
        self._tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []

    def tensor(self, tensor: Differentiable) -> None:
        """The value of a tensor."""
        cell = tensor._cell
        self._cell(cell)
        if tensor._track is not cell:
            self._values.append((tensor._track, "mode", tensor._track.mode))

    def _cell(self, cell: Cell) -> None:
        self._cells.append(cell)
        # calls may be deferred since that write to it: see `tape/run.py`
        self._values += [(cell, "node", cell.node), (cell, "types", None), (cell, "run", None)]
        self._values.append((cell, "mode", cell.mode))
        shared = None if cell.rare is None else cell.rare.shared
        memory = None if shared is None else shared.memory()
        if memory is not None and memory.flags.writeable:
            self._memory.append(partial(memory.__setitem__, ..., memory.copy()))

    def gradient(self, owner: Differentiable) -> None:
        """The gradient of a tensor."""
        details = owner._details()
        self._values.append((details, "grad", details.grad))
        if details.grad is not None:
            self.tensor(details.grad)

    def entries(self, table: dict[Any, Any]) -> None:
        """Which things a dictionary holds, not what becomes of them."""
        self._tables.append((table, table.copy()))

    def table(self, table: dict[Any, Any]) -> None:
        """A dictionary, with the tensors and lists in it."""
        self.entries(table)
        for value in table.values():
            if isinstance(value, Differentiable):
                self.tensor(value)
            elif isinstance(value, list):
                self._lists.append((value, value.copy()))

    def back(self) -> Iterator[Any]:
        """What puts everything back, for `apply`."""
        tables = [table for table, _ in self._tables]
        lists, items = [found for found, _ in self._lists], [items for _, items in self._lists]
        versions = map(add, map(attrgetter("version"), self._cells), repeat(1))
        return chain(
            map(call, self._memory),
            recorder.taking_back(),
            starmap(setattr, self._values),
            map(setattr, self._cells, repeat("version"), versions),
            map(next, (epoch.bumps(),)),
            map(dict.clear, tables),
            starmap(dict.update, self._tables),
            map(list.__setitem__, lists, repeat(slice(None)), items),
        )
