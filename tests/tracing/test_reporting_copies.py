"""Copies that report what they read compute what their originals do, and show the same lines."""

# ruff: noqa: C400, C416, C417, PIE804, RET507, SIM223, UP028, UP031, UP032
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import functools
import itertools
import linecache
import operator
import sys
import traceback
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ridgeline as rl
from ridgeline.record.modes import modes
from ridgeline.tracing.reads.calls import CallRecorder, call

BASE = 10
TABLE = {"a": 1, "b": [1, 2, 3]}


def reported(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, CallRecorder]:
    """What a reporting copy returns, and what it reported."""
    recorder = CallRecorder(lambda watched: None)
    modes.call_recorder = recorder
    try:
        result = call(function)(*args, **kwargs)
        recorder.reads()
    finally:
        modes.call_recorder = None
    return result, recorder


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def doubled(self) -> int:
        return self.value * 2


class Point(NamedTuple):
    x: int
    y: int = 5

    def total(self) -> int:
        return self.x + self.y


@dataclasses.dataclass
class Options:
    rate: float = 0.5
    names: list[str] = dataclasses.field(default_factory=list)
    total: float = dataclasses.field(init=False, default=0.0)
    extra: dataclasses.InitVar[int] = 3

    def __post_init__(self, extra: int) -> None:
        self.total = self.rate * extra


class Base:
    __hidden = 7
    shared = 3

    def __init__(self, k: int) -> None:
        self.k = k

    def secret(self) -> int:
        return self.__hidden + self.k

    @classmethod
    def made(cls, k: int) -> Base:
        return cls(k)

    @staticmethod
    def static(k: int) -> int:
        return k * BASE

    @property
    def doubled(self) -> int:
        return self.k * 2

    @doubled.setter
    def doubled(self, value: int) -> None:
        self.k = value // 2

    def __add__(self, other: Any) -> Any:
        return self.k + other if isinstance(other, int) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return other + self.k

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Base) and other.k == self.k

    def __hash__(self) -> int:
        return hash(self.k)

    def __len__(self) -> int:
        return self.k

    def __getitem__(self, place: int) -> int:
        if place >= self.k:
            raise IndexError(place)
        return place * place

    def __contains__(self, value: object) -> bool:
        return value == self.k

    def __call__(self, value: int) -> int:
        return value + self.k

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.k}>"

    def __enter__(self) -> int:
        return self.k

    def __exit__(self, *error: Any) -> bool:
        return error[0] is KeyError

    def __getattr__(self, name: str) -> str:
        if name.startswith("made_up"):
            return name[7:]
        raise AttributeError(name)


class Derived(Base):
    def __init__(self, k: int) -> None:
        super().__init__(k + 1)

    def secret(self) -> int:
        return super().secret() * 100

    def parts(self) -> list[int]:
        return [super(Derived, self).secret() for _ in range(2)]


class Counting:
    def __init__(self, limit: int) -> None:
        self.place, self.limit = 0, limit

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> int:
        if self.place >= self.limit:
            raise StopIteration
        self.place += 1
        return self.place


@contextlib.contextmanager
def managed(seen: list[str]) -> Iterator[str]:
    seen.append("in")
    try:
        yield "value"
    finally:
        seen.append("out")


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2

    return run


# Each is called with no arguments; what it returns is compared with what the original returns.


def arithmetic() -> Any:
    a, b, *c = 1, 2.5, 3, 4
    a += 2
    b **= 2
    return a + b - c[0] * c[1] // 3 % 5, -a, +b, ~a, not a, a << 2, a >> 1, a & 6, a | 8, a ^ 3


def comparisons() -> Any:
    x, y = [1, 2], [1, 2]
    return (
        1 < 2 < 3 <= 3 != 4, x == y, x is y, x is not y, 1 in x, 5 not in x, x < [1, 3],
        None is None, 1 < 3 > 2, "a" in "abc", "a" in TABLE,
    )  # fmt: skip


def branches() -> Any:
    found = []
    for i in range(6):
        if i == 1:
            continue
        elif i == 4:
            break
        else:
            found.append(i if i % 2 else -i)
    else:
        found.append("never")
    while found and len(found) > 2:
        found.pop()
    else:
        found.append("done")
    return found, [] or TABLE["a"], {} and 1, (0 or None) is None


def comprehensions() -> Any:
    rows = [[1, 2], [3, 4]]
    return (
        [x * BASE for row in rows for x in row if x > 1], {x: y for x, y in rows},
        {len(r) for r in rows}, list(x + 1 for r in rows for x in r),
        [[j for j in range(i)] for i in range(3)],
        [(lambda: i)() for i in range(2)], [y := 3, y**2],
    )  # fmt: skip


