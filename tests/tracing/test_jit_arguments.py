"""Containers as arguments of jitted functions: what they have besides their fields and elements."""

from __future__ import annotations

import collections
import functools
import itertools
import linecache
import operator
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

import ridgeline as rl

pytestmark = pytest.mark.filterwarnings("ignore::ridgeline.tracing.report.RetraceWarning")


@dataclass
class Row:
    """A dataclass, of which one field is not set."""

    value: Any
    unset: Any = field(init=False)
    kind = 1

    @functools.cached_property
    def doubled(self) -> Any:
        """Kept by the object that it is asked of."""
        return self.value * 2


@dataclass(slots=True)
class Slim:
    """A dataclass with slots."""

    value: Any


class Wider(Slim):
    """With a slot that is no field, and one that may be empty."""

    __slots__ = ("late",)


class Pair(NamedTuple):
    """A named tuple."""

    value: Any


class Extended(Pair):
    """A named tuple with a table of attributes."""


class Dict(dict[str, Any]):
    """A dict with a table of attributes."""


class List(list[Any]):
    """A list with a table of attributes."""


class SlottedList(list[Any]):
    """A list with a slot."""

    __slots__ = ("late",)


class Deque(collections.deque[Any]):
    """A deque with a table of attributes."""


KINDS: dict[str, Callable[[Any], Any]] = {
    "dataclass": Row, "slots": Wider, "named tuple": Extended, "dict": lambda v: Dict(value=v),
    "list": lambda v: List([v]), "slotted list": lambda v: SlottedList([v]),
    "deque": lambda v: Deque([v]), "set": lambda v: type("Set", (set,), {})(),
    "array": lambda v: _Array("d", [1.0]), "bytes": lambda v: _Bytes(b"a"),
}  # fmt: skip


class _Array(array):  # type: ignore[type-arg]
    """An array with a table of attributes."""


class _Bytes(bytearray):
    """Bytes with a table of attributes."""


LATE = (None, None, 2, 3, 3, None, [1], [1, 2])


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_attributes_that_come_later(kind: str, same: bool) -> None:
    def read(x: rl.Tensor, given: Any) -> rl.Tensor:
        late = getattr(given, "late", 1)
        return x * (late if isinstance(late, int) else sum(late) + 10)

    jitted, one = rl.jit(read), KINDS[kind](1.0)
    for late in LATE:
        given = one if same else KINDS[kind](1.0)
        if late is not None:
            given.late = late
        x = rl.ones(2)
        assert jitted(x, given).tolist() == read(x, given).tolist()


def test_an_attribute_of_the_class_is_covered_by_one_of_the_object() -> None:
    jitted = rl.jit(lambda x, row: x * row.kind)
    for kind in (None, None, 2, 3):
        row = Row(1.0)
        if kind is not None:
            row.kind = kind  # type: ignore[misc]
        assert jitted(rl.ones(1), row).item() == (kind or 1)


def test_attributes_that_are_no_fields_are_there_when_numbers_are_open() -> None:
    def read(x: rl.Tensor, row: Row) -> rl.Tensor:
        return x * row.value + row.late  # type: ignore[attr-defined]

    jitted = rl.jit(read)
    for value in (0.5, 1.5, 2.5, 3.5):
        row = Row(value)
        row.late = rl.full((2,), value)  # type: ignore[attr-defined]
        assert jitted(rl.ones(2), row).tolist() == read(rl.ones(2), row).tolist()
    assert jitted.traces == 2


def test_what_an_argument_keeps_of_itself() -> None:
    jitted = rl.jit(lambda x, row: x * row.doubled)
    for value in (1, 2, 3):
        row = Row(value)
        assert row.doubled == value * 2
        row.value = 50
        assert jitted(rl.ones(1), row).item() == value * 2
        assert jitted(rl.ones(1), Row(value)).item() == value * 2


def test_how_many_elements_a_deque_may_have() -> None:
    def read(x: rl.Tensor, given: Any) -> rl.Tensor:
        return x * (given.maxlen or 7) + sum(given)

    jitted = rl.jit(read)
    for longest in (3, 3, 4, None):
        given = collections.deque([rl.ones(1), 2], longest)
        assert jitted(rl.ones(1), given).item() == read(rl.ones(1), given).item()


@pytest.mark.parametrize("make", [collections.OrderedDict, lambda a, b: collections.deque([a, b])])
def test_tensors_in_containers_are_inputs(make: Callable[..., Any]) -> None:
    def total(given: Any) -> Any:
        return sum(given.values() if isinstance(given, dict) else given)

    jitted = rl.jit(total)
    for number in range(4):
        given = (
            make(a=rl.full((2,), number), b=rl.ones(2))
            if make is collections.OrderedDict
            else make(rl.full((2,), number), rl.ones(2))
        )
        assert jitted(given).tolist() == [number + 1.0] * 2
    assert jitted.traces == 1


# ---- functions that are handed to C code -----------------------------------------------------


def double(x: Any) -> Any:
    """A function, which jit runs as a copy."""
    return x * 2


class _Holder:
    def method(self) -> None:
        """Does nothing."""


holder = _Holder()
bound = functools.partial(max, 1)
functions = [double, len, rl.relu, bound, holder.method]
FUNCTIONS = """
dict(a=double)["a"] is double
collections.OrderedDict(a=double)["a"] is double
dict.fromkeys(["a"], double)["a"] is double
collections.defaultdict(double).default_factory is double
list(dict(a=bound).values())[0] is bound
dict(a=double) == {"a": double}
{"b": 1, **dict(a=double)}["a"] is double
str(dict(a=double)) == str({"a": double})
next(itertools.repeat(double)) is double
functions.index(rl.relu)
functions.index(bound)
functions.index(holder.method)
functions.count(double)
(double, len).index(len)
functions.__contains__(double)
hash(double) == hash(functions[0])
operator.eq(double, functions[0])
operator.indexOf(functions, double)
object.__eq__(double, double)
{}.setdefault("a", double) is double
registry.update(a=double) or registry["a"] is double
operator.call(double, 3)
collections.defaultdict(lambda: double(2))["a"]
"""
registry: dict[str, Any] = {}
_NAMES = {"collections": collections, "itertools": itertools, "operator": operator, "rl": rl,
          "double": double, "functions": functions, "bound": bound, "holder": holder,
          "registry": registry}  # fmt: skip


@pytest.mark.parametrize("expression", FUNCTIONS.strip().split("\n"))
def test_functions_stay_themselves_in_c_code(expression: str) -> None:
    text = f"def f(x):\n    v = {expression}\n    return v, x * 2\n"
    file = f"<{expression}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = dict(_NAMES)
    exec(compile(text, file, "exec"), names)
    jitted = rl.jit(names["f"])
    for _ in range(3):
        registry.clear()
        wanted = names["f"](rl.ones(1))[0]
        registry.clear()
        assert jitted(rl.ones(1))[0] == wanted
        assert registry.get("a", double) is double
