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
from ridgeline.devices import CPU, is_mesh
from ridgeline.dtypes import DType
from ridgeline.errors import RidgelineError
from ridgeline.execution.lifted_constants import LiftedProgram
from ridgeline.graph.facts import SizeFacts
from ridgeline.graph.graph import Graph
from ridgeline.graph.node import LEAF, PROJ, Node, TensorType, leaf, node, proj
from ridgeline.graph.origins import inherit
from ridgeline.graph.sizes import Size, SizeExpr, Sym, evaluate, symbol, symbols
from ridgeline.ops.elementwise import CONSTANT, EXTENT, ConstantAttrs, ExtentAttrs, constant
from ridgeline.ops.tracking import ERASED

MOST_FORMS, MOST_WITH_PROGRAMS = 512, 32
MOST_SAMPLES, MOST_PROGRAMS = 6, 4  # of one form
MOST_SIZES = 256  # for which a program is kept laid out
_BUCKETS = (1 << 10, 1 << 15, 1 << 20, (1 << 31) - 1)  # the highest value of an unknown
_HOLE = "#"  # stands for a number in a form

Numbers: TypeAlias = tuple[int, ...]
Column: TypeAlias = tuple[int, ...]  # one number in each of the samples


# ---- forms and numbers ---------------------------------------------------------------------------


def form_of(graph: Graph) -> tuple[Hashable, tuple[Any, ...]] | None:
    """A graph without its numbers, and these in order; None if it cannot be generalised.

    Sizes of a graph over unknowns take the positions of the numbers.
    """
    position = {current: number for number, current in enumerate(graph.order)}
    rows: list[Hashable] = []
    numbers: list[Any] = []
    for current in graph.order:
        op = current.op
        if is_mesh(current.types[0].device):
            return None
        if graph.is_input(current) or op is LEAF:
            form, found = _taken_apart(current.types[0])
        else:
            form, found = (None, ()) if op in ERASED else _taken_apart(current.attrs)
            rows.append(CONSTANT if op is EXTENT else op)
            rows += [position[i] for i in current.inputs]
        rows.append(form)
        numbers += found
    rows += [position[output] for output in graph.outputs]
    return tuple(rows), tuple(numbers)


@lru_cache(maxsize=8192)
def _taken_apart(value: Any) -> tuple[Hashable, tuple[Any, ...]]:
    """The form of a type or of attributes, and their numbers or sizes."""
    numbers: list[Any] = []
    return _form(value, numbers), tuple(numbers)


def _form(value: Any, numbers: list[Any]) -> Hashable:
    """A value without its numbers, which are appended to a list."""
    if isinstance(value, SizeExpr) or (isinstance(value, int) and not isinstance(value, bool)):
        numbers.append(value)
        return _HOLE
    if isinstance(value, float):
        return value.hex()  # tells -0.0 from 0.0, and a NaN is itself
    if isinstance(value, tuple):
        return tuple([_form(part, numbers) for part in value])
    if isinstance(value, ConstantAttrs) and (whole := _whole(value)) is not None:
        numbers.append(whole)
        return (ConstantAttrs, value.dtype, value.device)
    if isinstance(value, ExtentAttrs):
        numbers.append(value.size)
        return (ConstantAttrs, value.dtype, value.device)
    if is_dataclass(value) and not isinstance(value, type | DType):
        parts = [_form(getattr(value, f.name), numbers) for f in fields(value) if f.init]
        return (type(value), *parts)
    found: Hashable = value
    return found


