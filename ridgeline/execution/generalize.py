"""Automatic dynamic shapes of flushes: pieces that differ only in numbers share one program.

A piece is its *form* and its numbers: lengths of axes, places where slices begin, whole constants.
When a form comes with other numbers, those that changed are written as unknowns, or as sums and
multiples of unknowns, and the graph over these is compiled once, as symbolic sizes are. It stands
for a later piece only if at some values of the unknowns it is that piece, number by number. So a
wrong guess costs a program that is not used, and never a wrong result.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from ridgeline.compiler.background import report_defect
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF, PROJ, Node, TensorType, leaf, node, proj
from ridgeline.graph.origins import inherit
from ridgeline.graph.sizes import Size, SizeExpr, evaluate, symbol, symbols
from ridgeline.ops.elementwise import ConstantAttrs, constant
from ridgeline.ops.tracking import ERASED

MOST_FORMS, MOST_WITH_PROGRAMS = 512, 32
MOST_SAMPLES, MOST_PROGRAMS = 6, 4  # of one form
_BUCKETS = (1 << 10, 1 << 15, 1 << 20, (1 << 31) - 1)  # the highest value of an unknown
_HOLE = "#"  # stands for a number in a form

Numbers: TypeAlias = tuple[int, ...]
Column: TypeAlias = tuple[int, ...]  # one number in each of the samples


# ---- forms and numbers ---------------------------------------------------------------------------


def form_of(graph: Graph) -> tuple[Hashable, Numbers] | None:
    """A graph without its numbers, and these in order; None where it cannot be generalised."""
    position = {current: number for number, current in enumerate(graph.order)}
    rows: list[Hashable] = []
    numbers: list[int] = []
    for current in graph.order:
        op = current.op
        if op.family == "control" or current.types[0].device != "cpu":
            return None
        if graph.is_input(current) or op is LEAF:
            form, found = _taken_apart(current.types[0])
        else:
            form, found = (None, ()) if op in ERASED else _taken_apart(current.attrs)
            rows.append(op)
            rows += [position[i] for i in current.inputs]
        rows.append(form)
        numbers += found
    rows += [position[output] for output in graph.outputs]
    return tuple(rows), tuple(numbers)


@lru_cache(maxsize=8192)
def _taken_apart(value: Any) -> tuple[Hashable, Numbers]:
    """The form of a type or of attributes, and their numbers."""
    numbers: list[int] = []
    return _form(value, numbers), tuple(numbers)


def _form(value: Any, numbers: list[int]) -> Hashable:
    """What a value is without its numbers, which are added to a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        numbers.append(value)
        return _HOLE
    if isinstance(value, float):
        return value.hex()  # tells -0.0 from 0.0, and a NaN is itself
    if isinstance(value, tuple):
        return tuple([_form(part, numbers) for part in value])
    if isinstance(value, ConstantAttrs) and (whole := _whole(value)) is not None:
        numbers.append(whole)
        return (ConstantAttrs, value.dtype, value.device)
    if is_dataclass(value) and not isinstance(value, type | DType):
        parts = [_form(getattr(value, f.name), numbers) for f in fields(value) if f.init]
        return (type(value), *parts)
    found: Hashable = value
    return found


def _whole(attrs: ConstantAttrs) -> int | None:
    """The number of a constant that is a size or a count, as far as one can tell."""
    if attrs.dtype.kind not in ("int", "uint", "float"):
        return None
    value = attrs.value
    assert not isinstance(value, complex)
    is_whole = isinstance(value, int) or value.is_integer()
    return int(value) if is_whole and 1 < value <= _BUCKETS[-1] else None


Left: TypeAlias = Iterator[tuple[int, Size]]  # numbers in order, and the sizes in their place


def _size(number: int, left: Left) -> Size:
    """What stands for the next number, which must be this one."""
    expected, size = next(left)
    if number != expected:
        raise ValueError("numbers are not in the order of their form")
    return size


