"""Sizes of torch's that are not numbers: what their symbols stand for in a program of ours.

A graph for changing sizes has symbols in the shapes of its tensors, and takes their values as
arguments. Captured for one call, they stand for the numbers of that call; captured once for all
calls, for unknowns of ours.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import sympy
import torch
from torch.fx import GraphModule
from torch.utils._sympy import functions as torch_functions

from ridgeline.graph.sizes import Size, SizeExpr, Sym, maximum, minimum, symbol, symbols
from ridgeline.torch_backend.scalars import shown

_BUCKETS = (1, 1 << 10, 1 << 15, 1 << 20, (1 << 31) - 1)  # the highest value of each kind
_OPERATIONS: dict[Any, Callable[[Any, Any], Any]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Max: maximum,
    sympy.Min: minimum,
    torch_functions.Max: maximum,
    torch_functions.Min: minimum,
    torch_functions.FloorDiv: operator.floordiv,
    torch_functions.CleanDiv: operator.floordiv,
    torch_functions.Mod: operator.mod,
    torch_functions.PythonMod: operator.mod,
}


def expression_of(size: Any) -> Any:
    """The expression of a size of torch's; None for a number."""
    return size.node.expr if isinstance(size, torch.SymInt) else None


def evaluated(expression: Any, values: Mapping[Any, Size]) -> Size | None:
    """An expression of torch's over symbols as a size of ours; None where it has none."""
    if isinstance(expression, sympy.Integer | int):
        return int(expression)
    if expression.is_symbol:
        return values.get(expression)
    parts = [evaluated(part, values) for part in expression.args]
    if None in parts:
        return None
    if isinstance(expression, sympy.Pow | torch_functions.PowByNatural):
        base, times = parts
        return reduce(operator.mul, [base] * times, 1) if isinstance(times, int) else None
    operation = _OPERATIONS.get(expression.func)
    return None if operation is None else reduce(operation, parts)


@dataclass(slots=True)
class Symbols:
    """What the symbols in torch's sizes stand for in a capture."""

    values: dict[Any, Size] = field(default_factory=dict)

    def bind(self, theirs: Any, value: Any) -> None:
        """Learn symbols from an argument: a size, or a tensor with its lengths."""
        if isinstance(theirs, torch.Tensor):
            for size, length in zip(theirs.shape, getattr(value, "shape", ())):
                self._bind(expression_of(size), length)
        else:
            self._bind(expression_of(theirs), value)

    def _bind(self, expression: Any, value: Size) -> None:
        if expression is not None and expression.is_symbol:
            self.values.setdefault(expression, value)

    def size(self, size: Any) -> Size | None:
        """A size as one of ours, if that is known."""
        if isinstance(size, int):
            return size
        expression = expression_of(size)
        known = [self.values.get(part) for part in expression.free_symbols]
        if all(isinstance(value, int) for value in known):
            found = expression.xreplace(self.values)
            return int(found) if isinstance(found, int) or found.is_number else None
        return evaluated(expression, self.values)

    def sizes(self, sizes: Sequence[Any]) -> list[Size | None]:
        """Sizes as ours."""
        return [self.size(size) for size in sizes]


def check_promises(module: GraphModule, args: Sequence[Any]) -> None:
    """Raise where a tensor, made by torch, is not as long as a `torch._check` said it would be."""
    given, known = [n for n in module.graph.nodes if n.op == "placeholder"], Symbols()
    for node, arg in zip(given, args):
        theirs = shown(node)
        if not isinstance(theirs, torch.Tensor) or not isinstance(arg, torch.Tensor):
            continue
        for axis, (size, length) in enumerate(zip(known.sizes(theirs.shape), arg.shape)):
            if size not in (None, length):
                raise RuntimeError(
                    f"axis {axis} of {node.name} is {length} long, and torch._check said {size}"
                )


@dataclass(frozen=True, slots=True)
class Unknowns:
    """The symbols of a graph as unknowns, and where a call says what they are."""

    sizes: dict[Any, SizeExpr]  # by torch's symbol
    places: tuple[tuple[str, int, int | None], ...]  # names, arguments, and axes of tensors
    numbers: dict[int, Size]  # arguments that are sizes

    def values(self, args: Sequence[Any]) -> dict[str, int]:
        """What the unknowns are in a call."""
        return {
            name: args[place] if axis is None else args[place].shape[axis]
            for name, place, axis in self.places
        }

    @property
    def own(self) -> list[Sym]:
        """The unknowns of ours."""
        return symbols(self.sizes.values())


def unknowns_of(module: GraphModule, args: Sequence[Any]) -> Unknowns | None:
    """The symbols of a graph, as unknowns that may be what they are in a call; None without any.

    None, too, where one is a length 0 or 1, which are cases of their own, or is negative.
    """
    given = [shown(node) for node in module.graph.nodes if node.op == "placeholder"]
    sizes: dict[Any, SizeExpr] = {}
    places: list[tuple[str, int, int | None]] = []
    lengths = {e for t in given if isinstance(t, torch.Tensor) for e in _symbols_in(t)}
    for place, (theirs, arg) in enumerate(zip(given, args)):
        tensor = isinstance(theirs, torch.Tensor)
        axes: Any = enumerate(theirs.shape) if tensor else [(None, theirs)]
        for axis, size in axes:
            expression = expression_of(size)
            if expression is None or not expression.is_symbol or expression in sizes:
                continue
            value = arg.shape[axis] if axis is not None else arg
            least = _BUCKETS[0] + 1 if expression in lengths else 0
            if type(value) is not int or not least <= value <= _BUCKETS[-1]:
                return None
            name = f"N{len(sizes)}"
            high = next(b for b in _BUCKETS[1:] if value <= b)
            low = _BUCKETS[_BUCKETS.index(high) - 1] + 1 if least else 0
            sizes[expression] = symbol(name, low, high)
            places.append((name, place, axis))
    found = {
        n: evaluated(e, sizes) for n, e in enumerate(map(expression_of, given)) if e is not None
    }
    if not sizes or None in found.values():
        return None
    return Unknowns(sizes, tuple(places), found)  # type: ignore[arg-type]  # no None is among them


def _symbols_in(tensor: torch.Tensor) -> set[Any]:
    expressions = [expression_of(size) for size in tensor.shape]
    return {s for e in expressions if e is not None for s in e.free_symbols}
