"""Names of a program's state, from the modules and optimizers that a function can see."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from ridgeline.record.mutation import ParamGroup
from ridgeline.tensors.tensor import Tensor
from ridgeline.tracing.capture import (
    CellInput,
    GradientInput,
    NumberInput,
    RandomInput,
    Setting,
    Source,
)

_DEEP = 4  # how far into objects tensors are looked for


class StateNames:
    """Tensors by the names under which a function, or its arguments, reach them."""

    def __init__(self, function: Any, leaves: Sequence[Any]) -> None:
        self._cells: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        seen: set[int] = set()
        for name, value in _visible(function):
            self._look(name, value, seen, _DEEP)

    def of(self, source: Source) -> str:
        """A name for a source, which no other has."""
        name = self._plain(source)
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}.{count}"

    def _plain(self, source: Source) -> str:
        if isinstance(source, CellInput):
            return self._cells.get(id(source.cell), "tensor")
        if isinstance(source, GradientInput):
            return f"{self._cells.get(id(source.owner._cell), 'tensor')}.grad"
        if isinstance(source, RandomInput):
            return f"random.{source.part}"
        if isinstance(source, NumberInput):
            getter = source.getter
            getter = getter.getter if isinstance(getter, Setting) else getter
            found = inspect.getclosurevars(getter).nonlocals
            group, key = found.get("self"), found.get("key")
            if isinstance(group, ParamGroup) and id(group) in self._groups:
                return f"{self._groups[id(group)]}.{key}"
        return "number"

    def _look(self, name: str, value: Any, seen: set[int], depth: int) -> None:
        if isinstance(value, Tensor):
            self._cells.setdefault(id(value._cell), name)
            return
        if id(value) in seen or depth == 0:
            return
        seen.add(id(value))
        if isinstance(value, ParamGroup):
            self._groups[id(value)] = name
        if hasattr(value, "named_parameters"):
            parts = [*value.named_parameters(), *value.named_buffers()]
            for inner, tensor in parts:
                self._cells.setdefault(id(tensor._cell), f"{name}.{inner}" if name else inner)
            return
        for inner, part in _parts(value):
            self._look(f"{name}.{inner}" if name else inner, part, seen, depth - 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an optimizer or a container holds."""
    if hasattr(value, "param_groups") and hasattr(value, "state"):
        yield from ((f"group{n}", group) for n, group in enumerate(value.param_groups))
        parameters = [p for group in value.param_groups for p in dict.__getitem__(group, "params")]
        numbers = {id(p): n for n, p in enumerate(parameters)}
        for owner, held in value.state.items():
            yield f"state{numbers.get(id(owner), '')}", dict(held)
    elif type(value) in (list, tuple):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif type(value) is dict:
        yield from ((str(key), part) for key, part in value.items())


def _visible(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function reads from outside, or is bound to."""
    function = inspect.unwrap(function) if callable(function) else function
    owner = getattr(function, "__self__", None)
    if hasattr(function, "named_parameters"):
        yield "", function
        return
    if owner is not None:
        yield "", owner
    if inspect.isfunction(function) or inspect.ismethod(function):
        found = inspect.getclosurevars(function)
        yield from found.nonlocals.items()
        yield from found.globals.items()
