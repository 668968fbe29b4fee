"""Whole numbers of calls as unknowns: lengths, places where slices begin, counts.

A *pattern* is an argument or a result of a call with sizes over unknowns in place of numbers: of
the numbers themselves, of the lengths of memory from outside, and of the steps of views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from ridgeline.dtypes import DType
from ridgeline.graph.node import TensorType
from ridgeline.graph.sizes import Size, SizeExpr, evaluate, symbols
from ridgeline.record.cells import Step
from ridgeline.tape.copies import is_foreign
from ridgeline.tape.entries import BLOCK, MADE, Many, Ref, Shown
from ridgeline.tape.memory import block_of
from ridgeline.tensors.tensor import Tensor

Visit = Callable[[Any], Any]


def mapped(value: Any, visit: Visit) -> Any:
    """An argument or a result with something else in the place of each whole number or size.

    The memory of what calls made before has the type that these gave it, so that is left alone.
    """
    kind = type(value)
    if kind is int or kind is SizeExpr:
        return visit(value)
    if kind is Ref:
        shape = value.type if value.kind == MADE else mapped_type(value.type, visit)
        return replace(value, type=shape, steps=mapped_steps(value.steps, visit))
    if kind is Shown:
        shape = mapped_type(value.type, visit)
        shown = mapped_type(value.shown, visit)
        steps = mapped_steps(value.steps, visit)
        return replace(value, type=shape, shown=shown, steps=steps, types=(shape,))
    if kind is TensorType:
        return mapped_type(value, visit)
    if kind is Many:
        return replace(value, parts=tuple([mapped(part, visit) for part in value.parts]))
    if kind is slice:
        return slice(*[mapped(end, visit) for end in (value.start, value.stop, value.step)])
    if isinstance(value, tuple):
        parts = [mapped(part, visit) for part in value]
        if all(a is b for a, b in zip(parts, value)):
            return value
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return value


def mapped_type(value: TensorType, visit: Visit) -> TensorType:
    """A type with something else in the place of each length."""
    shape = tuple([visit(length) for length in value.shape])
    same = all(a is b for a, b in zip(shape, value.shape))
    return value if same else replace(value, shape=shape)


def mapped_steps(steps: tuple[Step, ...], visit: Visit) -> tuple[Step, ...]:
    """The steps of a view with something else in the place of each number."""
    made = tuple([(op, _mapped_attrs(attrs, visit)) for op, attrs in steps])
    return steps if all(a[1] is b[1] for a, b in zip(made, steps)) else made


def _mapped_attrs(value: Any, visit: Visit) -> Any:
    if type(value) in (int, SizeExpr):
        return visit(value)
    if isinstance(value, tuple):
        parts = [_mapped_attrs(part, visit) for part in value]
        return value if all(a is b for a, b in zip(parts, value)) else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type | DType):
        old = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new = {name: _mapped_attrs(part, visit) for name, part in old.items()}
        return value if all(new[name] is old[name] for name in old) else type(value)(**new)
    return value


def sizes_of_args(values: Iterable[Any]) -> tuple[Size, ...]:
    """All whole numbers of some arguments, and sizes over unknowns, in order."""
    found: list[Size] = []

    def note(number: Size) -> Size:
        found.append(number)
        return number

    for value in values:
        mapped(value, note)
    return tuple(found)


def numbers_of(values: Iterable[Any]) -> tuple[int, ...]:
    """All whole numbers of some arguments without unknowns, in order."""
    return tuple([number for number in sizes_of_args(values) if isinstance(number, int)])


def nothing(number: Size) -> int:
    """What stands for a number in a form."""
    return -1


def form_of(value: Any, visit: Visit = nothing) -> Any:
    """A value without its numbers, or with something else in their places."""
    if type(value) is Ref and value.kind == MADE:
        return value.number, value.kind, value.mode, value.own, mapped_steps(value.steps, visit)
    if type(value) is Many:
        return value.kind, [form_of(part, visit) for part in value.parts]
    return mapped(value, visit)


def named(number: Size) -> Any:
    """A size over unknowns by its names, whatever is known of these."""
    return str(number) if isinstance(number, SizeExpr) else number


def sizes_in(value: Any) -> list[SizeExpr]:
    """The sizes over unknowns in a value, every object."""
    found: list[SizeExpr] = []

    def note(number: Size) -> Size:
        if isinstance(number, SizeExpr):
            found.append(number)
        return number

    mapped(value, note)
    return found


def at_values(value: Any, values: Mapping[str, int]) -> Any:
    """A pattern at some values of the unknowns."""
    return mapped(value, lambda n: evaluate(n, values) if isinstance(n, SizeExpr) else n)


@lru_cache(maxsize=1024)
def _name(size: SizeExpr) -> str | None:
    """The name of a size that is one unknown as it is."""
    found = symbols([size])
    return found[0].name if len(found) == 1 and str(size) == found[0].name else None


def bind(pattern: Any, value: Any, values: dict[str, int]) -> None:
    """Take the values of unknowns from where they stand as they are.

    Whether all else is as the pattern says is looked at when it has its values.
    """
    kind = type(pattern)
    if kind is SizeExpr:
        name = _name(pattern)
        if name is not None and type(value) is int:
            values.setdefault(name, value)
    elif kind is Ref:
        if isinstance(value, Tensor):
            _bind_memory(pattern, value, values)
    elif kind is Many:
        if isinstance(value, list | tuple):
            _bind_all(pattern.parts, value, values)
    elif kind is slice:
        if type(value) is slice:
            ends = (value.start, value.stop, value.step)
            _bind_all((pattern.start, pattern.stop, pattern.step), ends, values)
    elif isinstance(pattern, tuple):
        if isinstance(value, tuple):
            _bind_all(pattern, value, values)
    elif is_dataclass(pattern) and type(value) is kind:
        names = [f.name for f in fields(pattern)]
        _bind_all([getattr(pattern, n) for n in names], [getattr(value, n) for n in names], values)


def _bind_all(patterns: Iterable[Any], given: Iterable[Any], values: dict[str, int]) -> None:
    for pattern, value in zip(patterns, given):
        bind(pattern, value, values)


def _bind_memory(pattern: Ref, value: Tensor, values: dict[str, int]) -> None:
    steps = value._steps
    if pattern.kind != MADE:
        memory = None if value._cell.types is not None else value._cell.node
        if pattern.kind == BLOCK and is_foreign(value._cell, value._track):
            if not pattern.steps:  # a copy of what is shown
                _bind_all(pattern.type.shape, value.shape, values)
            return
        if pattern.kind == BLOCK and memory is not None:
            memory, steps = block_of(value)
        if memory is not None:
            _bind_all(pattern.type.shape, memory.types[0].shape, values)
    for (op, attrs), (other, given) in zip(pattern.steps, steps):
        if op is other:
            bind(attrs, given, values)