def containers() -> Any:
    chain, counts = ChainMap({"x": 1}, {"y": 2}), Counter("hello")
    many: defaultdict[str, list[int]] = defaultdict(list)
    many["k"].append(1)
    users, named = UserList([3, 1, 2]), UserDict({"a": 1})
    users.append(4)
    users.sort()
    d = deque([1, 2], maxlen=3)
    d.extend([3, 4])
    return (
        chain["y"], "x" in chain, dict(chain), counts.most_common(1), dict(many), list(users),
        users[1:],
        named["a"], named.get("b", 9), list(d), OrderedDict(a=1), {**TABLE, "c": 3}, [*d, *"ab"],
    )  # fmt: skip


def functions() -> Any:
    def inner(a: int, /, b: int = 2, *args: int, c: int, d: int = 4, **named: int) -> Any:
        nonlocal count
        count += 1
        return a, b, args, c, d, named, BASE

    count = 0
    got = inner(1, c=3), inner(*[1, 2, 3], **{"c": 1, "e": 2}), functools.partial(inner, 1, c=5)(7)
    return got, count, (lambda x, y=2: x + y)(1), twice(lambda x: x + 1)(4), inner.__name__


def classes() -> Any:
    b, d = Base(2), Derived.made(3)
    d.doubled = 20

    class Local(Base):
        factor = BASE

        def __len__(self) -> int:
            return self.k * self.factor

    return (
        b.secret(), d.secret(), d.parts(), Base.static(2), b.doubled, b + 1, 1 + b, b == Base(2),
        b == 2, len(d), list(b), 2 in b, b(5), repr(d), f"{b!r:>12}|{b}", b.made_up_x, b.shared,
        len(Local(2)), hasattr(b, "nothing"), getattr(b, "nothing", 1), {b: 1}[Base(2)], bool(b),
        isinstance(d, Base), type(d).__name__, vars(b), sorted([b.k, 1], key=lambda v: -v),
    )  # fmt: skip


def values() -> Any:
    o, p = Options(2.0, extra=5), Point(1)
    return (
        Colour.RED.value, Colour.BLUE.doubled, Colour(2), Colour["RED"].name, list(Colour), o,
        o.total,
        dataclasses.replace(o, rate=1.0).rate, p, p.total(), p._replace(y=1), o == Options(2.0),
        dataclasses.astuple(p) if dataclasses.is_dataclass(p) else p._asdict(),
    )  # fmt: skip


def iterators() -> Any:
    def numbers(n: int) -> Iterator[int]:
        got = yield 0
        for i in range(n):
            yield i
        yield from [got or 7]

    source = iter([1, 2, 3])
    return (
        list(numbers(2)), next(source), list(source), list(Counting(3)), sum(Counting(4)),
        [x for x in Counting(2)], list(map(lambda x: x * BASE, range(3))), list(zip("ab", [1, 2])),
        list(filter(None, [0, 1])), functools.reduce(lambda a, b: a + b, [1, 2, 3]), max([3, 1]),
        list(enumerate("ab", 1)), list(itertools.accumulate([1, 2], operator.mul)),
        any(x > 2 for x in [1]),
        list(reversed([1, 2])), [*itertools.chain([1], (2,))], dict(zip("ab", range(2))),
        min("bca", key=lambda c: -ord(c)),
    )  # fmt: skip


def errors() -> Any:
    seen: list[Any] = []
    try:
        [][1]
    except (IndexError, KeyError) as error:
        seen.append(type(error).__name__)
    else:
        seen.append("else")
    finally:
        seen.append("finally")
    with Base(3) as k, contextlib.suppress(ValueError), managed(seen) as v:
        seen += [k, v]
        raise KeyError("swallowed")
    try:
        undefined_name  # type: ignore[name-defined]  # noqa: B018
    except NameError as error:
        seen.append(str(error))
    try:
        raise ValueError("a") from KeyError("b")
    except ValueError as error:
        seen.append(repr(error.__cause__))
    return seen


def matching() -> Any:
    found = []
    for value in (0, [1, 2, 3], {"k": 5, "z": 1}, Point(1, 2), "text", None):
        match value:
            case 0:
                found.append("zero")
            case [first, *rest] if not isinstance(value, Point):
                found.append((first, rest))
            case {"k": k, **others}:
                found.append((k, others))
            case Point(x=1, y=y):
                found.append(y)
            case str() as text if len(text) > BASE:
                found.append("long")
            case _:
                found.append("other")
    return found


def texts() -> Any:
    x, width = 3.14159, 8
    return (
        f"{x:.2f}", f"{x:{width}.1f}|", f"{'a'!r}", f"{x=}", "%s %d" % ("a", 2),
        "{} {k}".format(1, k=2),
        ",".join(str(i) for i in range(3)), str([1, 2]), repr({"a": 1}), format(3, "04d"),
    )  # fmt: skip