def _filled(value: Any, left: Left) -> Any:
    """A value with sizes in place of its numbers, taken in the order of `_form`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _size(value, left)
    if isinstance(value, tuple):
        new = [_filled(part, left) for part in value]
        return value if all(a is b for a, b in zip(new, value)) else tuple(new)
    if is_dataclass(value) and not isinstance(value, type | DType):
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        changed = {name: _filled(part, left) for name, part in parts.items()}
        same = all(changed[name] is part for name, part in parts.items())
        return value if same else type(value)(**changed)
    return value


def with_sizes(graph: Graph, numbers: Numbers, sizes: Sequence[Size]) -> Graph:
    """A graph over fresh leaves with sizes in place of its numbers."""
    left = zip(numbers, sizes)
    made: dict[Node, Node] = {}
    for old in graph.order:
        if graph.is_input(old) or old.op is LEAF:
            kind: TensorType = _filled(old.types[0], left)
            made[old] = leaf(kind)
            continue
        inputs = [made[i] for i in old.inputs]
        whole = _whole(old.attrs) if isinstance(old.attrs, ConstantAttrs) else None
        if whole is not None:
            size = _size(whole, left)
            known = isinstance(size, int)
            new = old if known else constant(size, old.attrs.dtype, old.attrs.device)
        else:
            attrs = old.attrs if old.op in ERASED else _filled(old.attrs, left)
            new = proj(inputs[0], attrs.output) if old.op is PROJ else node(old.op, inputs, attrs)
        if not new.origins:
            inherit(new, old.origins)
        made[old] = new
    inputs = [made[i] if i in made else leaf(i.types[0]) for i in graph.inputs]
    return Graph([made[output] for output in graph.outputs], inputs)


# ---- unknowns ------------------------------------------------------------------------------------


def sizes_of(samples: Sequence[Numbers]) -> tuple[list[Size], dict[str, int]] | None:
    """A size for each number of some samples of a form, and where each unknown stands as it is.

    None where a number that changes is negative, or beyond what sizes can be.
    """
    unknowns: dict[Column, SizeExpr] = {}
    column_of: dict[str, int] = {}
    sizes: list[Size] = []
    for index, column in enumerate(zip(*samples)):
        if len(set(column)) == 1:
            sizes.append(column[0])
            continue
        found = next((s for c, u in unknowns.items() if (s := _in_terms(column, c, u))), None)
        if found is None:
            if min(column) < 0 or max(column) > _BUCKETS[-1]:
                return None
            high = next(b for b in _BUCKETS if max(column) <= b)
            name = f"N{len(unknowns)}"
            found = unknowns[column] = symbol(name, min(2, *column), high)
            column_of[name] = index
        sizes.append(found)
    return sizes, column_of


def _in_terms(column: Column, known: Column, unknown: SizeExpr) -> Size | None:
    """A column as a multiple of another, that plus or minus a number, or its square."""
    first, other = next((a, b) for a, b in pairwise(known) if a != b)
    where = known.index(first), known.index(other)
    rise, rest = divmod(column[where[1]] - column[where[0]], other - first)
    if not rest:
        offset = column[where[0]] - rise * first
        plain = rise != 0 and (offset == 0 or abs(rise) == 1)
        if plain and all(rise * k + offset == c for k, c in zip(known, column)):
            return unknown * rise + offset
    times = column[0] // (known[0] ** 2) if known[0] else 0
    if times and all(times * k * k == c for k, c in zip(known, column)):
        return unknown * unknown * times
    return None


# ---- programs ------------------------------------------------------------------------------------


class NotGeneral(Exception):
    """No program over unknowns stands for these numbers."""


class General:
    """A program over unknowns: for which numbers it stands, and the program there."""

    def __init__(
        self, graph: Graph, samples: Sequence[Numbers], prepare: Callable[[Graph], Graph]
    ) -> None:
        """Compile a graph, whose numbers are the last sample; raises where that cannot be."""
        from ridgeline.runtime.cpu.symbolic import SymbolicProgram  # loads LLVM

        found = sizes_of(samples)
        if found is None:
            raise NotGeneral("a number that changes is no size")
        self._sizes, self._places = found
        self._unknowns = symbols(self._sizes)
        self._changing = [p for p, size in enumerate(self._sizes) if isinstance(size, SizeExpr)]
        self._facts = SizeFacts(self._values(samples[-1]))
        with self._facts.deciding():
            prepared = prepare(with_sizes(graph, samples[-1], self._sizes))
            self._program = SymbolicProgram(prepared, self._unknowns)
        if self._facts.pinned:
            raise NotGeneral(f"{', '.join(self._facts.pinned)} is used as a number")

    def _values(self, numbers: Numbers) -> dict[str, int]:
        return {name: numbers[index] for name, index in self._places.items()}

    def at(self, numbers: Numbers) -> Any | None:
        """The program for a piece with these numbers, if it is one for it."""
        values = self._values(numbers)
        if not self._stands_for(numbers, values):
            return None
        return self._program.at(values)

    def _stands_for(self, numbers: Numbers, values: Mapping[str, int]) -> bool:
        if not all(size.lo <= values[size.name] <= size.hi for size in self._unknowns):
            return False
        expected: list[Any] = list(self._sizes)
        for index in self._changing:
            expected[index] = evaluate(expected[index], values)
        return tuple(expected) == numbers and self._facts.broken(values) is None


class Form:
    """What is known of one form: numbers with which it came, and programs for all such."""

    __slots__ = ("begun", "making", "programs", "samples")

    def __init__(self) -> None:
        self.samples: list[Numbers] = []
        self.programs: list[General] = []
        self.begun = 0  # programs that were made, or tried
        self.making = False  # one is being compiled beside the program

    @property
    def changes(self) -> bool:
        """True where it came with several numbers, and may get a program for them all."""
        return len(self.samples) > 1 and (self.making or bool(self.programs))


@dataclass(frozen=True, slots=True)
class Came:
    """A piece of work as a form with numbers."""

    form: Form
    numbers: Numbers

    def program(self) -> Any | None:
        """A program for it that was made for others of its form."""
        return next((p for g in self.form.programs if (p := g.at(self.numbers))), None)

    def again(self) -> bool:
        """Take note of the numbers; True where a program over unknowns should be made."""
        form = self.form
        if form.making or form.begun >= MOST_PROGRAMS or self.numbers in form.samples:
            return False
        form.samples = [*form.samples[-MOST_SAMPLES + 1 :], self.numbers]
        return len(form.samples) > 1

    def make(self, graph: Graph, prepare: Callable[[Graph], Graph]) -> None:
        """Compile a program over unknowns, of which the given graph is an instance.

        What has no such program is not tried again.
        """
        form = self.form
        try:
            samples = [s for s in form.samples if s != self.numbers]
            made = General(graph, [*samples, self.numbers], prepare)
        except Exception as error:
            form.begun = MOST_PROGRAMS
            if not isinstance(error, NotGeneral | RidgelineError):
                report_defect("work whose sizes change", error)
        else:
            form.begun += 1
            form.programs = [made, *form.programs]  # it stands for more than those before
            _keep(form)
        form.making = False


_forms: OrderedDict[Hashable, Form] = OrderedDict()
_with_programs: OrderedDict[int, Form] = OrderedDict()  # by identity, the last made last
_lock = threading.Lock()


def _keep(form: Form) -> None:
    """Keep the programs of a form, and let go those of one that got its own long ago."""
    with _lock:
        _with_programs[id(form)] = form
        _with_programs.move_to_end(id(form))
        while len(_with_programs) > MOST_WITH_PROGRAMS:
            old = _with_programs.popitem(last=False)[1]
            old.programs, old.samples, old.begun = [], [], 0


def came(graph: Graph, settings: Hashable) -> Came | None:
    """A piece of work by its form, under some settings; None where it has none."""
    found = form_of(graph)
    if found is None:
        return None
    key, numbers = (settings, found[0]), found[1]
    with _lock:
        form = _forms.setdefault(key, Form())
        _forms.move_to_end(key)
        while len(_forms) > MOST_FORMS:
            _forms.popitem(last=False)
    return Came(form, numbers)