def _whole(attrs: ConstantAttrs) -> int | None:
    """The number of a constant, if it may be a size or a count."""
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
    """A value with sizes in place of its numbers, in the order of `_form`."""
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
    """A size for each number of some samples of a form, and the position of each plain unknown.

    None if a changing number is negative or too large for sizes.
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


def is_for_each_size(graph: Graph) -> bool:
    """True for control flow over unknowns that are more than operands of arithmetic."""
    return _branches(graph) and any(map(_has_sizes, graph.order))


def on_host(graph: Graph) -> bool:
    """True if all is computed on the CPU: GPU code is compiled for given sizes."""
    return all(kind.device == CPU for current in graph.order for kind in current.types)


def _branches(graph: Graph) -> bool:
    return any(current.op.family == "control" for current in graph.order)


def _has_sizes(current: Node) -> bool:
    """True where a type or an attribute of a node depends on unknowns; those of constants apart."""
    shapes = [size for kind in current.types for size in kind.shape]
    attrs = () if current.op in (EXTENT, LEAF) or current.op in ERASED else current.attrs
    return bool(symbols([*shapes, *[n for n in _taken_apart(attrs)[1] if n is not None]]))


class NotGeneral(Exception):
    """No program over unknowns fits these numbers."""


class General:
    """A program over unknowns: the values for which it is valid, and the program there."""

    def __init__(self, sizes: Sequence[Size], values: Mapping[str, int]) -> None:
        """The questions that sizes leave open are answered by the given values."""
        self._sizes = list(sizes)
        self._changing = [p for p, size in enumerate(sizes) if isinstance(size, SizeExpr)]
        self.unknowns = symbols(self._sizes)
        self._places = _places(self._sizes, self.unknowns)
        self._facts = SizeFacts(values)
        self._program: Any = None
        self._at: dict[Numbers, Any] = {}
        self.failed = False  # it could not be compiled

    def compile(self, graph: Callable[[], Graph], prepare: Callable[[Graph], Graph]) -> None:
        """Compile a graph over the unknowns; raises where that cannot be."""
        from ridgeline.runtime.cpu.symbolic import SymbolicProgram  # loads LLVM

        with self._facts.deciding():
            made = prepare(graph())
            apart = not on_host(made)
            if is_for_each_size(made) or (apart and any(map(_has_sizes, made.order))):
                raise NotGeneral("work that is compiled for each size")
            lifted = apart or _branches(made)
            program: Any = LiftedProgram(made) if lifted else SymbolicProgram(made, self.unknowns)
        if self._facts.pinned:
            raise NotGeneral(f"{', '.join(self._facts.pinned)} is used as a number")
        self._program, self.failed = program, False

    def ready(self) -> bool:
        """True where it is compiled."""
        return self._program is not None

    def holds_at(self, values: Mapping[str, int]) -> bool:
        """True if every decision made in compiling it is the same at these values.

        Before it is compiled, it is assumed to hold.
        """
        if self.failed or not all(u.lo <= values[u.name] <= u.hi for u in self.unknowns):
            return False
        return self._program is None or self._facts.broken(values) is None

    def at(self, values: Mapping[str, int]) -> Any:
        """The program at some values of all unknowns, for which it holds."""
        key = tuple([values[unknown.name] for unknown in self.unknowns])
        found = self._at.get(key)
        if found is None:
            found = self._program.at({u.name: values[u.name] for u in self.unknowns})
            if len(self._at) >= MOST_SIZES:
                self._at.pop(next(iter(self._at)))
            self._at[key] = found
        return found

    def for_numbers(self, numbers: Numbers) -> Any | None:
        """The program for a piece with these numbers, if it is one for it."""
        if self._program is None or self._places is None:
            return None
        values = {name: numbers[place] - offset for name, place, offset in self._places}
        return self.at(values) if self._stands_for(numbers, values) else None

    def _stands_for(self, numbers: Numbers, values: Mapping[str, int]) -> bool:
        expected: list[Any] = list(self._sizes)
        for index in self._changing:
            expected[index] = evaluate(expected[index], values)
        return tuple(expected) == numbers and self.holds_at(values)


def _places(sizes: Sequence[Size], unknowns: Sequence[Sym]) -> list[tuple[str, int, int]] | None:
    """The position of each unknown, and the number added to it there; None if one has none."""
    found: list[tuple[str, int, int]] = []
    for unknown in unknowns:
        own = symbol(unknown.name, unknown.lo, unknown.hi, unknown.multiple_of)
        for place, size in enumerate(sizes):
            more = size - own if isinstance(size, SizeExpr) else None
            if isinstance(more, int):
                found.append((unknown.name, place, more))
                break
        else:
            return None
    return found


class Form:
    """What is known of one form: the numbers with which it came, and programs for all such."""

    __slots__ = ("begun", "making", "programs", "runs", "samples")

    def __init__(self) -> None:
        self.samples: list[Numbers] = []
        self.programs: list[General] = []
        self.begun = 0  # programs that were made, or tried
        self.making = False  # one is being compiled beside the program
        self.runs = 0  # of such programs, at all numbers

    @property
    def changes(self) -> bool:
        """True if it came with several numbers: one of its pieces may never come again."""
        return len(self.samples) > 1

    def took(self, made: General) -> None:
        """A program was made for it."""
        self.begun += 1
        self.programs = [made, *self.programs][:MOST_PROGRAMS]  # the last stands for most
        _keep(self)


@dataclass(frozen=True, slots=True)
class Came:
    """A piece of work as a form with numbers."""

    form: Form
    numbers: Numbers

    def program(self) -> Any | None:
        """A program for it that was made for others of its form."""
        return next((p for g in self.form.programs if (p := g.for_numbers(self.numbers))), None)

    def again(self) -> bool:
        """Note the numbers; True if a program over unknowns should be made."""
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
            made = self._guessed(graph, prepare)
        except Exception as error:
            form.begun = MOST_PROGRAMS
            if not isinstance(error, NotGeneral | RidgelineError):
                report_defect("work whose sizes change", error)
        else:
            form.took(made)
        form.making = False

    def _guessed(self, graph: Graph, prepare: Callable[[Graph], Graph]) -> General:
        """A program over the numbers that changed so far."""
        numbers = self.numbers
        found = sizes_of([*[s for s in self.form.samples if s != numbers], numbers])
        if found is None:
            raise NotGeneral("a number that changes is no size")
        sizes, places = found
        made = General(sizes, {name: numbers[place] for name, place in places.items()})
        made.compile(lambda: with_sizes(graph, numbers, sizes), prepare)
        return made


_forms: OrderedDict[Hashable, Form] = OrderedDict()
_with_programs: OrderedDict[int, Form] = OrderedDict()  # by identity, the last made last
_lock = threading.Lock()


def _keep(form: Form) -> None:
    """Keep the programs of a form, and drop those of the least recently compiled."""
    with _lock:
        _with_programs[id(form)] = form
        _with_programs.move_to_end(id(form))
        while len(_with_programs) > MOST_WITH_PROGRAMS:
            old = _with_programs.popitem(last=False)[1]
            old.programs, old.samples, old.begun = [], [], 0


def came(graph: Graph, settings: Hashable) -> Came | None:
    """A piece of work by its form, under some settings; None if it has none."""
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