def changes() -> Any:
    global BASE
    kept = BASE
    table = {"a": [1], "b": {"c": 2}}
    table["a"] += [2]
    table["b"]["c"] *= 5  # type: ignore[index]
    del table["a"][0]  # type: ignore[arg-type]
    box = Base(1)
    box.k += 4
    box.extra = 1  # type: ignore[attr-defined]
    del box.extra  # type: ignore[attr-defined]
    (a, b), [c] = (1, 2), "z"
    BASE = kept
    return table, box.k, a, b, c, locals()["kept"], "box" in vars()


def later() -> Any:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b + BASE

    return asyncio.new_event_loop().run_until_complete(add(1, 2))


def imports() -> Any:
    import math as m
    from os.path import join

    return m.floor(2.5), join("a", "b")


PROGRAMS = [
    arithmetic, comparisons, branches, comprehensions, containers, functions, classes, values,
    iterators, errors, matching, texts, changes, later, imports,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_copy_computes_what_the_original_does(program: Callable[[], Any]) -> None:
    wanted = program()
    got, recorder = reported(program)
    assert repr(got) == repr(wanted)
    assert "the source of" not in recorder.open, "the copies ran, not the originals"


def test_a_traceback_shows_the_users_lines() -> None:
    def outer(values: list[int]) -> int:
        return (
            inner(values)
            + 1
        )  # fmt: skip

    def inner(values: list[int]) -> int:
        return max(values, key=lambda v: v) + values[5]

    def lines(run: Callable[[], Any]) -> list[tuple[str, int | None]]:
        with pytest.raises(IndexError) as caught:
            run()
        found = traceback.extract_tb(caught.tb)
        return [(f.name, f.lineno) for f in found if f.filename == __file__ and f.name in names]

    names = ("outer", "inner")
    assert lines(lambda: outer([1])) == lines(lambda: reported(outer, [1]))


def test_names_files_and_attributes_are_the_originals() -> None:
    def seen(k: int = 3) -> Any:
        frame = sys._getframe()
        return frame.f_code.co_name, frame.f_code.co_qualname, frame.f_code.co_filename, k

    assert reported(seen)[0] == seen()
    seen.mark = 5  # type: ignore[attr-defined]
    assert reported(lambda: seen.mark)[0] == 5  # type: ignore[attr-defined]


def test_several_lambdas_on_one_line() -> None:
    pair = [lambda x: x + 1, lambda x: (lambda y: y * 2)(x)]
    assert [reported(f, 5)[0] for f in pair] == [6, 10]


def test_a_copy_that_outlives_its_trace_reports_nothing() -> None:
    def make() -> Callable[[int], int]:
        return lambda k: k + BASE + TABLE["b"][0]  # type: ignore[index]

    kept, _ = reported(make)
    assert kept(1) == 12


def test_what_was_born_inside_is_not_guarded() -> None:
    def build() -> int:
        box = Base(2)
        box.k = 5
        rows = [[1], [2]]
        rows[0].append(3)
        return box.k + sum(map(len, rows))

    recorder = CallRecorder(lambda watched: None)
    modes.call_recorder = recorder
    try:
        call(build)()
    finally:
        modes.call_recorder = None
    assert not any(isinstance(read.owner, Base | list) for read in recorder.reads())


class AssertionRewritingHook:
    """Stands for the loader of pytest, which compiles something else than the text."""


@pytest.mark.parametrize("loader", [None, AssertionRewritingHook()])
@pytest.mark.parametrize("after", [
    "f = lambda x: x * 5 + 1\n", "f = lambda x: y(x)\n", "def f(x):\n    return x * 5\n",
    "def f(x):\n    assert x.shape\n    return x * 5\n", "#\n#\n#\n", "",
])  # fmt: skip
@pytest.mark.parametrize("before", [
    "f = lambda x: x * 2 + 1\n", "def f(x):\n    return x * 2 + 1\n",
    "def f(x):\n    assert x.ndim\n    return x * 2 + 1\n",
])  # fmt: skip
def test_a_file_that_was_edited_since_it_was_loaded(
    tmp_path: Path, before: str, after: str, loader: Any
) -> None:
    file = tmp_path / "edited.py"
    file.write_text(before)
    namespace: dict[str, Any] = {"__loader__": loader, "__name__": "edited"}
    exec(compile(before, str(file), "exec"), namespace)
    file.write_text(after)
    linecache.checkcache()
    step = rl.jit(namespace["f"])
    assert [step(rl.ones(2)).tolist() for _ in range(3)] == [[3.0, 3.0]] * 3
